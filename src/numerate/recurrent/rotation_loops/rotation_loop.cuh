// The walk of the real EURNN along time, written by hand: v = F h + gx, h' = sign(v) relu(|v| + eps + bias).
//
// F is a product of levels. Level l turns pairs of units that lie HIDDEN >> (l + 1) apart. A block has one row of a model's
// batch. Several levels at a time are a pass: each of the ACTIVE threads reads EACH units that these levels turn among
// themselves, turns them in registers and puts them back in their places in shared memory. Angles stay in registers.
//
// Defined before: S, HIDDEN, LEVELS, MOST (levels of a pass), EPS, PACKED, FORWARD or BACKWARD.

const int EACH = 1 << MOST, ACTIVE = HIDDEN / EACH;
const int PASSES = (LEVELS + MOST - 1) / MOST, FIRST = LEVELS - (PASSES - 1) * MOST;  // levels of the first pass
const int HALF = EACH / 2;                                                            // pairs of a thread in a level

#define EACH_UNIT(e) UNROLL for (int e = 0; e < EACH; e++)
#define EACH_PAIR(p) UNROLL for (int p = 0; p < HALF; p++)

INLINE int slot(int unit) { return unit + unit / 32; }  // keeps units far apart in different banks
const int SLOTS = HIDDEN + HIDDEN / 32;

template <int N>
struct Pass {
  static const int COUNT = N ? MOST : FIRST, LEVEL = N ? FIRST + (N - 1) * MOST : 0;  // its levels, and the first of them
  static const int APART = HIDDEN >> (LEVEL + COUNT);                                 // pairs of its last level

  // Unit of the whole that is number e of this thread.
  INLINE static int unit(int e) {
    const int group = threadIdx.x + (e >> COUNT) * ACTIVE;
    return group / APART * (APART << COUNT) + group % APART + (e & ((1 << COUNT) - 1)) * APART;
  }
  // Pair p of the pass's level j: its units among those of this thread.
  INLINE static int one(int j, int p) {
    const int bit = 1 << (COUNT - 1 - j);
    return (p & (bit - 1)) | (p & ~(bit - 1)) << 1;
  }
  INLINE static int other(int j, int p) { return one(j, p) | 1 << (COUNT - 1 - j); }
  // And its number among all pairs of that level.
  INLINE static int pair(int j, int p) {
    const int apart = HIDDEN >> (LEVEL + j + 1), first = unit(one(j, p));
    return first / (2 * apart) * apart + first % apart;
  }
  INLINE static void read(const float *from, float (&x)[EACH]) { EACH_UNIT(e) x[e] = from[slot(unit(e))]; }
  INLINE static void put(float *to, const float (&x)[EACH]) { EACH_UNIT(e) to[slot(unit(e))] = x[e]; }
};
typedef Pass<PASSES - 1> Last;  // a thread's units lie side by side

struct Angles {
  float cosine[LEVELS][HALF], sine[LEVELS][HALF];

  template <int N> INLINE void load(const float *angle) {
    typedef Pass<N> P;
    UNROLL for (int j = 0; j < P::COUNT; j++) EACH_PAIR(p) {
      const float turn = angle[(P::LEVEL + j) * (HIDDEN / 2) + P::pair(j, p)];
      cosine[P::LEVEL + j][p] = cosf(turn), sine[P::LEVEL + j][p] = sinf(turn);
    }
    if constexpr (N + 1 < PASSES) load<N + 1>(angle);
  }
  template <int N> INLINE void turn(float (&x)[EACH]) const {
    typedef Pass<N> P;
    UNROLL for (int j = 0; j < P::COUNT; j++) EACH_PAIR(p) {
      const float c = cosine[P::LEVEL + j][p], s = sine[P::LEVEL + j][p], a = x[P::one(j, p)], b = x[P::other(j, p)];
      x[P::one(j, p)] = c * a - s * b, x[P::other(j, p)] = s * a + c * b;
    }
  }
  // A pair of level `level`, turned back.
  INLINE void turn_back(int level, int p, float &a, float &b) const {
    const float c = cosine[level][p], s = sine[level][p], before = c * a + s * b;
    b = c * b - s * a, a = before;
  }
};

#ifdef FORWARD
// From h in shared memory to F h in the registers of its threads.
template <int N> INLINE void rotate(const Angles &angles, float *h, float (&x)[EACH], bool active) {
  if (active) {
    Pass<N>::read(h, x);
    angles.turn<N>(x);
  }
  if constexpr (N + 1 < PASSES) {
    if (active) Pass<N>::put(h, x);
    __syncthreads();
    rotate<N + 1>(angles, h, x, active);
  }
}

// angle: (LEVELS, HIDDEN / 2); state: (batch, HIDDEN), initial, then final; out: h and saved: F h of the step before, of all
// steps; saved may be null.
KERNEL void forward(const S *gx, const S *bias, const float *angle, float *state, S *out, float *saved, const int64 *starts,
                    int64 steps, int64 batch, int64 reverse) {
  const Place place(starts, steps, batch);
  const bool active = threadIdx.x < ACTIVE;
  const int first = threadIdx.x * EACH;  // of this thread's units
  float *const h = shared;
  Angles angles;
  float x[EACH], now[EACH], in[EACH], shift[EACH];
  const auto row_of = [&](int64 step) { return place.at(reverse ? place.length - 1 - step : step) * HIDDEN + first; };
  const auto recall = [&](int64 step) { EACH_UNIT(e) in[e] = number(gx[row_of(step) + e]); };
  state += int64(blockIdx.x) * HIDDEN + first, bias += place.model * HIDDEN + first;
  if (active) {
    angles.load<0>(angle + place.model * LEVELS * (HIDDEN / 2));
    EACH_UNIT(e) now[e] = state[e], shift[e] = number(bias[e]) + EPS;
    Last::put(h, now);
    if (place.length > 0) recall(0);
  }
  __syncthreads();
  for (int64 step = 0; step < place.length; step++) {
    rotate<0>(angles, h, x, active);
    if (active) {
      const int64 row = row_of(step);
      EACH_UNIT(e) {
        const float v = x[e] + in[e];
        now[e] = number(stored<S>(sign(v) * maximum(fabsf(v) + shift[e], 0.0f)));
        out[row + e] = stored<S>(now[e]);
        if (saved) saved[row + e] = x[e];
      }
      Last::put(h, now);
      if (step + 1 < place.length) recall(step + 1);
    }
    __syncthreads();
  }
  if (active) EACH_UNIT(e) state[e] = now[e];
}
#endif

#ifdef BACKWARD
// From y = F h and its gradient in registers of the threads of pass N to the gradient of h, in shared memory.
template <int N>
INLINE void pull(const Angles &angles, float (&sums)[LEVELS][HALF], float *h, float *dh, float (&y)[EACH], float (&dy)[EACH],
                 bool active) {
  typedef Pass<N> P;
  if (active) {
    if (N + 1 < PASSES) P::read(h, y), P::read(dh, dy);
    UNROLL for (int j = P::COUNT - 1; j >= 0; j--) EACH_PAIR(p) {
      const int a = P::one(j, p), b = P::other(j, p);
      sums[P::LEVEL + j][p] += dy[b] * y[a] - dy[a] * y[b];
      angles.turn_back(P::LEVEL + j, p, y[a], y[b]), angles.turn_back(P::LEVEL + j, p, dy[a], dy[b]);
    }
    P::put(h, y), P::put(dh, dy);
  }
  __syncthreads();
  if constexpr (N > 0) pull<N - 1>(angles, sums, h, dh, y, dy, active);
}
template <int N> INLINE void hand_over(const float (&sums)[LEVELS][HALF], float *dangle) {
  typedef Pass<N> P;
  UNROLL for (int j = 0; j < P::COUNT; j++)
    EACH_PAIR(p) dangle[(P::LEVEL + j) * (HIDDEN / 2) + P::pair(j, p)] = sums[P::LEVEL + j][p];
  if constexpr (N + 1 < PASSES) hand_over<N + 1>(sums, dangle);
}

// dout: (rows of all steps, HIDDEN), may be null; grad: (batch, HIDDEN), gradient of the final state, then of the initial one;
// dbias: (batch, HIDDEN); dangle: (batch, LEVELS, HIDDEN / 2); others as above.
KERNEL void backward(const float *angle, const S *out, const float *saved, const S *dout, float *grad, S *dgx, float *dbias,
                     float *dangle, const int64 *starts, int64 steps, int64 batch, int64 reverse) {
  const Place place(starts, steps, batch);
  const bool active = threadIdx.x < ACTIVE;
  const int first = threadIdx.x * EACH;
  float *const h = shared, *const dh = shared + SLOTS;
  Angles angles;
  float sums[LEVELS][HALF], shifted[EACH], y[EACH], dy[EACH], fresh[EACH], above[EACH], next[EACH];
  UNROLL for (int l = 0; l < LEVELS; l++) EACH_PAIR(p) sums[l][p] = 0;
  const auto row_of = [&](int64 step) { return place.at(reverse ? place.length - 1 - step : step) * HIDDEN + first; };
  const auto recall = [&](int64 row) {  // read one step ahead, since the gradient begins with it
    EACH_UNIT(e) next[e] = saved[row + e], fresh[e] = number(out[row + e]), above[e] = dout ? number(dout[row + e]) : 0.0f;
  };
  grad += int64(blockIdx.x) * HIDDEN + first, dbias += int64(blockIdx.x) * HIDDEN + first;
  if (active) {
    angles.load<0>(angle + place.model * LEVELS * (HIDDEN / 2));
    EACH_UNIT(e) dy[e] = grad[e], shifted[e] = 0;
    Last::put(dh, dy);
    if (place.length > 0) recall(row_of(place.length - 1));
  }
  __syncthreads();
  for (int64 step = place.length - 1; step >= 0; step--) {
    if (active) {
      const int64 row = row_of(step);
      Last::read(dh, dy);
      EACH_UNIT(e) {  // where |v| + eps + bias is not positive, or v is 0, it is flat
        const S pulled = stored<S>(fresh[e] != 0 ? dy[e] + above[e] : 0.0f);
        dgx[row + e] = pulled, dy[e] = number(pulled), y[e] = next[e];
        shifted[e] = fmaf(dy[e], sign(fresh[e]), shifted[e]);
      }
      if (step > 0) recall(row_of(step - 1));
    }
    pull<PASSES - 1>(angles, sums, h, dh, y, dy, active);
  }
  if (active) {
    Last::read(dh, dy);
    EACH_UNIT(e) grad[e] = dy[e], dbias[e] = shifted[e];
    hand_over<0>(sums, dangle + int64(blockIdx.x) * LEVELS * (HIDDEN / 2));
  }
}
#endif
