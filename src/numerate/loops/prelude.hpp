// What every emitted loop is built on: vectors with one ensemble member per lane, and the random streams.
//
// Written with the vector extensions that GCC (12 or later) and clang share; the few intrinsics are chosen by the
// preprocessor and have a portable twin.
#pragma once
#include <stdint.h>
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float V __attribute__((vector_size(4 * LANES), may_alias));     // one number per member
typedef int32_t M __attribute__((vector_size(4 * LANES), may_alias));   // one truth value per member: 0 or -1
typedef uint32_t U __attribute__((vector_size(4 * LANES), may_alias));  // one word per member
typedef uint64_t W __attribute__((vector_size(4 * LANES), may_alias));  // one word for every second member

// ---------------------------------------------------------------- random streams: Philox4x32-10

// Products of the low halves.
static INLINE W multiply_words(W a, W b) {
#if LANES == 16
  return (W)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif LANES == 8
  return (W)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (W)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
}

static INLINE W exclusive_or(W a, W b, W c) {
#if LANES == 16
  return (W)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, 0x96);
#else
  return a ^ b ^ c;
#endif
}

// A word for each lane, even and odd lanes apart, so that a product has room; upper halves hold rubbish.
struct Words {
  W even, odd;
};

static INLINE Words split(U words) { return {(W)words & 0xFFFFFFFFu, (W)words >> 32}; }
static INLINE U join(Words w) { return (U)((w.even & 0xFFFFFFFFu) | (w.odd << 32)); }
static INLINE Words broadcast(uint32_t word) { return {W{} + word, W{} + word}; }
static INLINE Words exclusive_or(Words a, Words b, Words c) {
  return {exclusive_or(a.even, b.even, c.even), exclusive_or(a.odd, b.odd, c.odd)};
}
static INLINE Words upper(Words w) { return {w.even >> 32, w.odd >> 32}; }

const uint32_t PHILOX_FACTOR[2] = {0xD2511F53u, 0xCD9E8D57u}, PHILOX_KEY_STEP[2] = {0x9E3779B9u, 0xBB67AE85u};

static INLINE Words philox_product(Words w, int which) {
  const W factor = W{} + uint64_t(PHILOX_FACTOR[which]);
  return {multiply_words(w.even, factor), multiply_words(w.odd, factor)};
}

struct Counter {
  Words c0, c1, c2, c3;
};

static INLINE Counter philox_round(Counter c, Words k0, Words k1) {
  const Words p0 = philox_product(c.c0, 0), p1 = philox_product(c.c2, 1);
  return {exclusive_or(upper(p1), c.c1, k0), p1, exclusive_or(upper(p0), c.c3, k1), p0};
}

// The 24 upper bits of each word as a number in [0, 1).
static INLINE V unit_interval(U words) { return __builtin_convertvector((M)(words >> 8), V) * 0x1p-24f; }

// The numbers of one step: every lane has the key (seed of its member, domain), all share the counter.
// In the first two rounds half of the words are equal in all lanes and the other half do not depend on the position;
// `start` keeps the latter, so that `draw` computes eight rounds instead of ten.
struct Stream {
  Words key[10];  // the member's key word in each round
  uint32_t domain;
  uint32_t high;         // c1 after round 1
  Words c2_partly, c3;  // c2 (without the position's part) and c3 after round 2

  INLINE Stream(U seeds, uint32_t domain_) : domain(domain_) {
    for (uint32_t round = 0; round < 10; round++) key[round] = split(seeds + round * PHILOX_KEY_STEP[0]);
  }

  INLINE void start(uint64_t step) {
    const uint64_t product = uint64_t(PHILOX_FACTOR[1]) * uint32_t(step >> 32);
    const Words c0 = exclusive_or(key[0], broadcast(uint32_t(step)), broadcast(product >> 32));
    high = uint32_t(product);
    c3 = philox_product(c0, 0);
    c2_partly = exclusive_or(upper(c3), broadcast(domain + PHILOX_KEY_STEP[1]), broadcast(0));
  }

  // The numbers at positions 4 * block, ..., 4 * block + 3.
  INLINE void draw(uint32_t block, V *out) const {
    const uint64_t first = uint64_t(PHILOX_FACTOR[0]) * block;
    const uint64_t second = uint64_t(PHILOX_FACTOR[1]) * (uint32_t(first >> 32) ^ domain);
    Counter c = {exclusive_or(key[1], broadcast(uint32_t(second >> 32) ^ high), broadcast(0)), broadcast(uint32_t(second)),
                 exclusive_or(c2_partly, broadcast(uint32_t(first)), broadcast(0)), c3};
#pragma GCC unroll 10
    for (uint32_t round = 2; round < 10; round++)
      c = philox_round(c, key[round], broadcast(domain + round * PHILOX_KEY_STEP[1]));
    out[0] = unit_interval(join(c.c0)), out[1] = unit_interval(join(c.c1));
    out[2] = unit_interval(join(c.c2)), out[3] = unit_interval(join(c.c3));
  }
};
