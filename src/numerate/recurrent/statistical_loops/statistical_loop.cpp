// The walk of the statistical recurrent unit along time, written by hand: r = f(W_r m + b), phi = f(gx + W_phi r), and for
// each scale a, m_a' = a m_a + (1 - a) phi.
//
// Rows of the batch are laid out as timeloop.hpp says. Defined before: ACTIVATION.

extern "C" void *malloc(__SIZE_TYPE__);
extern "C" void free(void *);

typedef void (*Multiply)(int64_t rows, int64_t depth, int64_t columns, const R *a, int64_t stride_a, const R *b, R *c,
                         int64_t stride_c, bool add);

struct Walk {
  int64_t steps, statistics, summary, scales, reverse;
  const int64_t *starts, *alive;
  Multiply multiply;

  INLINE int64_t time(int64_t step) const { return reverse ? steps - 1 - step : step; }
  INLINE int64_t rows(int64_t t, int64_t first, int64_t last) const {
    const int64_t end = alive[t] < last ? alive[t] : last;
    return end > first ? end - first : 0;
  }
};

static INLINE R *numbers(int64_t size) { return (R *)malloc((size ? size : 1) * sizeof(R)); }
static INLINE V add(V a, V b) { return a + b; }
static INLINE V activated(V x) { return ACTIVATION == 0 ? maximum(x, V{}) : ACTIVATION == 1 ? tanh(x) : sigmoid(x); }
static INLINE V slope(V y) {  // where the activation is y
  return ACTIVATION == 0 ? where(y > V{}, c(R(1)), V{}) : ACTIVATION == 1 ? R(1) - y * y : y * (R(1) - y);
}

// state: (B, A D), initial at first and final at last; out: the averages of each row; saved: (r, phi) of each row, may be
// null if there is no backward walk to come. left and right: W_r and W_phi, packed.
extern "C" void forward(const Walk *walk, int64_t first, int64_t last, const R *gx, const R *left, const R *right,
                        const R *bias, const R *scales, R *state, R *out, R *saved) {
  const Walk w = *walk;
  const int64_t D = w.statistics, Q = w.summary, A = w.scales, wide = Q + D;
  R *const room = numbers((last - first) * wide);
  for (int64_t step = 0; step < w.steps; step++) {
    const int64_t t = w.time(step), count = w.rows(t, first, last), start = w.starts[t] + first;
    R *const here = saved ? saved + start * wide : room;
    w.multiply(count, A * D, Q, state + first * A * D, A * D, left, here, wide, false);
    for (int64_t b = 0; b < count; b++)
      over_units(Q, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        R *const r = here + b * wide + j;
        store(r, activated(load(r, lanes) + load(bias + j, lanes)), lanes);
      });
    w.multiply(count, Q, D, here, wide, right, here + Q, wide, false);
    for (int64_t b = 0; b < count; b++)
      over_units(D, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        R *const phi = here + b * wide + Q + j, *const means = state + (first + b) * A * D + j;
        const V value = activated(load(phi, lanes) + load(gx + (start + b) * D + j, lanes));
        store(phi, value, lanes);
        for (int64_t a = 0; a < A; a++) {
          const V fresh = fma(c(scales[a]), load(means + a * D, lanes), c(1 - scales[a]) * value);
          store(means + a * D, fresh, lanes), store(out + ((start + b) * A + a) * D + j, fresh, lanes);
        }
      });
  }
  free(room);
}

// grad: (B, A D), the gradient of the final state at first and of the initial one at last; dout: (rows, A D) or null; d:
// (rows, D + Q), gradients of the pre-activations of phi and r; dscale: (B, A), added to. left and right: the transposes of
// W_r and W_phi, packed.
extern "C" void backward(const Walk *walk, int64_t first, int64_t last, const R *left, const R *right, const R *scales,
                         const R *initial, const R *out, const R *saved, const R *dout, R *grad, R *d, R *dscale) {
  const Walk w = *walk;
  const int64_t D = w.statistics, Q = w.summary, A = w.scales, wide = Q + D;
  for (int64_t step = w.steps - 1; step >= 0; step--) {
    const int64_t t = w.time(step), count = w.rows(t, first, last), start = w.starts[t] + first;
    const int64_t before = step ? w.time(step - 1) : 0;
    for (int64_t b = 0; b < count; b++) {
      const bool begins = step == 0 || first + b >= w.alive[before];
      const R *const old = begins ? initial + (first + b) * A * D : out + (w.starts[before] + first + b) * A * D;
      const R *const phi = saved + (start + b) * wide + Q;
      R *const dm = grad + (first + b) * A * D, *const ds = d + (start + b) * wide;
      for (int64_t j = 0; j < D; j++) ds[j] = 0;
      for (int64_t a = 0; a < A; a++) {
        V total = {};
        over_units(D, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
          V above = load(dm + a * D + j, lanes);
          if (dout) above += load(dout + ((start + b) * A + a) * D + j, lanes);
          store(ds + j, fma(c(1 - scales[a]), above, load(ds + j, lanes)), lanes);
          total = fma(above, load(old + a * D + j, lanes) - load(phi + j, lanes), total);
          store(dm + a * D + j, scales[a] * above, lanes);
        });
        dscale[(first + b) * A + a] += across(total, add);
      }
      over_units(D, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        store(ds + j, load(ds + j, lanes) * slope(load(phi + j, lanes)), lanes);
      });
    }
    R *const here = d + start * wide;
    w.multiply(count, D, Q, here, wide, right, here + D, wide, false);
    for (int64_t b = 0; b < count; b++)
      over_units(Q, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        R *const dr = here + b * wide + D + j;
        store(dr, load(dr, lanes) * slope(load(saved + (start + b) * wide + j, lanes)), lanes);
      });
    w.multiply(count, Q, A * D, here + D, wide, left, grad + first * A * D, A * D, true);
  }
}
