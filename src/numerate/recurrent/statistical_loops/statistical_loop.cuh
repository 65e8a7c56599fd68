// The walk of the statistical recurrent unit along time, written by hand: r = f(W_r m + b), phi = f(gx + W_phi r), and for
// each scale a, m_a' = a m_a + (1 - a) phi.
//
// A block has one row of a model's batch and all weights, so that it waits for nobody. A thread has the averages of its
// statistics in registers, and of each product as many weights as it is given; the others lie in shared memory, which also
// holds the numbers that threads exchange. Sequences that end early have a block that stops early.
//
// Defined before: S, THREADS, STATISTICS, SUMMARY (at most THREADS), SCALES, KEPT_TO and KEPT_FROM (multiples of 4),
// ACTIVATION, PACKED, FORWARD or BACKWARD.

#define QUADS(count) (((count) + 3) / 4 * 4)

const int WARPS = THREADS / 32, MEANS = SCALES * STATISTICS, SAVED = SUMMARY + STATISTICS;
const int EACH = (STATISTICS + THREADS - 1) / THREADS;  // statistics of a thread: threadIdx.x + e * THREADS
const int COLS = (SUMMARY + 31) / 32;

#define EACH_STATISTIC(e, j)                     \
  UNROLL for (int e = 0; e < EACH; e++)          \
    if (const int j = threadIdx.x + e * THREADS; j < STATISTICS)
#define EACH_SCALE(a) UNROLL for (int a = 0; a < SCALES; a++)

INLINE float activated(float x) { return ACTIVATION == 0 ? maximum(x, 0.0f) : ACTIVATION == 1 ? tanhf(x) : sigmoid(x); }
INLINE float slope(float y) {  // where the activation is y
  return ACTIVATION == 0 ? float(y > 0) : ACTIVATION == 1 ? 1 - y * y : y * (1 - y);
}

// Sums over NUMBERS for each number of the summary: a warp has a slice of them, a lane has COLS columns.
template <int NUMBERS, int KEPT>
struct ToSummary {
  static const int DEPTH = QUADS((NUMBERS + WARPS - 1) / WARPS), DEPTHS = WARPS * DEPTH, WIDE = COLS * 32;
  static const int REST = WARPS * (DEPTH - KEPT) * WIDE;  // numbers in shared memory
  float kept[COLS][KEPT > 0 ? KEPT : 1];
  float *mine;

  // weight(column, k) is one of them.
  template <class Weight>
  INLINE ToSummary(float *rest, const Weight &weight) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    mine = rest + warp * (DEPTH - KEPT) * WIDE + lane;
    UNROLL for (int k = 0; k < DEPTH; k++) UNROLL for (int i = 0; i < COLS; i++) {
      const int column = lane + i * 32, source = warp * DEPTH + k;
      const float w = column < SUMMARY && source < NUMBERS ? weight(column, source) : 0.0f;
      if (k < KEPT)
        kept[i][k] = w;
      else
        mine[((k - KEPT) * COLS + i) * 32] = w;
    }
  }
  // x: DEPTHS numbers; sums: WARPS * WIDE, which `sum` adds up after a wait for all threads.
  INLINE void run(const float *x, float *sums) const {
    const float *const own = x + threadIdx.x / 32 * DEPTH;
    float even[COLS], odd[COLS];
    UNROLL for (int i = 0; i < COLS; i++) even[i] = odd[i] = 0;
    UNROLL for (int k = 0; k < DEPTH; k += 4) {
      const Quad q = *(const Quad *)(own + k);
      UNROLL for (int i = 0; i < COLS; i++) {
        even[i] = fmaf(weight(i, k), q.x, even[i]), odd[i] = fmaf(weight(i, k + 1), q.y, odd[i]);
        even[i] = fmaf(weight(i, k + 2), q.z, even[i]), odd[i] = fmaf(weight(i, k + 3), q.w, odd[i]);
      }
    }
    UNROLL for (int i = 0; i < COLS; i++)
      sums[threadIdx.x / 32 * WIDE + i * 32 + threadIdx.x % 32] = even[i] + odd[i];
  }
  INLINE float weight(int i, int k) const { return k < KEPT ? kept[i][k] : mine[((k - KEPT) * COLS + i) * 32]; }
  INLINE static float sum(const float *sums, int column) {
    float result = 0;
    UNROLL for (int warp = 0; warp < WARPS; warp++) result += sums[warp * WIDE + column];
    return result;
  }
};

// Sums over the summary for OUT numbers of each statistic; a thread has its own statistics.
template <int OUT, int KEPT>
struct FromSummary {
  static const int DEPTH = QUADS(SUMMARY), REST = (DEPTH - KEPT) * OUT * STATISTICS;
  float kept[EACH][OUT][KEPT > 0 ? KEPT : 1];
  float *rest;

  // weight(j, o, k) is one of them.
  template <class Weight>
  INLINE FromSummary(float *rest_, const Weight &weight) : rest(rest_) {
    UNROLL for (int e = 0; e < EACH; e++) {
      const int j = threadIdx.x + e * THREADS;
      UNROLL for (int k = 0; k < DEPTH; k++) UNROLL for (int o = 0; o < OUT; o++) {
        const float w = j < STATISTICS && k < SUMMARY ? weight(j, o, k) : 0.0f;
        if (k < KEPT)
          kept[e][o][k] = w;
        else if (j < STATISTICS)
          rest[((k - KEPT) * OUT + o) * STATISTICS + j] = w;
      }
    }
  }
  INLINE void run(const float *x, float (&sums)[EACH][OUT]) const {
    UNROLL for (int e = 0; e < EACH; e++) UNROLL for (int o = 0; o < OUT; o++) sums[e][o] = 0;
    UNROLL for (int k = 0; k < DEPTH; k += 4) {
      const Quad q = *(const Quad *)(x + k);
      EACH_STATISTIC(e, j) UNROLL for (int o = 0; o < OUT; o++) {
        const float one = fmaf(weight(e, o, k, j), q.x, sums[e][o]), two = fmaf(weight(e, o, k + 1, j), q.y, one);
        sums[e][o] = fmaf(weight(e, o, k + 3, j), q.w, fmaf(weight(e, o, k + 2, j), q.z, two));
      }
    }
  }
  INLINE float weight(int e, int o, int k, int j) const {
    return k < KEPT ? kept[e][o][k] : rest[((k - KEPT) * OUT + o) * STATISTICS + j];
  }
};

#ifdef FORWARD
// weight: W_r, (SUMMARY, MEANS); other: W_phi, (STATISTICS, SUMMARY); state: (batch, MEANS), initial, then final; out: the
// averages and saved: (r, phi), of all steps; saved may be null.
KERNEL void forward(const S *gx, const S *weight, const float *other, const float *bias, const float *scales, float *state,
                    S *out, float *saved, const int64 *starts, int64 steps, int64 batch, int64 reverse) {
  const Place place(starts, steps, batch);
  typedef ToSummary<MEANS, KEPT_TO> Summarise;
  typedef FromSummary<1, KEPT_FROM> Spread;
  float *const x = shared, *const sums = x + Summarise::DEPTHS, *const r = sums + WARPS * Summarise::WIDE;
  float *const rest = r + Spread::DEPTH;
  weight += place.model * SUMMARY * MEANS, other += place.model * STATISTICS * SUMMARY;
  const Summarise summarise(rest, [&](int i, int k) { return number(weight[i * MEANS + k]); });
  const Spread spread(rest + Summarise::REST, [&](int j, int, int k) { return other[j * SUMMARY + k]; });
  state += blockIdx.x * MEANS;
  const int own = threadIdx.x;  // number of the summary
  const float own_bias = own < SUMMARY ? bias[place.model * SUMMARY + own] : 0.0f;
  float scale[SCALES], means[EACH][SCALES];
  EACH_SCALE(a) scale[a] = scales[place.model * SCALES + a];
  for (int i = threadIdx.x; i < Summarise::DEPTHS; i += THREADS) x[i] = i < MEANS ? state[i] : 0.0f;
  for (int i = threadIdx.x; i < Spread::DEPTH; i += THREADS) r[i] = 0;
  EACH_STATISTIC(e, j) EACH_SCALE(a) means[e][a] = state[a * STATISTICS + j];
  __syncthreads();
  for (int64 step = 0; step < place.length; step++) {
    const int64 row = place.at(reverse ? place.length - 1 - step : step);
    float in[EACH], back[EACH][1];
    EACH_STATISTIC(e, j) in[e] = number(gx[row * STATISTICS + j]);
    summarise.run(x, sums);
    __syncthreads();
    if (own < SUMMARY) {
      r[own] = activated(Summarise::sum(sums, own) + own_bias);
      if (saved) saved[row * SAVED + own] = r[own];
    }
    __syncthreads();
    spread.run(r, back);
    EACH_STATISTIC(e, j) {
      const float phi = activated(in[e] + back[e][0]);
      if (saved) saved[row * SAVED + SUMMARY + j] = phi;
      EACH_SCALE(a) {
        means[e][a] = scale[a] * means[e][a] + (1 - scale[a]) * phi;
        x[a * STATISTICS + j] = means[e][a];
        out[row * MEANS + a * STATISTICS + j] = stored<S>(means[e][a]);
      }
    }
    __syncthreads();
  }
  EACH_STATISTIC(e, j) EACH_SCALE(a) state[a * STATISTICS + j] = means[e][a];
}
#endif

#ifdef BACKWARD
// dout: (rows of all steps, MEANS), may be null; grad: (batch, MEANS), gradient of the final state, then of the initial one;
// dgx: (rows, STATISTICS) and da: (rows, SUMMARY), gradients of the pre-activations of phi and r; dscale: (batch, SCALES,
// THREADS); others as above.
KERNEL void backward(const S *weight, const float *other, const float *scales, const float *initial, const S *out,
                     const float *saved, const S *dout, float *grad, S *dgx, S *da, float *dscale, const int64 *starts,
                     int64 steps, int64 batch, int64 reverse) {
  const Place place(starts, steps, batch);
  typedef ToSummary<STATISTICS, KEPT_TO> Summarise;
  typedef FromSummary<SCALES, KEPT_FROM> Spread;
  float *const x = shared, *const sums = x + Summarise::DEPTHS, *const dr = sums + WARPS * Summarise::WIDE;
  float *const rest = dr + Spread::DEPTH;
  weight += place.model * SUMMARY * MEANS, other += place.model * STATISTICS * SUMMARY;
  const Summarise summarise(rest, [&](int i, int k) { return other[k * SUMMARY + i]; });
  const Spread spread(rest + Summarise::REST,
                      [&](int j, int a, int k) { return number(weight[k * MEANS + a * STATISTICS + j]); });
  initial += blockIdx.x * MEANS, grad += blockIdx.x * MEANS;
  const int own = threadIdx.x;
  float scale[SCALES], total[SCALES], dm[EACH][SCALES], above[EACH][SCALES], phi[EACH], r = 0;
  EACH_SCALE(a) scale[a] = scales[place.model * SCALES + a], total[a] = 0;
  for (int i = threadIdx.x; i < Summarise::DEPTHS; i += THREADS) x[i] = 0;
  for (int i = threadIdx.x; i < Spread::DEPTH; i += THREADS) dr[i] = 0;
  EACH_STATISTIC(e, j) EACH_SCALE(a) dm[e][a] = grad[a * STATISTICS + j];
  const auto row_of = [&](int64 step) { return place.at(reverse ? place.length - 1 - step : step); };
  const auto recall = [&](int64 row) {  // read one step ahead, since the gradient begins with it
    if (own < SUMMARY) r = saved[row * SAVED + own];
    EACH_STATISTIC(e, j) {
      phi[e] = saved[row * SAVED + SUMMARY + j];
      EACH_SCALE(a) above[e][a] = dout ? number(dout[row * MEANS + a * STATISTICS + j]) : 0.0f;
    }
  };
  if (place.length > 0) recall(row_of(place.length - 1));
  __syncthreads();
  for (int64 step = place.length - 1; step >= 0; step--) {
    const int64 row = row_of(step), before = step > 0 ? row_of(step - 1) : 0;
    const float own_slope = slope(r);
    EACH_STATISTIC(e, j) {
      float sum = 0;
      EACH_SCALE(a) {
        const int cell = a * STATISTICS + j;
        const float old = step > 0 ? number(out[before * MEANS + cell]) : initial[cell];
        dm[e][a] += above[e][a];
        sum = fmaf(1 - scale[a], dm[e][a], sum), total[a] = fmaf(dm[e][a], old - phi[e], total[a]);
        dm[e][a] *= scale[a];
      }
      const S pulled = stored<S>(sum * slope(phi[e]));
      x[j] = number(pulled), dgx[row * STATISTICS + j] = pulled;
    }
    if (step > 0) recall(before);
    __syncthreads();
    summarise.run(x, sums);
    __syncthreads();
    if (own < SUMMARY) {
      const S pulled = stored<S>(Summarise::sum(sums, own) * own_slope);
      dr[own] = number(pulled), da[row * SUMMARY + own] = pulled;
    }
    __syncthreads();
    float back[EACH][SCALES];
    spread.run(dr, back);
    EACH_STATISTIC(e, j) EACH_SCALE(a) dm[e][a] += back[e][a];
  }
  EACH_STATISTIC(e, j) EACH_SCALE(a) grad[a * STATISTICS + j] = dm[e][a];
  EACH_SCALE(a) dscale[(int64(blockIdx.x) * SCALES + a) * THREADS + threadIdx.x] = total[a];
}
#endif
