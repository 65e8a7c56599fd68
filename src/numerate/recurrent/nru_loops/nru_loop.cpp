// The walk of the NRU along time, written by hand: two matrix products a step, and heads whose update has rank one.
//
// h' = relu(gx + [h; m] A), z = [h'; m] B + bias (+ gx beyond H), m' = m + w q^T, where z holds the strengths of writing
// and erasing (k each), p (r each) and q (r each), r = k s, and w = sum over heads i of strength_i p_i / (|p_i| |q|) with
// 5-norms: m is s rows of r. A direction whose norm reaches LIMIT, where its fifth powers overflow, is 0, and so are its
// gradients. Rows of the batch are laid out as timeloop.hpp says.

extern "C" void *malloc(__SIZE_TYPE__);
extern "C" void free(void *);

typedef void (*Multiply)(int64_t rows, int64_t depth, int64_t columns, const R *a, int64_t stride_a, const R *b, R *c,
                         int64_t stride_c, bool add);

struct Walk {
  int64_t steps, hidden, memory, heads, columns, reverse;  // columns of gx: H, or H and those of z
  const int64_t *starts, *alive;
  Multiply multiply;
  double scale;

  INLINE int64_t time(int64_t step) const { return reverse ? steps - 1 - step : step; }
  INLINE int64_t rows(int64_t t, int64_t first, int64_t last) const {
    const int64_t end = alive[t] < last ? alive[t] : last;
    return end > first ? end - first : 0;
  }
};

static INLINE void copy(R *to, const R *from, int64_t size) { __builtin_memcpy(to, from, size * sizeof(R)); }
static INLINE R *numbers(int64_t size) { return (R *)malloc(size * sizeof(R)); }
static INLINE V add(V a, V b) { return a + b; }

const R EPS = R(1e-12), LIMIT = sizeof(R) == 4 ? R(50859007.85596004) : R(4.4765466227572707e61);  // largest number^(1/5)

// One kind of head (0 writes, 1 erases) of a row of z, and its norms.
struct Head {
  const R *strength, *p, *q;
  R sign, norm_q;
  const R *norm_p;
};

struct Heads {
  int64_t k, s, r;
  R scale;
  R *norms, *w;  // 2 + 2 k numbers and 2 s
  bool fits[2];  // whether any direction of a kind is not 0

  INLINE Heads(int64_t heads, int64_t memory, R scale_, R *room) : k(heads), scale(scale_) {
    for (r = 1; r * r < heads * memory;) r++;
    s = r / k;
    norms = room, w = room + 2 + 2 * k;
  }
  INLINE int64_t width() const { return 2 * k + 4 * r; }

  // 5-norms of all q and p of a row of z.
  INLINE void measure(const R *z) {
    for (int kind = 0; kind < 2; kind++) {
      const R *p = z + 2 * k + kind * r, *q = z + 2 * k + 2 * r + kind * r;
      V sum = {};
      over_units(r, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        const V x = abs(load(q + j, lanes)), square = x * x;
        sum += square * square * x;
      });
      norms[kind] = across(sum, add);
      for (int64_t i = 0; i < k; i++) {
        R power = 0;
        for (int64_t a = 0; a < s; a++) {
          const R x = p[i * s + a] < 0 ? -p[i * s + a] : p[i * s + a], square = x * x;
          power += square * square * x;
        }
        norms[2 + kind * k + i] = power;
      }
    }
    over_units(2 + 2 * k, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
      store(norms + j, pow(load(norms + j, lanes), c(R(0.2))), lanes);
    });
  }

  INLINE Head head(const R *z, int kind) const {
    return {z + kind * k, z + 2 * k + kind * r, z + 2 * k + (2 + kind) * r, kind ? -scale : scale, norms[kind],
            norms + 2 + kind * k};
  }

  // w of both kinds.
  INLINE void weigh(const R *z) {
    for (int kind = 0; kind < 2; kind++) {
      const Head one = head(z, kind);
      for (int64_t a = 0; a < s; a++) w[kind * s + a] = 0;
      fits[kind] = false;
      for (int64_t i = 0; i < k; i++) {
        const R norm = one.norm_p[i] * one.norm_q, factor = one.sign * one.strength[i] / (norm > EPS ? norm : EPS);
        if (!(norm < LIMIT)) continue;
        fits[kind] = true;
        for (int64_t a = 0; a < s; a++) w[kind * s + a] += factor * one.p[i * s + a];
      }
    }
  }

  INLINE void update(const R *z, const R *m, R *fresh) {
    measure(z), weigh(z);
    const R *write = z + 2 * k + 2 * r, *erase = write + r;
    over_units(r, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
      const V in = fits[0] ? load(write + j, lanes) : V{}, out = fits[1] ? load(erase + j, lanes) : V{};
      for (int64_t a = 0; a < s; a++) {
        const V change = fma(c(w[a]), in, c(w[s + a]) * out);
        store(fresh + a * r + j, load(m + a * r + j, lanes) + change, lanes);
      }
    });
  }

  // dz from the gradient of the new memory.
  INLINE void pull(const R *z, const R *dm, R *dz, R *dw) {
    measure(z), weigh(z);
    for (int kind = 0; kind < 2; kind++) {
      const Head one = head(z, kind);
      R *const dstrength = dz + kind * k, *const dp = dz + 2 * k + kind * r, *const dq = dz + 2 * k + (2 + kind) * r;
      for (int64_t a = 0; a < s; a++) {
        V sum = {};
        over_units(r, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
          sum = fma(load(dm + a * r + j, lanes), load(one.q + j, lanes), sum);
        });
        dw[a] = across(sum, add);
      }
      R dnorm_q = 0;
      for (int64_t i = 0; i < k; i++) {
        const R *const p = one.p + i * s;
        const R product = one.norm_p[i] * one.norm_q, norm = product > EPS ? product : EPS;
        if (!(product < LIMIT)) {
          dstrength[i] = 0;
          for (int64_t a = 0; a < s; a++) dp[i * s + a] = 0;
          continue;
        }
        R along = 0;
        for (int64_t a = 0; a < s; a++) along += dw[a] * p[a];
        dstrength[i] = one.sign * along / norm;
        const R factor = one.sign * one.strength[i] / norm;
        const R dnorm = product < EPS ? R(0) : -along * factor / norm;
        dnorm_q += dnorm * one.norm_p[i];
        const R dnorm_p = dnorm * one.norm_q, inverse = one.norm_p[i] > 0 ? 1 / one.norm_p[i] : R(0);
        for (int64_t a = 0; a < s; a++) {
          const R u = p[a] * inverse, square = u * u;
          dp[i * s + a] = factor * dw[a] + dnorm_p * (u < 0 ? -square * square : square * square);
        }
      }
      const R inverse = one.norm_q > 0 ? 1 / one.norm_q : R(0);
      over_units(r, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        const V u = fits[kind] ? load(one.q + j, lanes) * inverse : V{};
        V sum = c(dnorm_q) * (u * u * u * abs(u));
        for (int64_t a = 0; a < s; a++) sum = fma(c(w[kind * s + a]), load(dm + a * r + j, lanes), sum);
        store(dq + j, sum, lanes);
      });
    }
  }
};

// state: h (B, H) and m (B, M), initial at first and final at last; history: both for each row, (rows, H) and (rows, M);
// heads: z, (rows, width). History of m and heads may be null if there is no backward walk to come.
extern "C" void forward(const Walk *walk, int64_t first, int64_t last, const R *gx, const R *left, const R *right,
                        const R *bias, R *const *state, R *const *history, R *heads) {
  const Walk w = *walk;
  const int64_t H = w.hidden, N = w.memory, both = H + N, batch = last - first;
  R *const room = numbers(2 + 4 * w.heads + N);
  Heads update(w.heads, N, R(w.scale), room);
  const int64_t width = update.width();
  R *const now = numbers(batch * both + 1), *const sum = numbers(batch * H + 1), *const z = numbers(batch * width + 1);
  for (int64_t b = 0; b < batch; b++) {
    copy(now + b * both, state[0] + (first + b) * H, H);
    copy(now + b * both + H, state[1] + (first + b) * N, N);
  }
  for (int64_t step = 0; step < w.steps; step++) {
    const int64_t t = w.time(step), count = w.rows(t, first, last), start = w.starts[t] + first;
    w.multiply(count, both, H, now, both, left, sum, H, false);
    for (int64_t b = 0; b < count; b++) {
      R *const fresh = history[0] + (start + b) * H;
      over_units(H, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        const V h = maximum(load(gx + (start + b) * w.columns + j, lanes) + load(sum + b * H + j, lanes), V{});
        store(fresh + j, h, lanes), store(now + b * both + j, h, lanes);
      });
    }
    R *const here = heads ? heads + start * width : z;
    w.multiply(count, both, width, now, both, right, here, width, false);
    for (int64_t b = 0; b < count; b++) {
      R *const row = here + b * width, *const m = now + b * both + H;
      const R *const more = gx + (start + b) * w.columns + H;
      over_units(width, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        V value = load(row + j, lanes) + load(bias + j, lanes);
        if (w.columns > H) value += load(more + j, lanes);
        store(row + j, value, lanes);
      });
      update.update(row, m, m);
      if (history[1]) copy(history[1] + (start + b) * N, m, N);
    }
  }
  for (int64_t b = 0; b < batch; b++) {
    copy(state[0] + (first + b) * H, now + b * both, H);
    copy(state[1] + (first + b) * N, now + b * both + H, N);
  }
  free(room), free(now), free(sum), free(z);
}

// grad: (B, H) and (B, M), gradients of the final state at first and of the initial one at last; dout: (rows, H) or null;
// d: (rows, H + width), gradients of the pre-activations of h and of z.
extern "C" void backward(const Walk *walk, int64_t first, int64_t last, const R *left, const R *right,
                         const R *const *history, const R *heads, const R *dout, R *const *grad, R *d) {
  const Walk w = *walk;
  const int64_t H = w.hidden, N = w.memory, both = H + N, batch = last - first;
  R *const room = numbers(2 + 4 * w.heads + 2 * N);
  Heads update(w.heads, N, R(w.scale), room);
  const int64_t width = update.width(), wide = H + width;
  R *const dw = room + 2 + 2 * w.heads + 2 * update.s, *const now = numbers(batch * both + 1);
  for (int64_t b = 0; b < batch; b++) {
    copy(now + b * both, grad[0] + (first + b) * H, H);
    copy(now + b * both + H, grad[1] + (first + b) * N, N);
  }
  for (int64_t step = w.steps - 1; step >= 0; step--) {
    const int64_t t = w.time(step), count = w.rows(t, first, last), start = w.starts[t] + first;
    for (int64_t b = 0; b < count; b++) {
      if (dout)
        for (int64_t j = 0; j < H; j++) now[b * both + j] += dout[(start + b) * H + j];
      update.pull(heads + (start + b) * width, now + b * both + H, d + (start + b) * wide + H, dw);
    }
    w.multiply(count, width, both, d + start * wide + H, wide, right, now, both, true);
    for (int64_t b = 0; b < count; b++)
      over_units(H, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        R *const dh = now + b * both + j;
        const M on = load(history[0] + (start + b) * H + j, lanes) > V{};
        store(d + (start + b) * wide + j, where(on, load(dh, lanes), V{}), lanes);
        store(dh, V{}, lanes);
      });
    w.multiply(count, H, both, d + start * wide, wide, left, now, both, true);
  }
  for (int64_t b = 0; b < batch; b++) {
    copy(grad[0] + (first + b) * H, now + b * both, H);
    copy(grad[1] + (first + b) * N, now + b * both + H, N);
  }
  free(room), free(now);
}
