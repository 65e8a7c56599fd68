// The walk of the NRU along time as a persistent kernel, written by hand; the mathematics is in nru_loop.cpp, the way in
// which blocks share the work in grid.cuh.
//
// Every block of a group keeps the memory of all rows of the group (forwards), or its gradient (backwards), in shared
// memory and updates it by itself; exchanged are the hidden state and the heads' numbers z (forwards), the gradients of
// the pre-activations and of the memory (backwards), so that blocks wait for each other twice a step.
//
// Arrays of a row's numbers are laid out (number, row) in shared memory and in the exchange.
//
// Defined before, beside what grid.cuh needs: MEMORY, HEADS, RANK (r), SPAN (s), WIDTH (numbers of z), COLUMNS (of gx),
// Z_UNITS and M_UNITS (columns of z and of the memory that a part computes; divide 32), SCALE, FORWARD or BACKWARD.

const int BOTH = HIDDEN + MEMORY, SUB = 32 / UNITS, Z_SUB = 32 / Z_UNITS, M_SUB = 32 / M_UNITS;
const int STRENGTHS = 0, P = 2 * HEADS, Q = P + 2 * RANK;  // parts of z, each for writing and erasing
const int Z_PAIRS = (ROWS * Z_UNITS + THREADS - 1) / THREADS, M_PAIRS = (ROWS * M_UNITS + THREADS - 1) / THREADS;
const float EPS = 1e-12f;

#define DEPTH_OF(numbers, subs) (((numbers) + WARPS * (subs) - 1) / (WARPS * (subs)))
#define EACH(count) for (int i = threadIdx.x; i < (count) * ROWS; i += THREADS)  // number i / ROWS of row i % ROWS

// Numbers that other blocks have written.
INLINE void receive(float *to, const float *from, int numbers) {
  for (int i = threadIdx.x * 4; i < numbers * ROWS; i += THREADS * 4) copy_quad(to + i, from + i);
  end_of_copies();
  wait_for_copies<0>();
  __syncthreads();
}

INLINE float fifth(float x) {
  const float square = x * x;
  return square * square * fabsf(x);
}

// 5-norms of all p and q: norms[kind] of q, norms[2 + kind * HEADS + i] of p; then w of both kinds.
INLINE void weigh(const float *z, float *norms, float *w) {
  EACH(2 + 2 * HEADS) {
    const int which = i / ROWS, row = i % ROWS;
    const bool of_q = which < 2;
    const int start = of_q ? Q + which * RANK : P + (which - 2) * SPAN, count = of_q ? RANK : SPAN;
    float sum = 0;
    for (int j = 0; j < count; j++) sum += fifth(z[(start + j) * ROWS + row]);
    norms[i] = powf(sum, 0.2f);
  }
  __syncthreads();
  EACH(2 * SPAN) {
    const int kind = i / ROWS / SPAN, a = i / ROWS % SPAN, row = i % ROWS;
    float sum = 0;
    UNROLL for (int head = 0; head < HEADS; head++) {
      const float norm = norms[(2 + kind * HEADS + head) * ROWS + row] * norms[kind * ROWS + row];
      const float strength = z[(kind * HEADS + head) * ROWS + row] * (kind ? -SCALE : SCALE);
      sum += strength / fmaxf(norm, EPS) * z[(P + kind * RANK + head * SPAN + a) * ROWS + row];
    }
    w[i] = sum;
  }
  __syncthreads();
}

#ifdef FORWARD
const int DEPTH = DEPTH_OF(BOTH, SUB), Z_DEPTH = DEPTH_OF(BOTH, Z_SUB);
typedef Product<DEPTH, 1, SUB> ToHidden;
typedef Product<Z_DEPTH, 1, Z_SUB> ToHeads;
const int NUMBERS = ToHidden::DEPTHS > ToHeads::DEPTHS ? ToHidden::DEPTHS : ToHeads::DEPTHS;

// h: (batch, HIDDEN) and m: (batch, MEMORY), initial, then final; memory: (steps * batch, MEMORY), history of m, and
// heads: (steps * batch, WIDTH) may be null; x: (groups, HIDDEN + WIDTH, ROWS), zeros; counters: one per group, 0.
KERNEL void forward(const S *gx, const S *weight, const S *head_weight, const float *bias, float *h, float *m, S *out,
                    float *memory, float *heads, float *x, unsigned *counters, int64 steps, int64 batch, int64 rows_each,
                    int64 reverse) {
  const Place at(batch, rows_each);
  float *const both = shared, *const z = both + NUMBERS * ROWS, *const norms = z + WIDTH * ROWS;
  float *const w = norms + (2 + 2 * HEADS) * ROWS, *const sums = w + 2 * SPAN * ROWS;
  const int column = threadIdx.x % Z_UNITS, number_of_z = at.part * Z_UNITS + column;
  ToHidden to_hidden;
  ToHeads to_heads;
  UNROLL for (int k = 0; k < DEPTH; k++) {
    const int source = ToHidden::slice() * DEPTH + k;
    const bool real = source < BOTH && at.unit < HIDDEN;
    to_hidden.weight[0][k] = real ? number(weight[int64(at.unit) * BOTH + source]) : 0.0f;
  }
  UNROLL for (int k = 0; k < Z_DEPTH; k++) {
    const int source = ToHeads::slice() * Z_DEPTH + k;
    const bool real = source < BOTH && number_of_z < WIDTH;
    to_heads.weight[0][k] = real ? number(head_weight[int64(number_of_z) * BOTH + source]) : 0.0f;
  }
  EACH(NUMBERS) {
    const int source = i / ROWS, row = i % ROWS;
    const int64 place = at.first + row;
    both[i] = row >= at.rows || source >= BOTH ? 0.0f
              : source < HIDDEN                ? h[place * HIDDEN + source]
                                               : m[place * MEMORY + source - HIDDEN];
  }
  const float own_bias = number_of_z < WIDTH ? bias[number_of_z] : 0.0f;
  float *const hidden = x + int64(at.group) * (HIDDEN + WIDTH) * ROWS, *const exchanged = hidden + HIDDEN * ROWS;
  unsigned *const counter = counters + at.group;
  float fresh[PAIRS];
  __syncthreads();
  for (int64 step = 0; step < steps; step++) {
    const int64 t = reverse ? steps - 1 - step : step, start = t * batch + at.first;
    float in[PAIRS], more[Z_PAIRS];
    UNROLL for (int pair = 0; pair < PAIRS; pair++) {
      const int64 row = start + at.row(0, pair);
      in[pair] = at.inside(0, pair) ? number(gx[row * COLUMNS + at.unit]) : 0.0f;
    }
    UNROLL for (int pair = 0; pair < Z_PAIRS; pair++) {
      const int row = threadIdx.x / Z_UNITS + pair * (THREADS / Z_UNITS);
      const bool real = COLUMNS > HIDDEN && number_of_z < WIDTH && row < at.rows;
      more[pair] = own_bias + (real ? number(gx[(start + row) * COLUMNS + HIDDEN + number_of_z]) : 0.0f);
    }
    to_hidden.run_near(both, sums);
    __syncthreads();
    UNROLL for (int pair = 0; pair < PAIRS; pair++) {
      if (!at.inside(0, pair)) continue;
      const float value = in[pair] + ToHidden::total(sums, at.u, at.row_of_pass(pair));
      fresh[pair] = number(stored<S>(maximum(value, 0.0f)));
      hidden[at.unit * ROWS + at.row_of_pass(pair)] = fresh[pair];
    }
    arrive(counter);
    UNROLL for (int pair = 0; pair < PAIRS; pair++)
      if (at.inside(0, pair)) out[(start + at.row(0, pair)) * HIDDEN + at.unit] = stored<S>(fresh[pair]);
    wait(counter, (2 * step + 1) * PARTS);
    receive(both, hidden, HIDDEN);
    to_heads.run_near(both, sums);
    __syncthreads();
    UNROLL for (int pair = 0; pair < Z_PAIRS; pair++) {
      const int row = threadIdx.x / Z_UNITS + pair * (THREADS / Z_UNITS);
      if (number_of_z >= WIDTH || row >= at.rows) continue;
      const float value = more[pair] + ToHeads::total(sums, column, row);
      exchanged[number_of_z * ROWS + row] = value;
      if (heads) heads[(start + row) * WIDTH + number_of_z] = value;
    }
    arrive(counter);
    wait(counter, (2 * step + 2) * PARTS);
    receive(z, exchanged, WIDTH);
    weigh(z, norms, w);
    EACH(MEMORY) {
      const int a = i / ROWS / RANK, j = i / ROWS % RANK, row = i % ROWS;
      const float write = w[a * ROWS + row] * z[(Q + j) * ROWS + row];
      both[HIDDEN * ROWS + i] += fmaf(w[(SPAN + a) * ROWS + row], z[(Q + RANK + j) * ROWS + row], write);
    }
    __syncthreads();
    if (memory)
      for (int i = threadIdx.x + at.part * THREADS; i < at.rows * MEMORY; i += PARTS * THREADS)
        memory[start * MEMORY + i] = both[(HIDDEN + i % MEMORY) * ROWS + i / MEMORY];
  }
  UNROLL for (int pair = 0; pair < PAIRS; pair++)
    if (at.inside(0, pair)) h[int64(at.first + at.row(0, pair)) * HIDDEN + at.unit] = fresh[pair];
  for (int i = threadIdx.x + at.part * THREADS; i < at.rows * MEMORY; i += PARTS * THREADS)
    m[int64(at.first) * MEMORY + i] = both[(HIDDEN + i % MEMORY) * ROWS + i / MEMORY];
}
#endif

#ifdef BACKWARD
const int IN_DEPTH = DEPTH_OF(WIDTH, SUB), OUT_DEPTH = DEPTH_OF(HIDDEN, SUB), M_DEPTH = DEPTH_OF(WIDTH + HIDDEN, M_SUB);
typedef Product<IN_DEPTH, 1, SUB> FromHeads;    // dz -> dh'
typedef Product<OUT_DEPTH, 1, SUB> FromHidden;  // da -> dh
typedef Product<M_DEPTH, 1, M_SUB> ToMemory;    // dz, da -> dm
const int NEEDED = WIDTH + FromHidden::DEPTHS > ToMemory::DEPTHS ? WIDTH + FromHidden::DEPTHS : ToMemory::DEPTHS;
const int NUMBERS = NEEDED > FromHeads::DEPTHS ? NEEDED : FromHeads::DEPTHS;

// dz from z and the gradient of the memory; w, dw and shares (of the gradient of |q|) are room for intermediate numbers.
INLINE void pull(const float *z, const float *dm, float *dz, float *norms, float *w, float *dw, float *shares) {
  weigh(z, norms, w);
  EACH(2 * SPAN) {
    const int kind = i / ROWS / SPAN, a = i / ROWS % SPAN, row = i % ROWS;
    float sum = 0;
    for (int j = 0; j < RANK; j++) sum = fmaf(dm[(a * RANK + j) * ROWS + row], z[(Q + kind * RANK + j) * ROWS + row], sum);
    dw[i] = sum;
  }
  __syncthreads();
  EACH(2 * HEADS) {
    const int kind = i / ROWS / HEADS, head = i / ROWS % HEADS, row = i % ROWS, p = P + kind * RANK + head * SPAN;
    const float norm_p = norms[(2 + kind * HEADS + head) * ROWS + row], norm_q = norms[kind * ROWS + row];
    const float norm = fmaxf(norm_p * norm_q, EPS), sign = kind ? -SCALE : SCALE;
    float along = 0;
    UNROLL for (int a = 0; a < SPAN; a++) along = fmaf(dw[(kind * SPAN + a) * ROWS + row], z[(p + a) * ROWS + row], along);
    dz[i] = sign * along / norm;
    const float factor = sign * z[i] / norm;
    const float dnorm = norm_p * norm_q < EPS ? 0.0f : -along * factor / norm;
    shares[i] = dnorm * norm_p;
    const float inverse = norm_p > 0 ? 1 / norm_p : 0.0f;
    UNROLL for (int a = 0; a < SPAN; a++) {
      const float u = z[(p + a) * ROWS + row] * inverse;
      dz[(p + a) * ROWS + row] = factor * dw[(kind * SPAN + a) * ROWS + row] + dnorm * norm_q * (u * u * u * fabsf(u));
    }
  }
  __syncthreads();
  EACH(2 * RANK) {
    const int kind = i / ROWS / RANK, j = i / ROWS % RANK, row = i % ROWS;
    const float norm_q = norms[kind * ROWS + row], u = norm_q > 0 ? z[Q * ROWS + i] / norm_q : 0.0f;
    float share = 0;
    UNROLL for (int head = 0; head < HEADS; head++) share += shares[(kind * HEADS + head) * ROWS + row];
    float sum = share * (u * u * u * fabsf(u));
    UNROLL for (int a = 0; a < SPAN; a++)
      sum = fmaf(w[(kind * SPAN + a) * ROWS + row], dm[(a * RANK + j) * ROWS + row], sum);
    dz[Q * ROWS + i] = sum;
  }
  __syncthreads();
}

// dh: (batch, HIDDEN) and dm: (batch, MEMORY), gradients of the final state, then of the initial one; dout may be null;
// d: (steps * batch, HIDDEN + WIDTH), gradients of the pre-activations of h and of z; x: (groups, HIDDEN + MEMORY, ROWS).
KERNEL void backward(const S *weight, const S *head_weight, const S *out, const float *heads, const S *dout, float *dh,
                     float *dm, S *d, float *x, unsigned *counters, int64 steps, int64 batch, int64 rows_each,
                     int64 reverse) {
  const Place at(batch, rows_each);
  float *const memory = shared, *const dz = memory + MEMORY * ROWS, *const z = dz + NUMBERS * ROWS;
  float *const norms = z + WIDTH * ROWS, *const w = norms + (2 + 2 * HEADS) * ROWS, *const dw = w + 2 * SPAN * ROWS;
  float *const shares = dw + 2 * SPAN * ROWS, *const sums = shares + 2 * HEADS * ROWS;
  float *const other_sums = sums + FromHidden::SLICES * UNITS * PADDED;
  const int column = threadIdx.x % M_UNITS, cell = at.part * M_UNITS + column;  // of the memory
  FromHeads from_heads;
  FromHidden from_hidden;
  ToMemory to_memory;
  UNROLL for (int k = 0; k < IN_DEPTH; k++) {
    const int source = FromHeads::slice() * IN_DEPTH + k;
    const bool real = source < WIDTH && at.unit < HIDDEN;
    from_heads.weight[0][k] = real ? number(head_weight[int64(source) * BOTH + at.unit]) : 0.0f;
  }
  UNROLL for (int k = 0; k < OUT_DEPTH; k++) {
    const int source = FromHidden::slice() * OUT_DEPTH + k;
    const bool real = source < HIDDEN && at.unit < HIDDEN;
    from_hidden.weight[0][k] = real ? number(weight[int64(source) * BOTH + at.unit]) : 0.0f;
  }
  UNROLL for (int k = 0; k < M_DEPTH; k++) {
    const int source = ToMemory::slice() * M_DEPTH + k;
    const bool real = source < WIDTH + HIDDEN && cell < MEMORY;
    const S *const from = source < WIDTH ? head_weight + int64(source) * BOTH : weight + int64(source - WIDTH) * BOTH;
    to_memory.weight[0][k] = real ? number(from[HIDDEN + cell]) : 0.0f;
  }
  EACH(MEMORY) {
    const int64 row = at.first + i % ROWS;
    memory[i] = i % ROWS < at.rows ? dm[row * MEMORY + i / ROWS] : 0.0f;
  }
  EACH(NUMBERS) dz[i] = 0;
  EACH(WIDTH) z[i] = 0;
  float now[PAIRS];
  UNROLL for (int pair = 0; pair < PAIRS; pair++)
    now[pair] = at.inside(0, pair) ? dh[int64(at.first + at.row(0, pair)) * HIDDEN + at.unit] : 0.0f;
  float *const hidden = x + int64(at.group) * BOTH * ROWS, *const exchanged = hidden + HIDDEN * ROWS;
  unsigned *const counter = counters + at.group;
  __syncthreads();
  for (int64 step = 0; step < steps; step++) {
    const int64 t = reverse ? step : steps - 1 - step, start = t * batch + at.first;
    bool on[PAIRS];
    UNROLL for (int pair = 0; pair < PAIRS; pair++) {
      on[pair] = false;
      if (!at.inside(0, pair)) continue;
      const int64 place = (start + at.row(0, pair)) * HIDDEN + at.unit;
      on[pair] = number(out[place]) > 0;
      if (dout) now[pair] += number(dout[place]);
    }
    for (int i = threadIdx.x; i < at.rows * WIDTH; i += THREADS) z[i % WIDTH * ROWS + i / WIDTH] = heads[start * WIDTH + i];
    __syncthreads();
    pull(z, memory, dz, norms, w, dw, shares);
    from_heads.run_near(dz, sums);
    __syncthreads();
    UNROLL for (int pair = 0; pair < PAIRS; pair++) {
      if (!at.inside(0, pair)) continue;
      const float all = now[pair] + FromHeads::total(sums, at.u, at.row_of_pass(pair));
      now[pair] = on[pair] ? number(stored<S>(all)) : 0.0f;
      hidden[at.unit * ROWS + at.row_of_pass(pair)] = now[pair];
    }
    arrive(counter);
    UNROLL for (int pair = 0; pair < PAIRS; pair++)
      if (at.inside(0, pair)) d[(start + at.row(0, pair)) * (HIDDEN + WIDTH) + at.unit] = stored<S>(now[pair]);
    for (int i = threadIdx.x + at.part * THREADS; i < at.rows * WIDTH; i += PARTS * THREADS)
      d[(start + i / WIDTH) * (HIDDEN + WIDTH) + HIDDEN + i % WIDTH] = stored<S>(dz[i % WIDTH * ROWS + i / WIDTH]);
    wait(counter, (2 * step + 1) * PARTS);
    receive(dz + WIDTH * ROWS, hidden, HIDDEN);
    from_hidden.run_near(dz + WIDTH * ROWS, sums);
    to_memory.run_near(dz, other_sums);
    __syncthreads();
    UNROLL for (int pair = 0; pair < PAIRS; pair++)
      if (at.inside(0, pair)) now[pair] = FromHidden::total(sums, at.u, at.row_of_pass(pair));
    UNROLL for (int pair = 0; pair < M_PAIRS; pair++) {
      const int row = threadIdx.x / M_UNITS + pair * (THREADS / M_UNITS);
      if (cell < MEMORY && row < at.rows)
        exchanged[cell * ROWS + row] = memory[cell * ROWS + row] + ToMemory::total(other_sums, column, row);
    }
    arrive(counter);
    wait(counter, (2 * step + 2) * PARTS);
    receive(memory, exchanged, MEMORY);
  }
  UNROLL for (int pair = 0; pair < PAIRS; pair++)
    if (at.inside(0, pair)) dh[int64(at.first + at.row(0, pair)) * HIDDEN + at.unit] = now[pair];
  for (int i = threadIdx.x + at.part * THREADS; i < at.rows * MEMORY; i += PARTS * THREADS)
    dm[int64(at.first) * MEMORY + i] = memory[i % MEMORY * ROWS + i / MEMORY];
}
#endif
