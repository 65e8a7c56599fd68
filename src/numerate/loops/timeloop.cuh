// A persistent kernel walks along time, around the emitted function forward_unit or backward_unit; see grid.cuh.
//
// Blocks of a group exchange their part of the hidden state (forwards), or of the gradients of the columns (backwards),
// and wait for each other once a step. A thread keeps the state of its (row, unit) pairs in registers.
//
// Defined before, beside what grid.cuh needs: BLOCKS (of columns), PASSES, STATES, EXTRAS, SAVED and OWN (blocks), and
// FORWARD or BACKWARD.

const int COLUMNS = BLOCKS * HIDDEN;

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
