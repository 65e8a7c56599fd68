// Fill a table with random numbers: lane = position, one (seed, step) at a time.
#include "prelude.hpp"

#if LANES == 16
#define LOWER_PAIRS 0, 8, 1, 9, 2, 10, 3, 11
#define UPPER_PAIRS 4, 12, 5, 13, 6, 14, 7, 15
#elif LANES == 8
#define LOWER_PAIRS 0, 4, 1, 5
#define UPPER_PAIRS 2, 6, 3, 7
#else
#define LOWER_PAIRS 0, 2
#define UPPER_PAIRS 1, 3
#endif

static INLINE W pair(W low, W high) { return (W)unit_interval((U)((low & 0xFFFFFFFFu) | (high << 32))); }

static void fill_row(uint32_t seed, uint32_t domain, uint64_t step, int64_t start, int64_t count, float *out) {
  W block;
  for (int lane = 0; lane < LANES / 2; lane++) block[lane] = start / 4 + lane;
  for (int64_t position = 0; position < count; position += 4 * LANES) {
    const W first = block + uint64_t(position / 4);
    Counter c = {{first, first + LANES / 2}, broadcast(uint32_t(step)), broadcast(step >> 32), broadcast(0)};
#pragma GCC unroll 10
    for (uint32_t round = 0; round < 10; round++)
      c = philox_round(c, broadcast(seed + round * PHILOX_KEY_STEP[0]), broadcast(domain + round * PHILOX_KEY_STEP[1]));
    const W e01 = pair(c.c0.even, c.c1.even), e23 = pair(c.c2.even, c.c3.even);
    const W o01 = pair(c.c0.odd, c.c1.odd), o23 = pair(c.c2.odd, c.c3.odd);
    W numbers[4] = {__builtin_shufflevector(e01, e23, LOWER_PAIRS), __builtin_shufflevector(e01, e23, UPPER_PAIRS),
                    __builtin_shufflevector(o01, o23, LOWER_PAIRS), __builtin_shufflevector(o01, o23, UPPER_PAIRS)};
    const int64_t left = count - position;
    __builtin_memcpy(out + position, numbers, 4 * (left < 4 * LANES ? left : 4 * LANES));
  }
}

// Rows first, ..., last - 1 of the table (steps, members, count), each from position start on, a multiple of 4.
extern "C" void fill(const uint32_t *seeds, int64_t members, uint32_t domain, uint64_t step, int64_t first, int64_t last,
                     int64_t start, int64_t count, float *out) {
  for (int64_t row = first; row < last; row++)
    fill_row(seeds[row % members], domain, step + row / members, start, count, out + row * count);
}
