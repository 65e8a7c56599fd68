// The walk of the real EURNN along time, written by hand: v = F h + gx, h' = sign(v) relu(|v| + eps + bias).
//
// F is a product of levels. Level l turns pairs of units that lie H >> (l + 1) apart: x'_i = cosine_i x_i + sine_i x_j, j the
// other unit of the pair; `cosine` and `sine` are (levels, H), the sine of the first unit of a pair negative. Levels of
// pairs at least a vector apart (far) come first, then those of pairs inside a vector (near). Rows of the batch are laid out
// as timeloop.hpp says.

extern "C" void *malloc(__SIZE_TYPE__);
extern "C" void free(void *);

const int64_t TOGETHER = 4;  // rows that share the loads of an angle

struct Walk {
  int64_t steps, hidden, reverse;
  const int64_t *starts, *alive;
  void *multiply;  // not used
  double eps;

  INLINE int64_t time(int64_t step) const { return reverse ? steps - 1 - step : step; }
  INLINE int64_t rows(int64_t t, int64_t first, int64_t last) const {
    const int64_t end = alive[t] < last ? alive[t] : last;
    return end > first ? end - first : 0;
  }
};

static INLINE R *numbers(int64_t size) { return (R *)malloc((size ? size : 1) * sizeof(R)); }

// ---------------------------------------------------------------- levels inside a vector

template <int... I> struct Lane_numbers {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> { typedef Lane_numbers<I...> All; };

// The other unit of each pair, `APART` lanes away.
template <int APART, int... I> static INLINE V other_of(V x, Lane_numbers<I...>) {
  return __builtin_shufflevector(x, x, (I ^ APART)...);
}
template <int APART> static INLINE V other(V x) { return other_of<APART>(x, typename Count<LANES>::All{}); }

// The angles of a vector of units from the first near level on; those of the next level lie H further.
struct Angles {
  const R *cosine, *sine;
  int64_t H;
  INLINE Angles next() const { return {cosine + H, sine + H, H}; }
};

template <int APART, class Lanes> static INLINE V turn_near(V x, Angles a, Lanes lanes) {
  x = fma(load(a.sine, lanes), other<APART>(x), load(a.cosine, lanes) * x);
  if constexpr (APART > 1) return turn_near<APART / 2>(x, a.next(), lanes);
  return x;
}
// From the gradient of what `turn_near` makes of x to that of x; to `sums` is added what the angles' gradients are made of.
template <int APART, class Lanes> static INLINE V pull_near(V x, V gradient, Angles a, R *sums, Lanes lanes) {
  const V cosine = load(a.cosine, lanes), sine = load(a.sine, lanes), y = fma(sine, other<APART>(x), cosine * x);
  if constexpr (APART > 1) gradient = pull_near<APART / 2>(y, gradient, a.next(), sums + a.H, lanes);
  store(sums, fma(gradient, other<APART>(y), load(sums, lanes)), lanes);
  return cosine * gradient - sine * other<APART>(gradient);
}
// The same where the first near level turns pairs `apart` lanes away, as many as there are.
template <int APART = LANES / 2, class Lanes> static INLINE V turn(V x, Angles a, int64_t apart, Lanes lanes) {
  if constexpr (APART > 1)
    if (apart < APART) return turn<APART / 2>(x, a, apart, lanes);
  return turn_near<APART>(x, a, lanes);
}
template <int APART = LANES / 2, class Lanes>
static INLINE V pull(V x, V gradient, Angles a, R *sums, int64_t apart, Lanes lanes) {
  if constexpr (APART > 1)
    if (apart < APART) return pull<APART / 2>(x, gradient, a, sums, apart, lanes);
  return pull_near<APART>(x, gradient, a, sums, lanes);
}

// ---------------------------------------------------------------- levels of pairs further apart

// body(i, j) for the first units i of the pairs of a level, and the others j, LANES of them at a time.
template <class Body> static INLINE void over_pairs(int64_t H, int64_t apart, const Body &body) {
  for (int64_t block = 0; block < H; block += 2 * apart)
    for (int64_t i = block; i < block + apart; i += LANES) body(i, i + apart);
}

// A level of `count` rows; to: (count, H).
static void turn_far(int64_t H, int64_t apart, const R *cosine, const R *sine, int64_t count, const R *const *from, R *to) {
  over_pairs(H, apart, [&](const int64_t i, const int64_t j) __attribute__((always_inline)) {
    const V cos = load(cosine + j, Whole{}), sin = load(sine + j, Whole{});
    for (int64_t r = 0; r < count; r++) {
      const V a = load(from[r] + i, Whole{}), b = load(from[r] + j, Whole{});
      store(to + r * H + i, cos * a - sin * b, Whole{}), store(to + r * H + j, fma(sin, a, cos * b), Whole{});
    }
  });
}
// gradient: (count, H), that of y, which the level has made, at first, and that of what it was made of at last.
static void pull_far(int64_t H, int64_t apart, const R *cosine, const R *sine, int64_t count, const R *y, R *gradient,
                     R *sums) {
  over_pairs(H, apart, [&](const int64_t i, const int64_t j) __attribute__((always_inline)) {
    const V cos = load(cosine + j, Whole{}), sin = load(sine + j, Whole{});
    V sum = load(sums + j, Whole{});
    for (int64_t r = 0; r < count; r++) {
      R *const to = gradient + r * H;
      const V a = load(to + i, Whole{}), b = load(to + j, Whole{});
      sum += b * load(y + r * H + i, Whole{}) - a * load(y + r * H + j, Whole{});
      store(to + i, fma(sin, b, cos * a), Whole{}), store(to + j, cos * b - sin * a, Whole{});
    }
    store(sums + j, sum, Whole{});
  });
}

// Far levels, and how far apart pairs of the first near level are.
struct Levels {
  int64_t far, apart;
  INLINE Levels(int64_t H) : far(0), apart(H / 2) {
    for (; apart >= LANES; apart /= 2) far++;
  }
};

// ---------------------------------------------------------------- the walk

// state: (B, H), initial at first and final at last; out: h of each row.
extern "C" void forward(const Walk *walk, int64_t first, int64_t last, const R *gx, const R *cosine, const R *sine,
                        const R *bias, R *state, R *out) {
  const Walk w = *walk;
  const int64_t H = w.hidden;
  const Levels levels(H);
  R *const room = numbers(TOGETHER * H);
  for (int64_t step = 0; step < w.steps; step++) {
    const int64_t t = w.time(step), end = first + w.rows(t, first, last);
    for (int64_t b = first; b < end; b += TOGETHER) {
      const int64_t count = end - b < TOGETHER ? end - b : TOGETHER, row = w.starts[t] + b;
      const R *x[TOGETHER];
      for (int64_t r = 0; r < count; r++) x[r] = state + (b + r) * H;
      for (int64_t l = 0; l < levels.far; l++) {
        turn_far(H, H >> (l + 1), cosine + l * H, sine + l * H, count, x, room);
        for (int64_t r = 0; r < count; r++) x[r] = room + r * H;
      }
      over_units(H, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        const Angles angles = {cosine + levels.far * H + j, sine + levels.far * H + j, H};
        const V shift = load(bias + j, lanes) + R(w.eps);
        for (int64_t r = 0; r < count; r++) {
          const V v = turn(load(x[r] + j, lanes), angles, levels.apart, lanes) + load(gx + (row + r) * H + j, lanes);
          const V fresh = sign(v) * maximum(abs(v) + shift, V{});
          store(state + (b + r) * H + j, fresh, lanes), store(out + (row + r) * H + j, fresh, lanes);
        }
      });
    }
  }
  free(room);
}

// grad: (B, H), the gradient of the final state at first and of the initial one at last; dout: (rows, H) or null; sums:
// (levels, H) and dbias: (H,), added to. The gradient of the angle of units i and j of a level is sums_j - sums_i.
extern "C" void backward(const Walk *walk, int64_t first, int64_t last, const R *cosine, const R *sine, const R *initial,
                         const R *out, const R *dout, R *grad, R *dgx, R *sums, R *dbias) {
  const Walk w = *walk;
  const int64_t H = w.hidden;
  const Levels levels(H);
  R *const made = numbers((levels.far + 1) * TOGETHER * H);  // what each far level has made
  for (int64_t step = w.steps - 1; step >= 0; step--) {
    const int64_t t = w.time(step), end = first + w.rows(t, first, last), before = step ? w.time(step - 1) : 0;
    for (int64_t b = first; b < end; b += TOGETHER) {
      const int64_t count = end - b < TOGETHER ? end - b : TOGETHER, row = w.starts[t] + b;
      R *const gradient = grad + b * H;
      const R *x[TOGETHER];
      for (int64_t r = 0; r < count; r++) {
        const bool begins = step == 0 || b + r >= w.alive[before];
        x[r] = begins ? initial + (b + r) * H : out + (w.starts[before] + b + r) * H;
      }
      for (int64_t l = 0; l < levels.far; l++) {
        R *const to = made + l * TOGETHER * H;
        turn_far(H, H >> (l + 1), cosine + l * H, sine + l * H, count, x, to);
        for (int64_t r = 0; r < count; r++) x[r] = to + r * H;
      }
      over_units(H, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
        const int64_t near = levels.far * H + j;
        V shifted = load(dbias + j, lanes);
        for (int64_t r = 0; r < count; r++) {
          const V fresh = load(out + (row + r) * H + j, lanes);
          V above = load(gradient + r * H + j, lanes);
          if (dout) above += load(dout + (row + r) * H + j, lanes);
          above = where(fresh != V{}, above, V{});  // where |v| + eps + bias is not positive, or v is 0, it is flat
          store(dgx + (row + r) * H + j, above, lanes);
          shifted = fma(above, sign(fresh), shifted);
          const V pulled = pull(load(x[r] + j, lanes), above, {cosine + near, sine + near, H}, sums + near, levels.apart, lanes);
          store(gradient + r * H + j, pulled, lanes);
        }
        store(dbias + j, shifted, lanes);
      });
      for (int64_t l = levels.far - 1; l >= 0; l--)
        pull_far(H, H >> (l + 1), cosine + l * H, sine + l * H, count, made + l * TOGETHER * H, gradient, sums + l * H);
    }
  }
  free(made);
}
