// The walk of the NRU along time, written by hand: two matrix products a step, and heads whose update has a low rank.
//
// h' = relu(gx + [h; m] A), z = [h'; m] B + bias (+ gx beyond H), m' = m + w q^T, where z holds the strengths of writing
// and erasing (k each), p (r each) and q (r each), r = k s, and w = sum over heads i of strength_i p_i / (|p_i| |q|) with
// 5-norms: m is s rows of r. A direction whose norm reaches LIMIT, where its fifth powers overflow, is 0, and so are its
// gradients. Rows of the batch are laid out as timeloop.hpp says.
//
// Rectified, with SIGNS = 2: strengths are positive parts, a direction is p+ q+^T + p- q-^T, from positive and negative
// parts, and |p| |q| is (|p+|^5 |q+|^5 + |p-|^5 |q-|^5)^(1/5).

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

static INLINE V part(V x, int sign) { return SIGNS == 1 ? x : maximum(sign ? -x : x, V{}); }
static INLINE R part(R x, int sign) { return SIGNS == 1 ? x : (sign ? -x : x) < 0 ? R(0) : sign ? -x : x; }
// The gradient of a number from that of its part.
static INLINE V from_part(V gradient, V x, int sign) {
  return SIGNS == 1 ? gradient : sign ? where(x < V{}, -gradient, V{}) : where(x > V{}, gradient, V{});
}
static INLINE R from_part(R gradient, R x, int sign) {
  return SIGNS == 1 ? gradient : sign ? (x < 0 ? -gradient : R(0)) : (x > 0 ? gradient : R(0));
}
static INLINE R fifth(R x) { return x * x * x * x * (x < 0 ? -x : x); }  // of its absolute value
static INLINE V fifth(V x) { return (x * x) * (x * x) * abs(x); }
static INLINE R slope_of_norm(R x) { return x * x * x * (x < 0 ? -x : x); }  // of the 5-norm, at a unit vector

// The heads of some rows. Those that write (kind 0) come before those that erase.
struct Heads {
  int64_t k, s, r;
  R scale;
  R *norms;    // 5-norms of all parts: of q (kind, sign), then of p (kind, head, sign); of all rows
  R *lengths;  // of the directions (kind, head); of all rows
  R *larger;   // as many
  R *factors;  // strength / length, with the sign and scale of a kind; of one row, like all below
  R *w;        // what multiplies the parts of q, (kind, sign, s)
  R *dw;       // its gradient
  R *powers;   // fifth powers of a part of all p
  bool fits[2];  // whether any direction of a kind is not 0

  INLINE Heads(int64_t heads, int64_t memory, R scale_, int64_t rows) : k(heads), scale(scale_) {
    for (r = 1; r * r < heads * memory;) r++;
    s = r / k;
    norms = numbers(rows * (parts() + 4 * k) + 2 * k + 4 * SIGNS * s + 2 * r);
    lengths = norms + rows * parts(), larger = lengths + rows * 2 * k, factors = larger + rows * 2 * k;
    w = factors + 2 * k, dw = w + 2 * SIGNS * s, powers = dw + 2 * SIGNS * s;
  }
  INLINE int64_t parts() const { return 2 * SIGNS * (1 + k); }
  INLINE int64_t width() const { return 2 * k + 4 * r; }
  INLINE const R *p(const R *z, int64_t head) const { return z + 2 * k + head * s; }
  INLINE const R *q(const R *z, int kind) const { return z + 2 * k + (2 + kind) * r; }
  INLINE R norm_q(int64_t row, int kind, int sign) const { return norms[row * parts() + kind * SIGNS + sign]; }
  INLINE R norm_p(int64_t row, int64_t head, int sign) const { return norms[row * parts() + (2 + head) * SIGNS + sign]; }
  INLINE R product(int64_t row, int64_t head, int sign) const {
    return norm_p(row, head, sign) * norm_q(row, head >= k, sign);
  }
  INLINE R length(int64_t row, int64_t head) const { return lengths[row * 2 * k + head]; }
  INLINE R signed_scale(int64_t head) const { return head < k ? scale : -scale; }

  INLINE void fifth_roots(R *of, int64_t count) const {
    over_units(count, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
      store(of + j, pow(load(of + j, lanes), c(R(0.2))), lanes);
    });
  }

  // Fifth powers of the norms of a row.
  INLINE void measure_row(const R *z, R *sums) const {
    for (int sign = 0; sign < SIGNS; sign++) {
      for (int kind = 0; kind < 2; kind++) {
        V sum = {};
        over_units(r, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
          sum += fifth(part(load(q(z, kind) + j, lanes), sign));
        });
        sums[kind * SIGNS + sign] = across(sum, add);
      }
      over_units(2 * r, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        store(powers + j, fifth(part(load(p(z, 0) + j, lanes), sign)), lanes);
      });
      for (int64_t head = 0; head < 2 * k; head++) {
        R power = 0;
        for (int64_t a = 0; a < s; a++) power += powers[head * s + a];
        sums[(2 + head) * SIGNS + sign] = power;
      }
    }
  }

  // Norms and lengths of all rows, whose roots are taken together. `stride`: from row to row of z.
  INLINE void measure(const R *z, int64_t stride, int64_t rows) const {
    for (int64_t row = 0; row < rows; row++) measure_row(z + row * stride, norms + row * parts());
    fifth_roots(norms, rows * parts());
    for (int64_t row = 0; row < rows; row++)
      for (int64_t head = 0; head < 2 * k; head++) {
        const R a = product(row, head, 0), b = product(row, head, SIGNS - 1);
        R &length = lengths[row * 2 * k + head];
        length = a;
        if (SIGNS == 1) continue;  // the larger one is taken out of the root, so that nothing vanishes or overflows
        larger[row * 2 * k + head] = a > b ? a : b > 0 ? b : a + b;
        length = a > b ? 1 + fifth(b / a) : b > 0 ? 1 + fifth(a / b) : R(1);
      }
    if (SIGNS == 1) return;
    fifth_roots(lengths, rows * 2 * k);
    for (int64_t i = 0; i < rows * 2 * k; i++) lengths[i] *= larger[i];  // NaN where 0 meets infinity
  }

  // Factors and w of a row that has been measured, as below.
  INLINE void weigh(int64_t row, const R *z) {
    for (int64_t a = 0; a < 2 * SIGNS * s; a++) w[a] = 0;
    fits[0] = fits[1] = false;
    for (int64_t head = 0; head < 2 * k; head++) {
      const int kind = head >= k;
      const R length = this->length(row, head);
      factors[head] = signed_scale(head) * part(z[head], 0) / (length > EPS ? length : EPS);
      if (!(length < LIMIT)) continue;
      fits[kind] = true;
      for (int sign = 0; sign < SIGNS; sign++)
        for (int64_t a = 0; a < s; a++) w[(kind * SIGNS + sign) * s + a] += factors[head] * part(p(z, head)[a], sign);
    }
  }

  INLINE void update(int64_t row, const R *z, const R *m, R *fresh) {
    weigh(row, z);
    over_units(r, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
      V parts[2 * SIGNS];
      for (int i = 0; i < 2 * SIGNS; i++)
        parts[i] = fits[i / SIGNS] ? part(load(q(z, i / SIGNS) + j, lanes), i % SIGNS) : V{};
      for (int64_t a = 0; a < s; a++) {
        V change = c(w[a]) * parts[0];
        for (int i = 1; i < 2 * SIGNS; i++) change = fma(c(w[i * s + a]), parts[i], change);
        store(fresh + a * r + j, load(m + a * r + j, lanes) + change, lanes);
      }
    });
  }

  // dz from the gradient of the new memory.
  INLINE void pull(int64_t row, const R *z, const R *dm, R *dz) {
    weigh(row, z);
    for (int kind = 0; kind < 2; kind++) {
      R slopes[SIGNS] = {};  // of the norms of the parts of q
      for (int sign = 0; sign < SIGNS; sign++)
        for (int64_t a = 0; a < s; a++) {
          V sum = {};
          over_units(r, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
            sum = fma(load(dm + a * r + j, lanes), part(load(q(z, kind) + j, lanes), sign), sum);
          });
          dw[(kind * SIGNS + sign) * s + a] = across(sum, add);
        }
      for (int64_t head = kind * k; head < (kind + 1) * k; head++) pull_head(row, z, dz, kind, head, slopes);
      R *const dq = dz + 2 * k + (2 + kind) * r;
      over_units(r, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        const V x = fits[kind] ? load(q(z, kind) + j, lanes) : V{};
        V all = {};
        for (int sign = 0; sign < SIGNS; sign++) {
          const R norm = norm_q(row, kind, sign);
          const V u = part(x, sign) * (norm > 0 ? 1 / norm : R(0));
          V sum = c(slopes[sign]) * (u * u * u * abs(u));
          for (int64_t a = 0; a < s; a++)
            sum = fma(c(w[(kind * SIGNS + sign) * s + a]), load(dm + a * r + j, lanes), sum);
          all += from_part(sum, x, sign);
        }
        store(dq + j, all, lanes);
      });
    }
  }

  // The gradients of strength and p of one head; what its direction adds to the slopes.
  INLINE void pull_head(int64_t row, const R *z, R *dz, int kind, int64_t head, R *slopes) const {
    const R *const x = p(z, head);
    R *const dp = dz + 2 * k + head * s;
    const R length = this->length(row, head);
    for (int64_t a = 0; a < s; a++) dp[a] = 0;
    dz[head] = 0;
    if (!(length < LIMIT)) return;
    R along = 0;
    for (int sign = 0; sign < SIGNS; sign++)
      for (int64_t a = 0; a < s; a++) along += dw[(kind * SIGNS + sign) * s + a] * part(x[a], sign);
    along /= length > EPS ? length : EPS;
    dz[head] = from_part(signed_scale(head) * along, z[head], 0);
    const R dlength = length < EPS ? R(0) : -along * factors[head];
    for (int sign = 0; sign < SIGNS; sign++) {
      const R norm = norm_p(row, head, sign), inverse = norm > 0 ? 1 / norm : R(0);
      const R ratio = SIGNS == 1 ? R(1) : length > 0 ? product(row, head, sign) / length : R(0);
      const R slope = dlength * ratio * ratio * ratio * ratio;  // of the product of the norms of p and q
      slopes[sign] += slope * norm;
      for (int64_t a = 0; a < s; a++) {
        const R above = factors[head] * dw[(kind * SIGNS + sign) * s + a];
        const R own = slope * norm_q(row, kind, sign) * slope_of_norm(part(x[a], sign) * inverse);
        dp[a] += from_part(above + own, x[a], sign);
      }
    }
  }
};

// state: h (B, H) and m (B, M), initial at first and final at last; history: both for each row, (rows, H) and (rows, M);
// heads: z, (rows, width). History of m and heads may be null if there is no backward walk to come.
extern "C" void forward(const Walk *walk, int64_t first, int64_t last, const R *gx, const R *left, const R *right,
                        const R *bias, R *const *state, R *const *history, R *heads) {
  const Walk w = *walk;
  const int64_t H = w.hidden, N = w.memory, both = H + N, batch = last - first;
  Heads update(w.heads, N, R(w.scale), batch);
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
      R *const row = here + b * width;
      const R *const more = gx + (start + b) * w.columns + H;
      over_units(width, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        V value = load(row + j, lanes) + load(bias + j, lanes);
        if (w.columns > H) value += load(more + j, lanes);
        store(row + j, value, lanes);
      });
    }
    update.measure(here, width, count);
    for (int64_t b = 0; b < count; b++) {
      R *const m = now + b * both + H;
      update.update(b, here + b * width, m, m);
      if (history[1]) copy(history[1] + (start + b) * N, m, N);
    }
  }
  for (int64_t b = 0; b < batch; b++) {
    copy(state[0] + (first + b) * H, now + b * both, H);
    copy(state[1] + (first + b) * N, now + b * both + H, N);
  }
  free(update.norms), free(now), free(sum), free(z);
}

// grad: (B, H) and (B, M), gradients of the final state at first and of the initial one at last; dout: (rows, H) or null;
// d: (rows, H + width), gradients of the pre-activations of h and of z.
extern "C" void backward(const Walk *walk, int64_t first, int64_t last, const R *left, const R *right,
                         const R *const *history, const R *heads, const R *dout, R *const *grad, R *d) {
  const Walk w = *walk;
  const int64_t H = w.hidden, N = w.memory, both = H + N, batch = last - first;
  Heads update(w.heads, N, R(w.scale), batch);
  const int64_t width = update.width(), wide = H + width;
  R *const now = numbers(batch * both + 1);
  for (int64_t b = 0; b < batch; b++) {
    copy(now + b * both, grad[0] + (first + b) * H, H);
    copy(now + b * both + H, grad[1] + (first + b) * N, N);
  }
  for (int64_t step = w.steps - 1; step >= 0; step--) {
    const int64_t t = w.time(step), count = w.rows(t, first, last), start = w.starts[t] + first;
    update.measure(heads + start * width, width, count);
    for (int64_t b = 0; b < count; b++) {
      if (dout)
        for (int64_t j = 0; j < H; j++) now[b * both + j] += dout[(start + b) * H + j];
      update.pull(b, heads + (start + b) * width, now + b * both + H, d + (start + b) * wide + H);
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
  free(update.norms), free(now);
}
