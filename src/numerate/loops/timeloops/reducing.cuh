// A persistent kernel that walks along time around emitted lines which look along the units of a row; see grid.cuh for how
// blocks share the work, and rowunits.cuh for what the lines call.
//
// A step has two halves. First each block of a group makes its part of the product with the weight, for all rows of the
// group. Then each block computes whole rows: of a group's rows, block `part` has the rows part, part + PARTS, ... in all
// steps. Blocks wait for each other after each half; the only block of a group waits for nobody. What the emitted lines read
// and write lies in shared memory. Rows that do not take part in a step keep their state (forwards) or its gradient.
//
// Defined before, beside what grid.cuh needs: COLUMNS, CUT (columns of a part), EXTRAS, SAVED and OWN (numbers of a row),
// SCRATCH, EACH (rows of a block, at most), FORWARD or BACKWARD. Shapes are those of one model; arrays have the models one
// after the other.

#define QUADS(count) (((count) + 3) / 4 * 4)

// What the blocks of a group exchange: what the product reads, (depths, ROWS), and what it makes, (ROWS, stride).
template <class Recurrent, int STRIDE>
struct Exchange {
  static const int INPUT = Recurrent::DEPTHS * ROWS, SIZE = INPUT + ROWS * STRIDE;
  float *input, *output, *room, *rest;  // the rest of shared memory
  unsigned *counter;

  INLINE Exchange(float *x, unsigned *counters, int group) {
    input = PARTS > 1 ? x + int64(group) * SIZE : shared;
    output = input + INPUT;
    room = PARTS > 1 ? shared : shared + SIZE;
    rest = room + (PARTS > 1 ? Recurrent::SHARED : Recurrent::SLICES * Recurrent::SIZE * PADDED);
    counter = counters + group;
    if (PARTS == 1)
      for (int i = threadIdx.x; i < SIZE; i += THREADS) input[i] = 0;
    __syncthreads();
  }
  INLINE float *place(int number, int row) const { return input + number * ROWS + row; }
  INLINE void multiply(const Recurrent &product, int part, int wide, int numbers, int rows) const {
    if (PARTS > 1)
      product.run(input, room);
    else
      product.run_near(input, room);
    __syncthreads();
    for (int i = threadIdx.x; i < wide * rows; i += THREADS) {
      const int column = i % wide, row = i / wide, number = part * wide + column;
      if (number >= numbers) continue;
      output[row * STRIDE + number] =
          PARTS > 1 ? Recurrent::sum(room, column, row) : Recurrent::total(room, column, row);
    }
  }
  INLINE void done() const {
    if (PARTS > 1)
      arrive(counter);
    else
      __syncthreads();
  }
  INLINE void others(int64 times) const {
    if (PARTS > 1) wait(counter, times * PARTS);
  }
  // What the product made for a row, for this block's threads: in `to`, or where it lies.
  INLINE const float *row(int row, float *to, int count) const {
    if (PARTS == 1) return output + row * STRIDE;
    for (int i = threadIdx.x * 4; i < count; i += THREADS * 4) copy_quad(to + i, output + row * STRIDE + i);
    end_of_copies();
    wait_for_copies<0>();
    __syncthreads();
    return to;
  }
};

#define EACH_OWN_ROW for (int r = at.part, own = 0; r < at.rows; r += PARTS, own++)

#ifdef FORWARD
const int DEPTH = (HIDDEN + WARPS - 1) / WARPS, COLS = (CUT + 31) / 32;
typedef Product<DEPTH, COLS, 1> Recurrent;

// x: (groups of all models, what Exchange says), zeros; counters: one per group, 0; both not used with one part; starts: see
// Steps; state: (STATES, batch, HIDDEN), initial, then final; history: (all rows, STATES - 1, HIDDEN), of all entries but
// the first, which is `out`; it and saved may be null.
KERNEL void forward(const S *all_gx, const S *weight, const float *all_extra, float *all_state, S *out, float *history,
                    float *all_saved, float *x, unsigned *counters, const int64 *starts, int64 steps, int64 batch,
                    int64 rows_each, int64 reverse) {
  const Place at(batch, rows_each);
  const Steps walk = {starts, steps, batch};
  const int64 first = at.model * walk.start(steps) + at.first;
  weight += int64(at.model) * COLUMNS * HIDDEN;
  Recurrent product;
  UNROLL for (int i = 0; i < COLS; i++)
    UNROLL for (int k = 0; k < DEPTH; k++) {
      const int source = Recurrent::slice() * DEPTH + k, column = Recurrent::column(i), to = at.part * CUT + column;
      const bool real = column < CUT && to < COLUMNS && source < HIDDEN;
      product.weight[i][k] = real ? number(weight[int64(to) * HIDDEN + source]) : 0.0f;
    }
  const Exchange<Recurrent, QUADS(COLUMNS)> exchange(x, counters, at.group);
  float *const gh_room = exchange.rest, *const gx = gh_room + (PARTS > 1 ? QUADS(COLUMNS) : 0);
  float *const saved = gx + COLUMNS, *const fresh = saved + SAVED, *const extra = fresh + STATES * HIDDEN;
  float *const states = extra + EXTRAS * HIDDEN, *const scratch = states + EACH * STATES * HIDDEN;
#define JOINED (scratch + SCRATCH)
  for (int i = threadIdx.x; i < EXTRAS * HIDDEN; i += THREADS) extra[i] = all_extra[at.model * EXTRAS * HIDDEN + i];
  EACH_OWN_ROW EACH_UNIT {
    for (int k = 0; k < STATES; k++)
      states[(own * STATES + k) * HIDDEN + j] =
          all_state[((int64(at.model) * STATES + k) * batch + at.first + r) * HIDDEN + j];
    *exchange.place(j, r) = states[own * STATES * HIDDEN + j];
  }
  exchange.done();
  for (int64 step = 0; step < steps; step++) {
    const int64 t = reverse ? steps - 1 - step : step, start = walk.start(t) + first;
    const int alive = walk.rows(t) - at.first;
    const auto record = [&](int r) {  // what no other block waits for
      EACH_UNIT {
        out[(start + r) * HIDDEN + j] = stored<S>(fresh[j]);
        if (all_saved)
          for (int k = 1; k < STATES; k++)
            history[((start + r) * (STATES - 1) + k - 1) * HIDDEN + j] = fresh[k * HIDDEN + j];
      }
      if (all_saved)
        for (int i = threadIdx.x; i < SAVED; i += THREADS) all_saved[(start + r) * SAVED + i] = saved[i];
    };
    exchange.others(2 * step + 1);
    exchange.multiply(product, at.part, CUT, COLUMNS, at.rows);
    exchange.done();
    if (EACH == 1 && at.part < at.rows && among(at.part, alive))
      for (int i = threadIdx.x; i < COLUMNS; i += THREADS) gx[i] = number(all_gx[(start + at.part) * COLUMNS + i]);
    exchange.others(2 * step + 2);
    EACH_OWN_ROW {
      if (!among(r, alive)) continue;
      if (EACH > 1)
        for (int i = threadIdx.x; i < COLUMNS; i += THREADS) gx[i] = number(all_gx[(start + r) * COLUMNS + i]);
      const float *const gh = exchange.row(r, gh_room, QUADS(COLUMNS));
      float *const state = states + own * STATES * HIDDEN;
      __syncthreads();
      BODY
      EACH_UNIT {
        *exchange.place(j, r) = state[j] = fresh[j] = number(stored<S>(fresh[j]));
        for (int k = 1; k < STATES; k++) state[k * HIDDEN + j] = fresh[k * HIDDEN + j];
      }
      if (EACH > 1) {
        record(r);
        __syncthreads();
      }
    }
    exchange.done();
    if (EACH == 1 && at.part < at.rows && among(at.part, alive)) record(at.part);
  }
  EACH_OWN_ROW EACH_UNIT for (int k = 0; k < STATES; k++)
    all_state[((int64(at.model) * STATES + k) * batch + at.first + r) * HIDDEN + j] = states[(own * STATES + k) * HIDDEN + j];
}
#endif

#ifdef BACKWARD
const int SUB = SUB_OF(UNITS), COLS = COLS_OF(UNITS), DEPTH = (COLUMNS + WARPS * SUB - 1) / (WARPS * SUB);
typedef Product<DEPTH, COLS, SUB> Recurrent;

// grad: (STATES, batch, HIDDEN), gradients of the final state, then of the initial one; dout may be null; dextra: (EXTRAS,
// groups * PARTS, HIDDEN); x, counters: as above.
KERNEL void backward(const S *weight, const float *all_extra, const float *initial, const S *out, const float *history,
                     const float *all_saved, const S *dout, float *grad, S *all_dgx, S *all_dgh, float *all_dextra, float *x,
                     unsigned *counters, const int64 *starts, int64 steps, int64 batch, int64 rows_each, int64 reverse) {
  const Place at(batch, rows_each);
  const Steps walk = {starts, steps, batch};
  const int64 first = at.model * walk.start(steps) + at.first;
  weight += int64(at.model) * COLUMNS * HIDDEN;
  Recurrent product;
  UNROLL for (int i = 0; i < COLS; i++)
    UNROLL for (int k = 0; k < DEPTH; k++) {
      const int source = Recurrent::slice() * DEPTH + k, column = Recurrent::column(i), to = at.part * UNITS + column;
      const bool real = source < COLUMNS && column < UNITS && to < HIDDEN;
      product.weight[i][k] = real ? number(weight[int64(source) * HIDDEN + to]) : 0.0f;
    }
  const Exchange<Recurrent, QUADS(HIDDEN)> exchange(x, counters, at.group);
  float *const pulled_room = exchange.rest, *const dgx = pulled_room + (PARTS > 1 ? QUADS(HIDDEN) : 0);
  float *const dgh = dgx + COLUMNS, *const saved = dgh + OWN, *const old = saved + SAVED;
  float *const fresh = old + STATES * HIDDEN, *const above = fresh + STATES * HIDDEN;
  float *const extra = above + STATES * HIDDEN, *const dextra = extra + EXTRAS * HIDDEN;
  float *const states = dextra + EXTRAS * HIDDEN, *const scratch = states + EACH * STATES * HIDDEN;
#define JOINED (scratch + SCRATCH)
  for (int i = threadIdx.x; i < EXTRAS * HIDDEN; i += THREADS) {
    extra[i] = all_extra[at.model * EXTRAS * HIDDEN + i];
    dextra[i] = 0;
  }
  EACH_OWN_ROW EACH_UNIT for (int k = 0; k < STATES; k++)
    states[(own * STATES + k) * HIDDEN + j] = grad[((int64(at.model) * STATES + k) * batch + at.first + r) * HIDDEN + j];
  __syncthreads();
  for (int64 step = 0; step <= steps; step++) {  // the last one only adds what flows into the initial state
    const int64 t = reverse ? step : steps - 1 - step, before = reverse ? t + 1 : t - 1;
    const int alive = walk.rows(t) - at.first, known = walk.rows(before) - at.first;
    const int64 start = alive > 0 ? walk.start(t) + first : 0, earlier = known > 0 ? walk.start(before) + first : 0;
    const auto recall = [&](int r) {  // what does not depend on other blocks
      for (int i = threadIdx.x; i < SAVED; i += THREADS) saved[i] = all_saved[(start + r) * SAVED + i];
      EACH_UNIT {
        above[j] = dout ? number(dout[(start + r) * HIDDEN + j]) : 0.0f;
        for (int k = 0; k < STATES; k++) {
          const int64 last = earlier + r;
          fresh[k * HIDDEN + j] =
              k ? history[((start + r) * (STATES - 1) + k - 1) * HIDDEN + j] : number(out[(start + r) * HIDDEN + j]);
          old[k * HIDDEN + j] =
              !among(r, known) ? initial[((int64(at.model) * STATES + k) * batch + at.first + r) * HIDDEN + j]
              : k              ? history[(last * (STATES - 1) + k - 1) * HIDDEN + j]
                               : number(out[last * HIDDEN + j]);
        }
      }
    };
    const auto record = [&](int r) {
      for (int i = threadIdx.x; i < COLUMNS; i += THREADS) all_dgx[(start + r) * COLUMNS + i] = stored<S>(dgx[i]);
      for (int i = threadIdx.x; i < OWN; i += THREADS) all_dgh[(start + r) * OWN + i] = stored<S>(dgh[i]);
    };
    exchange.others(2 * step);
    exchange.multiply(product, at.part, UNITS, HIDDEN, at.rows);
    exchange.done();
    if (EACH == 1 && step < steps && at.part < at.rows && among(at.part, alive)) recall(at.part);
    exchange.others(2 * step + 1);
    EACH_OWN_ROW {
      float *const state = states + own * STATES * HIDDEN;
      const float *const pulled = exchange.row(r, pulled_room, QUADS(HIDDEN));
      EACH_UNIT state[j] += pulled[j];
      if (step == steps) {
        __syncthreads();
        continue;
      }
      if (!among(r, alive)) {
        for (int i = threadIdx.x; i < COLUMNS; i += THREADS) *exchange.place(i, r) = 0;
        __syncthreads();
        continue;
      }
      if (EACH > 1) recall(r);
      EACH_UNIT {
        above[j] += state[j];
        for (int k = 1; k < STATES; k++) above[k * HIDDEN + j] = state[k * HIDDEN + j];
      }
      __syncthreads();
      BODY
      for (int i = threadIdx.x; i < COLUMNS; i += THREADS)
        *exchange.place(i, r) = number(stored<S>(column_gradient(dgx, dgh, i)));
      if (EACH > 1) {
        record(r);
        __syncthreads();
      }
    }
    if (step == steps) break;
    exchange.done();
    if (EACH == 1 && at.part < at.rows && among(at.part, alive)) record(at.part);
  }
  EACH_OWN_ROW EACH_UNIT for (int k = 0; k < STATES; k++)
    grad[((int64(at.model) * STATES + k) * batch + at.first + r) * HIDDEN + j] = states[(own * STATES + k) * HIDDEN + j];
  for (int i = threadIdx.x; i < EXTRAS * HIDDEN; i += THREADS) {
    const int64 e = int64(at.model) * EXTRAS + i / HIDDEN, group = at.own * PARTS + at.part;
    all_dextra[(e * at.groups * PARTS + group) * HIDDEN + i % HIDDEN] = dextra[i];
  }
}
#endif
