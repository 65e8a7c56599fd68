// A persistent kernel walks along time, around the emitted function forward_unit or backward_unit; see grid.cuh.
//
// Blocks of a group exchange their part of the hidden state (forwards), or of the gradients of the columns (backwards),
// and wait for each other once a step. A thread keeps the state of its (row, unit) pairs in registers. Rows that do not
// take part in a step keep their state (forwards) or its gradient (backwards).
//
// Defined before, beside what grid.cuh needs: BLOCKS (of columns), PASSES, STATES, EXTRAS, SAVED and OWN (blocks), and
// FORWARD or BACKWARD.

const int COLUMNS = BLOCKS * HIDDEN;

#define EVERY_PAIR                              \
  UNROLL for (int pass = 0; pass < PASSES; pass++) \
    UNROLL for (int pair = 0; pair < PAIRS; pair++)

// Where blocks of a group meet: halves of the exchange in turns, or for a single block one place in its shared memory.
template <class Recurrent>
struct Meeting {
  static const int PASS = Recurrent::DEPTHS * ROWS;
  float *mine, *room;
  const float *sums;
  int64 half;
  unsigned *counter;

  INLINE Meeting(float *x, unsigned *counters, int group) {
    mine = PARTS > 1 ? x + int64(group) * PASSES * PASS : shared;
    half = PARTS > 1 ? int64(gridDim.x / PARTS) * PASSES * PASS : 0;
    room = PARTS > 1 ? shared : shared + PASSES * PASS;
    sums = PARTS > 1 ? room + WARPS * Recurrent::STAGE : room;
    counter = counters + group;
    if (PARTS == 1)
      for (int i = threadIdx.x; i < PASSES * PASS; i += THREADS) mine[i] = 0;
    __syncthreads();
  }
  INLINE void run(const Recurrent &product, int64 turn, int pass) const {
    if (PARTS > 1)
      product.run(mine + (turn & 1) * half + pass * PASS, room);
    else
      product.run_near(mine + pass * PASS, room);
    __syncthreads();
  }
  INLINE float sum(int column, int row) const { return Recurrent::total(sums, column, row); }
  INLINE float *place(int64 turn, int pass, int number, int row) const {
    return mine + (turn & 1) * half + pass * PASS + number * ROWS + row;
  }
  INLINE void done() const {  // with what this block gives to the others
    if (PARTS > 1)
      arrive(counter);
    else
      __syncthreads();
  }
  INLINE void others(unsigned times) const {  // have been done so often
    if (PARTS > 1) wait(counter, times * PARTS);
  }
};

#ifdef FORWARD
// Shapes are those of one model, but of x: (2, groups of all models, PASSES, depth, ROWS), the exchange, zeros, and of
// counters: one per group of all models, 0; both not used with one part; starts: see Steps; state: (STATES, batch, HIDDEN), initial, then final; history: (all rows, STATES - 1, HIDDEN), of all entries
// but the first, which is `out`; it and saved may be null.
KERNEL void forward(const S *gx, const S *weight, const float *extra, float *state, S *out, float *history, float *saved,
                    float *x, unsigned *counters, const int64 *starts, int64 steps, int64 batch, int64 rows_each,
                    int64 reverse) {
  const Place at(batch, rows_each);
  const Steps walk = {starts, steps, batch};
  const int64 first = at.model * walk.start(steps) + at.first;  // row among those of all models, before the first step
  weight += int64(at.model) * COLUMNS * HIDDEN, extra += at.model * EXTRAS * HIDDEN;
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
    now[pass][pair][k] = at.inside(pass, pair) ? state[at.state(k, batch, row)] : 0.0f;
  }
  const Meeting<Recurrent> meeting(x, counters, at.group);
  EVERY_PAIR if (at.inside(pass, pair)) *meeting.place(0, pass, at.unit, at.row_of_pass(pair)) = now[pass][pair][0];
  meeting.done();
  for (int64 step = 0; step < steps; step++) {
    const int64 t = reverse ? steps - 1 - step : step, start = walk.start(t) + first;
    const int alive = walk.rows(t) - at.first;
    EVERY_PAIR UNROLL for (int b = 0; b < BLOCKS; b++) {  // does not depend on the other blocks: before the wait
      const int r = at.row(pass, pair);
      const bool real = at.inside(pass, pair) && among(r, alive);
      in[pass][pair][b] = real ? number(gx[(start + r) * COLUMNS + b * HIDDEN + at.unit]) : 0.0f;
    }
    meeting.others(step + 1);
    float fresh[PASSES][PAIRS][STATES], kept[PASSES][PAIRS][SAVED + 1];
    UNROLL for (int pass = 0; pass < PASSES; pass++) {
      meeting.run(product, step, pass);
      UNROLL for (int pair = 0; pair < PAIRS; pair++) {
        if (!at.inside(pass, pair)) continue;
        if (among(at.row(pass, pair), alive)) {
          float gh[BLOCKS];
          UNROLL for (int b = 0; b < BLOCKS; b++) gh[b] = meeting.sum(b * UNITS + at.u, at.row_of_pass(pair));
          forward_unit(in[pass][pair], gh, now[pass][pair], own, fresh[pass][pair], kept[pass][pair]);
          fresh[pass][pair][0] = number(stored<S>(fresh[pass][pair][0]));
        } else {
          UNROLL for (int k = 0; k < STATES; k++) fresh[pass][pair][k] = now[pass][pair][k];
        }
        *meeting.place(step + 1, pass, at.unit, at.row_of_pass(pair)) = fresh[pass][pair][0];
      }
      if (PASSES > 1) __syncthreads();
    }
    meeting.done();
    EVERY_PAIR {
      if (!at.inside(pass, pair) || !among(at.row(pass, pair), alive)) continue;
      const int64 row = start + at.row(pass, pair);
      out[row * HIDDEN + at.unit] = stored<S>(fresh[pass][pair][0]);
      UNROLL for (int k = 0; k < STATES; k++) now[pass][pair][k] = fresh[pass][pair][k];
      if (saved) {
        UNROLL for (int k = 1; k < STATES; k++)
          history[(row * (STATES - 1) + k - 1) * HIDDEN + at.unit] = fresh[pass][pair][k];
        UNROLL for (int k = 0; k < SAVED; k++) saved[(row * SAVED + k) * HIDDEN + at.unit] = kept[pass][pair][k];
      }
    }
  }
  EVERY_PAIR UNROLL for (int k = 0; k < STATES; k++) {
    const int64 row = at.first + at.row(pass, pair);
    if (at.inside(pass, pair)) state[at.state(k, batch, row)] = now[pass][pair][k];
  }
}
#endif

#ifdef BACKWARD
// grad: (STATES, batch, HIDDEN), gradients of the final state, then of the initial one; x: as above, all zeros; dout may
// be null; dextra: (EXTRAS, groups * STEP, HIDDEN) with the STEP of the pairs; shapes as above.
KERNEL void backward(const S *weight, const float *extra, const float *initial, const S *out, const float *history,
                     const float *saved, const S *dout, float *grad, S *dgx, S *dgh, float *dextra, float *x,
                     unsigned *counters, const int64 *starts, int64 steps, int64 batch, int64 rows_each, int64 reverse) {
  const Place at(batch, rows_each);
  const Steps walk = {starts, steps, batch};
  const int64 first = at.model * walk.start(steps) + at.first;
  weight += int64(at.model) * COLUMNS * HIDDEN, extra += at.model * EXTRAS * HIDDEN;
  const int SUB = SUB_OF(UNITS), COLS = COLS_OF(UNITS);
  const int ALL = PARTS * BLOCKS * UNITS, DEPTH = (ALL + WARPS * SUB - 1) / (WARPS * SUB);
  typedef Product<DEPTH, COLS, SUB> Recurrent;
  Recurrent product;
  UNROLL for (int i = 0; i < COLS; i++)
    UNROLL for (int k = 0; k < DEPTH; k++) {
      const int source = Recurrent::slice() * DEPTH + k, part = source / (BLOCKS * UNITS);
      const int block = source / UNITS % BLOCKS, unit = part * UNITS + source % UNITS;
      const int own = at.part * UNITS + Recurrent::column(i);
      const bool real = source < ALL && unit < HIDDEN && Recurrent::column(i) < UNITS && own < HIDDEN;
      product.weight[i][k] = real ? number(weight[int64(block * HIDDEN + unit) * HIDDEN + own]) : 0.0f;
    }
  float own[EXTRAS + 1], sums[EXTRAS + 1], now[PASSES][PAIRS][STATES];
  UNROLL for (int e = 0; e < EXTRAS; e++) {
    own[e] = at.unit < HIDDEN ? extra[e * HIDDEN + at.unit] : 0.0f;
    sums[e] = 0;
  }
  EVERY_PAIR UNROLL for (int k = 0; k < STATES; k++) {
    const int64 row = at.first + at.row(pass, pair);
    now[pass][pair][k] = at.inside(pass, pair) ? grad[at.state(k, batch, row)] : 0.0f;
  }
  const Meeting<Recurrent> meeting(x, counters, at.group);
  for (int64 step = 0; step <= steps; step++) {  // the last one only adds what flows into the initial state
    const int64 t = reverse ? step : steps - 1 - step, before = reverse ? t + 1 : t - 1;
    const int alive = walk.rows(t) - at.first, known = walk.rows(before) - at.first;
    const int64 start = alive > 0 ? walk.start(t) + first : 0, earlier = known > 0 ? walk.start(before) + first : 0;
    float old[PASSES][PAIRS][STATES], fresh[PASSES][PAIRS][STATES], kept[PASSES][PAIRS][SAVED + 1];
    EVERY_PAIR {
      const int r = at.row(pass, pair);
      if (!at.inside(pass, pair) || !among(r, alive)) continue;
      const int64 row = start + r, place = row * HIDDEN + at.unit;
      if (dout) now[pass][pair][0] += number(dout[place]);
      UNROLL for (int k = 0; k < SAVED; k++) kept[pass][pair][k] = saved[(row * SAVED + k) * HIDDEN + at.unit];
      UNROLL for (int k = 0; k < STATES; k++) {
        const int64 last = earlier + r;
        fresh[pass][pair][k] = k ? history[(row * (STATES - 1) + k - 1) * HIDDEN + at.unit] : number(out[place]);
        old[pass][pair][k] = !among(r, known) ? initial[at.state(k, batch, at.first + r)]
                             : k              ? history[(last * (STATES - 1) + k - 1) * HIDDEN + at.unit]
                                              : number(out[last * HIDDEN + at.unit]);
      }
    }
    meeting.others(step);
    float columns[PASSES][PAIRS][BLOCKS], others[PASSES][PAIRS][OWN + 1];
    UNROLL for (int pass = 0; pass < PASSES; pass++) {
      meeting.run(product, step, pass);
      UNROLL for (int pair = 0; pair < PAIRS; pair++) {
        if (!at.inside(pass, pair)) continue;
        now[pass][pair][0] += meeting.sum(at.u, at.row_of_pass(pair));
        if (step == steps) continue;
        float next[STATES], gathered[BLOCKS];
        if (among(at.row(pass, pair), alive)) {
          backward_unit(kept[pass][pair], old[pass][pair], fresh[pass][pair], own, now[pass][pair],
                        columns[pass][pair], others[pass][pair], next, sums);
          gather_columns(columns[pass][pair], others[pass][pair], gathered);
          UNROLL for (int k = 0; k < STATES; k++) now[pass][pair][k] = next[k];
        } else {
          UNROLL for (int b = 0; b < BLOCKS; b++) gathered[b] = 0;
        }
        UNROLL for (int b = 0; b < BLOCKS; b++)
          *meeting.place(step + 1, pass, (at.part * BLOCKS + b) * UNITS + at.u, at.row_of_pass(pair)) =
              number(stored<S>(gathered[b]));
      }
      if (PASSES > 1) __syncthreads();
    }
    if (step == steps) break;
    meeting.done();
    EVERY_PAIR {
      if (!at.inside(pass, pair) || !among(at.row(pass, pair), alive)) continue;
      const int64 row = start + at.row(pass, pair);
      UNROLL for (int b = 0; b < BLOCKS; b++)
        dgx[row * COLUMNS + b * HIDDEN + at.unit] = stored<S>(columns[pass][pair][b]);
      UNROLL for (int b = 0; b < OWN; b++) dgh[(row * OWN + b) * HIDDEN + at.unit] = stored<S>(others[pass][pair][b]);
    }
  }
  EVERY_PAIR UNROLL for (int k = 0; k < STATES; k++) {
    const int64 row = at.first + at.row(pass, pair);
    if (at.inside(pass, pair)) grad[at.state(k, batch, row)] = now[pass][pair][k];
  }
  const int STEP = Pairs<UNITS>::STEP, slot = threadIdx.x / UNITS;
  UNROLL for (int e = 0; e < EXTRAS; e++)
    if (at.unit < HIDDEN && slot < STEP)
      dextra[((int64(at.model * EXTRAS + e) * at.groups + at.own) * STEP + slot) * HIDDEN + at.unit] = sums[e];
}
#endif
