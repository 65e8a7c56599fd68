// One step of a walk along time around the emitted lines: a block computes a row, its threads share the units. The products
// with the weight are made between the launches.
//
// Defined before: S, HIDDEN, COLUMNS, STATES, EXTRAS, SAVED and OWN (numbers of a row), SCRATCH, FORWARD or BACKWARD; then
// rowunits.cuh. Shared memory: the scratch of the emitted lines, room for what threads put together, and states.

#define JOINED (shared + SCRATCH)
#define NUMBERS (JOINED + THREADS)

// In both kernels a block has a row r of a model's batch, `row` of all steps; the emitted lines follow BODY. Their arrays
// with a number at the end (state0, new1, ...) are declared with them. Shapes are those of one model; models lie one after
// the other, and each has `alive` blocks.

#ifdef FORWARD
// gx, out, history: of all steps, this one from row `start` on; gh, hidden: (batch, ...); state: (STATES, batch, HIDDEN),
// replaced; history: (STATES - 1, total, HIDDEN), may be null; saved: of this step or, with `kept`, of all.
KERNEL void forward(const S *all_gx, const S *all_gh, const float *extra, float *state, S *hidden, S *out, float *history,
                    float *all_saved, int64 start, int64 kept, int64 total, int64 batch, int64 alive) {
  const int64 model = blockIdx.x / alive, r = blockIdx.x % alive, row = start + r;
  extra += model * EXTRAS * HIDDEN, state += model * STATES * batch * HIDDEN;
  hidden += model * batch * HIDDEN, out += model * total * HIDDEN;
  if (history) history += model * (STATES - 1) * total * HIDDEN;
  const S *const gx = all_gx + (model * total + row) * COLUMNS, *const gh = all_gh + (model * batch + r) * COLUMNS;
  float *const saved = all_saved + (kept ? model * total + row : model * batch + r) * SAVED;
  float *const scratch = shared, *const fresh = NUMBERS;
  BODY
  EACH_UNIT {
    const S h = stored<S>(fresh[j]);
    out[row * HIDDEN + j] = h, hidden[r * HIDDEN + j] = h, state[r * HIDDEN + j] = number(h);
    for (int k = 1; k < STATES; k++) {
      state[(k * batch + r) * HIDDEN + j] = fresh[k * HIDDEN + j];
      if (history) history[((k - 1) * total + row) * HIDDEN + j] = fresh[k * HIDDEN + j];
    }
  }
}
#endif

#ifdef BACKWARD
// out, history, saved, dout (may be null), dgx, dgh: of all steps, this one from row `start` on; the step before it has
// the rows of the batch up to `known`, from row `before` on; pulled: (batch, HIDDEN), what comes through the weight from
// the step after; grad: (STATES, batch, HIDDEN), replaced; dextra: (EXTRAS, batch, HIDDEN), added to.
KERNEL void backward(const float *extra, const float *initial, const S *out, const float *history, const float *all_saved,
                     const S *dout, const S *pulled, float *grad, S *all_dgx, S *all_dgh, float *dextra, int64 start,
                     int64 before, int64 known, int64 total, int64 batch, int64 alive) {
  const int64 model = blockIdx.x / alive, r = blockIdx.x % alive, row = start + r;
  extra += model * EXTRAS * HIDDEN, initial += model * STATES * batch * HIDDEN, grad += model * STATES * batch * HIDDEN;
  out += model * total * HIDDEN, history += model * (STATES - 1) * total * HIDDEN;
  if (dout) dout += model * total * HIDDEN;
  pulled += model * batch * HIDDEN, dextra += model * EXTRAS * batch * HIDDEN;
  const float *const saved = all_saved + (model * total + row) * SAVED;
  S *const dgx = all_dgx + (model * total + row) * COLUMNS, *const dgh = all_dgh + (model * total + row) * OWN;
  float *const scratch = shared, *const old = NUMBERS, *const fresh = old + STATES * HIDDEN;
  float *const above = fresh + STATES * HIDDEN;
  EACH_UNIT {
    for (int k = 0; k < STATES; k++) {
      const float *const past = history + (k - 1) * total * HIDDEN;
      const int64 now = row * HIDDEN + j, last = (before + r) * HIDDEN + j, own = (k * batch + r) * HIDDEN + j;
      old[k * HIDDEN + j] = r >= known ? initial[own] : k ? past[last] : number(out[last]);
      fresh[k * HIDDEN + j] = k ? past[now] : number(out[now]);
      above[k * HIDDEN + j] = grad[own];
    }
    above[j] += number(pulled[r * HIDDEN + j]) + (dout ? number(dout[row * HIDDEN + j]) : 0.0f);
  }
  __syncthreads();
  BODY
}
#endif
