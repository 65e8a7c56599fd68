// A persistent kernel walks along time: each block keeps its part of the recurrent weight in registers for all steps.
//
// The batch is cut into groups of rows, the units of the hidden state into parts; block (group, part) computes the units
// of its part for the rows of its group. Blocks of a group exchange what they computed through memory (`Exchange`) and
// wait for each other once a step; groups never meet. A thread keeps the state of its (row, unit) pairs in registers.
// Products are in single precision whatever the type S of the stored numbers.
//
// Defined before: S and R, the sizes HIDDEN, BLOCKS (of columns), UNITS (of a part; divides 32), PARTS, ROWS (of a pass,
// a multiple of 4), PASSES, STATES, EXTRAS, SAVED and OWN (blocks), FORWARD or BACKWARD, and the emitted function
// forward_unit or backward_unit. Includes nothing, since the compiler at run time brings no headers.

const int THREADS = 256, WARPS = THREADS / 32;
const int COLUMNS = BLOCKS * HIDDEN;
const int PAIRS = (ROWS * UNITS + THREADS - 1) / THREADS;  // (row, unit) pairs of a thread in one pass
const int STEP = THREADS / UNITS;                          // rows from one of a thread's pairs to the next

INLINE int divided(int a, int b) { return (a + b - 1) / b; }
const int PADDED = (ROWS % 8 == 0) ? ROWS + 4 : ROWS;  // keeps neighbouring columns in different banks

// ---------------------------------------------------------------- one thread for all, and all blocks of a group

// Arrive: what this block's threads wrote before is visible to those that waited.
INLINE void arrive(unsigned *counter) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(counter, 1u);
  }
}

INLINE void wait(unsigned *counter, unsigned count) {
  if (threadIdx.x == 0) {
    long long patience = 1ll << 26;
    while (latest(counter) < count)
      if (--patience == 0) stop();
    __threadfence();
  }
  __syncthreads();
}

// ---------------------------------------------------------------- products

// Sums over k of weight[k][column] x[k][row] for the rows of a pass. The k are cut into WARPS * SUB slices of DEPTH; a
// lane has COLS columns in one slice: its columns are lane % (32 / SUB) + i * 32, its slice is warp * SUB + lane / (32 / SUB).
template <int DEPTH, int COLS, int SUB>
struct Product {
  static const int LANES = 32 / SUB, CHUNK = DEPTH < 32 ? DEPTH : 32, SIZE = COLS * LANES, SLICES = WARPS * SUB;
  static const int STAGES = DEPTH > CHUNK ? 2 : 1, STAGE = STAGES * SUB * CHUNK * ROWS;  // floats of one warp's stages
  static const int SHARED = WARPS * STAGE + SLICES * SIZE * PADDED;  // floats: stages, then sums
  static const int DEPTHS = SLICES * DEPTH;                   // k in all, filled up with zeros
  float weight[COLS][DEPTH];

  INLINE static int column(int i) { return threadIdx.x % LANES + i * 32; }
  INLINE static int slice() { return threadIdx.x / 32 * SUB + threadIdx.x % 32 / LANES; }

  // The numbers of a chunk of this warp's slices.
  INLINE static void fetch(const float *x, float *stage, int start) {
    const int count = start + CHUNK <= DEPTH ? CHUNK : DEPTH - start;
    UNROLL for (int s = 0; s < SUB; s++) {
      const float *const from = x + ((threadIdx.x / 32 * SUB + s) * DEPTH + start) * ROWS;
      float *const to = stage + (start / CHUNK % 2 * SUB + s) * CHUNK * ROWS;
      for (int j = threadIdx.x % 32 * 4; j < count * ROWS; j += 128) copy_quad(to + j, from + j);
    }
    end_of_copies();
  }

  // x: (DEPTHS, ROWS); afterwards, and a wait for all threads, `sum` gives the results.
  INLINE void run(const float *x, float *room) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, sub = lane / LANES;
    float *const stage = room + warp * STAGE;
    float sums[COLS][ROWS];
    UNROLL for (int i = 0; i < COLS; i++) UNROLL for (int r = 0; r < ROWS; r++) sums[i][r] = 0;
    fetch(x, stage, 0);
    UNROLL for (int start = 0; start < DEPTH; start += CHUNK) {
      if (start + CHUNK < DEPTH) {  // the next chunk comes in while this one is used
        fetch(x, stage, start + CHUNK);
        wait_for_copies<1>();
      } else {
        wait_for_copies<0>();
      }
      __syncwarp();
      const float *const own = stage + (start / CHUNK % 2 * SUB + sub) * CHUNK * ROWS;
      UNROLL for (int k = 0; k < CHUNK; k++)
        if (start + k < DEPTH)
          UNROLL for (int r = 0; r < ROWS; r += 4) {
            const Quad q = *(const Quad *)(own + k * ROWS + r);
            UNROLL for (int i = 0; i < COLS; i++) {
              sums[i][r] = fmaf(weight[i][start + k], q.x, sums[i][r]);
              sums[i][r + 1] = fmaf(weight[i][start + k], q.y, sums[i][r + 1]);
              sums[i][r + 2] = fmaf(weight[i][start + k], q.z, sums[i][r + 2]);
              sums[i][r + 3] = fmaf(weight[i][start + k], q.w, sums[i][r + 3]);
            }
          }
      __syncwarp();
    }
    float *const out = room + WARPS * STAGE + slice() * SIZE * PADDED;
    UNROLL for (int i = 0; i < COLS; i++)
      UNROLL for (int r = 0; r < ROWS; r += 4) {
        const Quad q = {sums[i][r], sums[i][r + 1], sums[i][r + 2], sums[i][r + 3]};
        *(Quad *)(out + column(i) * PADDED + r) = q;
      }
  }

  INLINE static float sum(const float *room, int column, int row) {
    const float *at = room + WARPS * STAGE + column * PADDED + row;
    float total = 0;
    UNROLL for (int s = 0; s < SLICES; s++) total += at[s * SIZE * PADDED];
    return total;
  }
};

// Where block, row and unit of this thread's pair lie.
struct Place {
  int unit, rows, first;  // unit of the whole; rows of this group and the first of them
  int group, part, u;

  INLINE Place(int batch, int rows_each) {
    group = blockIdx.x / PARTS, part = blockIdx.x % PARTS;
    u = threadIdx.x % UNITS, unit = part * UNITS + u;
    first = group * rows_each;
    rows = batch - first < rows_each ? batch - first : rows_each;
  }
  INLINE int row(int pass, int pair) const { return pass * ROWS + threadIdx.x / UNITS + pair * STEP; }
  INLINE int row_of_pass(int pair) const { return threadIdx.x / UNITS + pair * STEP; }
  INLINE bool inside(int pass, int pair) const {
    return unit < HIDDEN && row_of_pass(pair) < ROWS && row(pass, pair) < rows;
  }
};

#define EVERY_PAIR                              \
  UNROLL for (int pass = 0; pass < PASSES; pass++) \
    UNROLL for (int pair = 0; pair < PAIRS; pair++)

#ifdef FORWARD
// x: (2, groups, PASSES, depth, ROWS), the exchange, its first half holds the initial hidden state; counters: one per
// group, 0; state: (STATES, batch, HIDDEN), initial, then final; history: (STATES - 1, steps * batch, HIDDEN), of all
// entries but the first, which is `out`; it and saved may be null.
KERNEL void forward(const S *gx, const S *weight, const float *extra, float *state, S *out, float *history, float *saved,
                    float *x, unsigned *counters, int64 steps, int64 batch, int64 rows_each, int64 reverse) {
  const Place at(batch, rows_each);
  typedef Product<(HIDDEN + WARPS - 1) / WARPS, (BLOCKS * UNITS + 31) / 32, 1> Recurrent;
  Recurrent product;
  UNROLL for (int i = 0; i < (BLOCKS * UNITS + 31) / 32; i++) {
    const int column = Recurrent::column(i), unit = at.part * UNITS + column % UNITS, block = column / UNITS;
    UNROLL for (int k = 0; k < (HIDDEN + WARPS - 1) / WARPS; k++) {
      const int source = Recurrent::slice() * ((HIDDEN + WARPS - 1) / WARPS) + k;
      const bool real = block < BLOCKS && unit < HIDDEN && source < HIDDEN;
      product.weight[i][k] = real ? number(weight[int64(block * HIDDEN + unit) * HIDDEN + source]) : 0.0f;
    }
  }
  float own[EXTRAS + 1], now[PASSES][PAIRS][STATES], in[PASSES][PAIRS][BLOCKS];
  UNROLL for (int e = 0; e < EXTRAS; e++) own[e] = at.unit < HIDDEN ? extra[e * HIDDEN + at.unit] : 0.0f;
  EVERY_PAIR UNROLL for (int k = 0; k < STATES; k++) {
    const int64 row = at.first + at.row(pass, pair);
    now[pass][pair][k] = at.inside(pass, pair) ? state[(k * batch + row) * HIDDEN + at.unit] : 0.0f;
  }
  const int64 groups = gridDim.x / PARTS, pass_size = Recurrent::DEPTHS * ROWS, half = groups * PASSES * pass_size;
  unsigned *const counter = counters + at.group;
  for (int64 step = 0; step < steps; step++) {
    const int64 t = reverse ? steps - 1 - step : step, start = t * batch + at.first;
    EVERY_PAIR UNROLL for (int b = 0; b < BLOCKS; b++) {  // does not depend on the other blocks: before the wait
      const int64 row = start + at.row(pass, pair);
      in[pass][pair][b] = at.inside(pass, pair) ? number(gx[row * COLUMNS + b * HIDDEN + at.unit]) : 0.0f;
    }
    if (step) wait(counter, step * PARTS);
    const float *const from = x + (step & 1) * half + at.group * PASSES * pass_size;
    float *const to = x + (~step & 1) * half + at.group * PASSES * pass_size;
    float fresh[PASSES][PAIRS][STATES], kept[PASSES][PAIRS][SAVED + 1];
    UNROLL for (int pass = 0; pass < PASSES; pass++) {
      product.run(from + pass * pass_size, shared);
      __syncthreads();
      UNROLL for (int pair = 0; pair < PAIRS; pair++) {
        if (!at.inside(pass, pair)) continue;
        float gh[BLOCKS];
        UNROLL for (int b = 0; b < BLOCKS; b++) gh[b] = Recurrent::sum(shared, b * UNITS + at.u, at.row_of_pass(pair));
        forward_unit(in[pass][pair], gh, now[pass][pair], own, fresh[pass][pair], kept[pass][pair]);
        fresh[pass][pair][0] = number(stored<S>(fresh[pass][pair][0]));
        to[pass * pass_size + at.unit * ROWS + at.row_of_pass(pair)] = fresh[pass][pair][0];
      }
      if (PASSES > 1) __syncthreads();
    }
    arrive(counter);
    EVERY_PAIR {
      if (!at.inside(pass, pair)) continue;
      const int64 row = start + at.row(pass, pair);
      out[row * HIDDEN + at.unit] = stored<S>(fresh[pass][pair][0]);
      UNROLL for (int k = 0; k < STATES; k++) now[pass][pair][k] = fresh[pass][pair][k];
      if (saved) {
        UNROLL for (int k = 1; k < STATES; k++)
          history[((k - 1) * steps * batch + row) * HIDDEN + at.unit] = fresh[pass][pair][k];
        UNROLL for (int k = 0; k < SAVED; k++) saved[(row * SAVED + k) * HIDDEN + at.unit] = kept[pass][pair][k];
      }
    }
  }
  EVERY_PAIR UNROLL for (int k = 0; k < STATES; k++) {
    const int64 row = at.first + at.row(pass, pair);
    if (at.inside(pass, pair)) state[(k * batch + row) * HIDDEN + at.unit] = now[pass][pair][k];
  }
}
#endif

#ifdef BACKWARD
// grad: (STATES, batch, HIDDEN), gradients of the final state, then of the initial one; x: as above, all zeros; dout may
// be null; dextra: (EXTRAS, groups * THREADS / UNITS, HIDDEN).
KERNEL void backward(const S *weight, const float *extra, const float *initial, const S *out, const float *history,
                     const float *saved, const S *dout, float *grad, S *dgx, S *dgh, float *dextra, float *x,
                     unsigned *counters, int64 steps, int64 batch, int64 rows_each, int64 reverse) {
  const Place at(batch, rows_each);
  const int SUB = 32 / UNITS, ALL = PARTS * BLOCKS * UNITS, DEPTH = (ALL + WARPS * SUB - 1) / (WARPS * SUB);
  typedef Product<DEPTH, 1, SUB> Recurrent;
  Recurrent product;
  UNROLL for (int k = 0; k < DEPTH; k++) {
    const int source = Recurrent::slice() * DEPTH + k, part = source / (BLOCKS * UNITS);
    const int block = source / UNITS % BLOCKS, unit = part * UNITS + source % UNITS;
    const bool real = source < ALL && unit < HIDDEN && at.unit < HIDDEN;
    product.weight[0][k] = real ? number(weight[int64(block * HIDDEN + unit) * HIDDEN + at.unit]) : 0.0f;
  }
  float own[EXTRAS + 1], sums[EXTRAS + 1], now[PASSES][PAIRS][STATES];
  UNROLL for (int e = 0; e < EXTRAS; e++) {
    own[e] = at.unit < HIDDEN ? extra[e * HIDDEN + at.unit] : 0.0f;
    sums[e] = 0;
  }
  EVERY_PAIR UNROLL for (int k = 0; k < STATES; k++) {
    const int64 row = at.first + at.row(pass, pair);
    now[pass][pair][k] = at.inside(pass, pair) ? grad[(k * batch + row) * HIDDEN + at.unit] : 0.0f;
  }
  const int64 groups = gridDim.x / PARTS, pass_size = Recurrent::DEPTHS * ROWS, half = groups * PASSES * pass_size;
  unsigned *const counter = counters + at.group;
  for (int64 step = 0; step <= steps; step++) {  // the last one only adds what flows into the initial state
    const int64 t = reverse ? step : steps - 1 - step, start = t * batch + at.first;
    const int64 before = reverse ? start + batch : start - batch;
    float old[PASSES][PAIRS][STATES], fresh[PASSES][PAIRS][STATES], kept[PASSES][PAIRS][SAVED + 1];
    if (step < steps) {
      EVERY_PAIR {
        if (!at.inside(pass, pair)) continue;
        const int r = at.row(pass, pair);
        const int64 row = start + r, place = row * HIDDEN + at.unit;
        if (dout) now[pass][pair][0] += number(dout[place]);
        UNROLL for (int k = 0; k < SAVED; k++) kept[pass][pair][k] = saved[(row * SAVED + k) * HIDDEN + at.unit];
        UNROLL for (int k = 0; k < STATES; k++) {
          const float *const past = history + ((k - 1) * steps * batch) * HIDDEN;
          const int64 earlier = (before + r) * HIDDEN + at.unit;
          fresh[pass][pair][k] = k ? past[place] : number(out[place]);
          old[pass][pair][k] = step == steps - 1 ? initial[(k * batch + at.first + r) * HIDDEN + at.unit]
                               : k               ? past[earlier]
                                                 : number(out[earlier]);
        }
      }
    }
    if (step) wait(counter, step * PARTS);
    const float *const from = x + (step & 1) * half + at.group * PASSES * pass_size;
    float *const to = x + (~step & 1) * half + at.group * PASSES * pass_size;
    float columns[PASSES][PAIRS][BLOCKS], others[PASSES][PAIRS][OWN + 1];
    UNROLL for (int pass = 0; pass < PASSES; pass++) {
      product.run(from + pass * pass_size, shared);
      __syncthreads();
      UNROLL for (int pair = 0; pair < PAIRS; pair++) {
        if (!at.inside(pass, pair)) continue;
        now[pass][pair][0] += Recurrent::sum(shared, at.u, at.row_of_pass(pair));
        if (step == steps) continue;
        float next[STATES], all[BLOCKS];
        backward_unit(kept[pass][pair], old[pass][pair], fresh[pass][pair], own, now[pass][pair], columns[pass][pair],
                      others[pass][pair], next, sums);
        gather_columns(columns[pass][pair], others[pass][pair], all);
        UNROLL for (int b = 0; b < BLOCKS; b++)
          to[pass * pass_size + ((at.part * BLOCKS + b) * UNITS + at.u) * ROWS + at.row_of_pass(pair)] =
              number(stored<S>(all[b]));
        UNROLL for (int k = 0; k < STATES; k++) now[pass][pair][k] = next[k];
      }
      if (PASSES > 1) __syncthreads();
    }
    if (step == steps) break;
    arrive(counter);
    EVERY_PAIR {
      if (!at.inside(pass, pair)) continue;
      const int64 row = start + at.row(pass, pair);
      UNROLL for (int b = 0; b < BLOCKS; b++)
        dgx[row * COLUMNS + b * HIDDEN + at.unit] = stored<S>(columns[pass][pair][b]);
      UNROLL for (int b = 0; b < OWN; b++) dgh[(row * OWN + b) * HIDDEN + at.unit] = stored<S>(others[pass][pair][b]);
    }
  }
  EVERY_PAIR UNROLL for (int k = 0; k < STATES; k++) {
    const int64 row = at.first + at.row(pass, pair);
    if (at.inside(pass, pair)) grad[(k * batch + row) * HIDDEN + at.unit] = now[pass][pair][k];
  }
  UNROLL for (int e = 0; e < EXTRAS; e++)
    if (at.unit < HIDDEN)
      dextra[(e * groups * STEP + at.group * STEP + threadIdx.x / UNITS) * HIDDEN + at.unit] = sums[e];
}
#endif
