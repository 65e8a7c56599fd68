// What every emitted loop is built on: vectors with one ensemble member per lane, random streams, elementary functions,
// and blocks of four examples.
//
// Written with the vector extensions that GCC (12 or later) and clang share; the few intrinsics are chosen by the
// preprocessor and have a portable twin. The functions are our own, so that results do not depend on a library (but for
// sin and cos beyond 10,000): each is within 3.1 units in the last place, and right for infinities, NaN and denormals.
#include <stdint.h>
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))  // long or rare: once in the library, however often it is used
#define UNLIKELY(condition) __builtin_expect(condition, 0)

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float V __attribute__((vector_size(4 * LANES)));     // one number per member
typedef decltype(V{} < V{}) M;                              //  one truth value per member: 0 or -1
typedef uint32_t U __attribute__((vector_size(4 * LANES)));  // one word per member
typedef uint64_t W __attribute__((vector_size(4 * LANES)));  // one word for every second member
typedef double D __attribute__((vector_size(8 * LANES)));    // one number per member, in double precision
typedef int64_t L __attribute__((vector_size(8 * LANES)));

// ---------------------------------------------------------------- random streams: Philox4x32-10

// Products of the low halves.
static INLINE W multiply_words(W a, W b) {
#if LANES == 16
  return (W)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif LANES == 8
  return (W)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (W)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
}

static INLINE W exclusive_or(W a, W b, W c) {
#if LANES == 16
  return (W)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, 0x96);
#else
  return a ^ b ^ c;
#endif
}

// A word for each lane, even and odd lanes apart, so that a product has room; upper halves hold rubbish.
struct Words {
  W even, odd;
};

static INLINE Words split(U words) { return {(W)words & 0xFFFFFFFFu, (W)words >> 32}; }
static INLINE U join(Words w) { return (U)((w.even & 0xFFFFFFFFu) | (w.odd << 32)); }
static INLINE Words broadcast(uint32_t word) { return {W{} + word, W{} + word}; }
static INLINE Words exclusive_or(Words a, Words b, Words c) {
  return {exclusive_or(a.even, b.even, c.even), exclusive_or(a.odd, b.odd, c.odd)};
}
static INLINE Words upper(Words w) { return {w.even >> 32, w.odd >> 32}; }

const uint32_t PHILOX_FACTOR[2] = {0xD2511F53u, 0xCD9E8D57u}, PHILOX_KEY_STEP[2] = {0x9E3779B9u, 0xBB67AE85u};

static INLINE Words philox_product(Words w, int which) {
  const W factor = W{} + uint64_t(PHILOX_FACTOR[which]);
  return {multiply_words(w.even, factor), multiply_words(w.odd, factor)};
}

struct Counter {
  Words c0, c1, c2, c3;
};

static INLINE Counter philox_round(Counter c, Words k0, Words k1) {
  const Words p0 = philox_product(c.c0, 0), p1 = philox_product(c.c2, 1);
  return {exclusive_or(upper(p1), c.c1, k0), p1, exclusive_or(upper(p0), c.c3, k1), p0};
}

// The 24 upper bits of each word as a number in [0, 1).
static INLINE V unit_interval(U words) { return __builtin_convertvector((M)(words >> 8), V) * 0x1p-24f; }

// The numbers of one step: every lane has the key (seed of its member, domain), all share the counter.
// In the first two rounds half of the words are equal in all lanes and the other half do not depend on the position;
// `start` keeps the latter, so that `draw` computes eight rounds instead of ten.
struct Stream {
  Words key[10];  // the member's key word in each round
  uint32_t domain;
  uint32_t high;         // c1 after round 1
  Words c2_partly, c3;  // c2 (without the position's part) and c3 after round 2

  INLINE Stream(U seeds, uint32_t domain_) : domain(domain_) {
    for (uint32_t round = 0; round < 10; round++) key[round] = split(seeds + round * PHILOX_KEY_STEP[0]);
  }

  INLINE void start(uint64_t step) {
    const uint64_t product = uint64_t(PHILOX_FACTOR[1]) * uint32_t(step >> 32);
    const Words c0 = exclusive_or(key[0], broadcast(uint32_t(step)), broadcast(product >> 32));
    high = uint32_t(product);
    c3 = philox_product(c0, 0);
    c2_partly = exclusive_or(upper(c3), broadcast(domain + PHILOX_KEY_STEP[1]), broadcast(0));
  }

  // The numbers at positions 4 * block, ..., 4 * block + 3.
  INLINE void draw(uint32_t block, V *out) const {
    const uint64_t first = uint64_t(PHILOX_FACTOR[0]) * block;
    const uint64_t second = uint64_t(PHILOX_FACTOR[1]) * (uint32_t(first >> 32) ^ domain);
    Counter c = {exclusive_or(key[1], broadcast(uint32_t(second >> 32) ^ high), broadcast(0)), broadcast(uint32_t(second)),
                 exclusive_or(c2_partly, broadcast(uint32_t(first)), broadcast(0)), c3};
#pragma GCC unroll 10
    for (uint32_t round = 2; round < 10; round++)
      c = philox_round(c, key[round], broadcast(domain + round * PHILOX_KEY_STEP[1]));
    out[0] = unit_interval(join(c.c0)), out[1] = unit_interval(join(c.c1));
    out[2] = unit_interval(join(c.c2)), out[3] = unit_interval(join(c.c3));
  }
};

// ---------------------------------------------------------------- memory and numbers

static INLINE V load(const float *from) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
static INLINE void store(float *to, V value) { __builtin_memcpy(to, &value, sizeof value); }
static INLINE U load_words(const uint32_t *from) {
  U value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

// The same address, which the compiler then keeps instead of finding it out again.
template <class T>
static INLINE T *pin_address(T *address) {
  asm("" : "+r"(address));
  return address;
}

static INLINE V c(float number) { return number - V{}; }  // a constant; the subtraction keeps -0
static INLINE M c(bool truth) { return truth ? ~M{} : M{}; }
const float INF = __builtin_inff(), NOT_A_NUMBER = __builtin_nanf("");

static INLINE bool same(V a, V b) { return ((U)a)[0] == ((U)b)[0]; }  // bit for bit, in the first lane

static INLINE bool any(M m) {
#if LANES == 16
  return _mm512_movepi32_mask((__m512i)m) != 0;
#elif LANES == 8
  return _mm256_movemask_epi8((__m256i)m) != 0;
#else
  return (m[0] | m[1] | m[2] | m[3]) != 0;
#endif
}

static INLINE U largest(U a, U b) {
#if LANES == 16
  return (U)_mm512_max_epu32((__m512i)a, (__m512i)b);
#elif LANES == 8
  return (U)_mm256_max_epu32((__m256i)a, (__m256i)b);
#else
  return a > b ? a : b;
#endif
}

static INLINE bool any_at_least(U words, uint32_t limit) {
#if LANES == 16
  return _mm512_cmpge_epu32_mask((__m512i)words, _mm512_set1_epi32(limit)) != 0;
#else
  return any((M)(words >= limit));
#endif
}

// ---------------------------------------------------------------- elementary functions, lane by lane
//
// Arguments of everyday size take the short way, `f_moderate`; if `f_range` of any lane is `f_limit` or more, `f_extreme`
// settles it for all lanes, with the same bits in those that did not need it.
#define GUARDED(f)                                                                \
  static INLINE V f(V x) {                                                        \
    const V result = f##_moderate(x);                                             \
    return UNLIKELY(any_at_least(f##_range(x), f##_limit)) ? f##_extreme(x) : result; \
  }

static INLINE V fma(V a, V b, V addend) {
#if LANES == 16
  return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)addend);
#elif LANES == 8 && defined(__FMA__)
  return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)addend);
#elif defined(__ARM_NEON)
  return (V)vfmaq_f32((float32x4_t)addend, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + addend;
#endif
}

static INLINE V sqrt(V x) {
#if LANES == 16
  return (V)_mm512_sqrt_ps((__m512)x);
#elif LANES == 8
  return (V)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
  return (V)_mm_sqrt_ps((__m128)x);
#else
  for (int lane = 0; lane < LANES; lane++) x[lane] = __builtin_sqrtf(x[lane]);
  return x;
#endif
}

static INLINE V where(M m, V a, V b) { return m ? a : b; }
static INLINE M where(M m, M a, M b) { return (m & a) | (~m & b); }
static INLINE V to_float(M m) { return (V)(m & (M)c(1.0f)); }
static INLINE V abs(V x) { return (V)((U)x & 0x7FFFFFFFu); }
static INLINE V with_sign_of(V size, V x) { return (V)((U)size | ((U)x & 0x80000000u)); }
static INLINE V sign(V x) { return to_float(x > 0) - to_float(x < 0); }
static INLINE V minimum(V a, V b) { return where((b < a) | (b != b), b, a); }
static INLINE V maximum(V a, V b) { return where((b > a) | (b != b), b, a); }

static INLINE V round(V x) {  // half to even
  const V size = abs(x), rounded = (size + 0x1p23f) - 0x1p23f;
  return with_sign_of(where(size < 0x1p23f, rounded, size), x);
}
static INLINE V trunc(V x) {
  const V size = abs(x), rounded = round(size);
  return with_sign_of(rounded - to_float(rounded > size), x);
}
static INLINE V floor(V x) {
  const V rounded = round(x);
  return rounded - to_float(rounded > x);
}
static INLINE V ceil(V x) { return -floor(-x); }

static INLINE V power_of_two(M n) { return (V)((n + 127) << 23); }  // n from -126 to 127

// exp(r) - 1 for |r| <= log(2) / 2.
static INLINE V expm1_reduced(V r) {
  V p = fma(c(1.9875691500e-4f), r, c(1.3981999507e-3f));
  p = fma(p, r, c(8.3334519073e-3f));
  p = fma(p, r, c(4.1665795894e-2f));
  p = fma(p, r, c(1.6666665459e-1f));
  p = fma(p, r, c(5.0000001201e-1f));
  return fma(p * r, r, r);
}

// x = n log(2) + r; n is returned as a number and added to `exponent` as an integer.
static INLINE V reduce_by_log2(V x, M &exponent) {
  const V shifted = fma(x, c(1.44269504f), c(0x1.8p23f)), n = shifted - 0x1.8p23f;
  exponent = (M)shifted - (M)c(0x1.8p23f);
  return fma(n, c(-1.42860677e-6f), fma(n, c(-0.693145752f), x));
}

// exp everywhere: two factors, so that denormal results and infinity come out right.
static NOINLINE V exp_extreme(V x) {
  M n;
  const V r = reduce_by_log2(minimum(maximum(x, c(-104.0f)), c(89.0f)), n);
  const M half = n >> 1;
  return (expm1_reduced(r) + 1.0f) * power_of_two(half) * power_of_two(n - half);
}
static INLINE V exp_moderate(V x) {
  M n;
  const V r = reduce_by_log2(x, n);
  return (V)((M)(expm1_reduced(r) + 1.0f) + (n << 23));
}
static INLINE U exp_range(V x) { return (U)abs(x); }
const uint32_t exp_limit = 0x42AE0000u;  // bits of 87
GUARDED(exp)

// exp(x) - 1 for x from -20 to 87.
static INLINE V expm1_moderate(V x) {
  M n;
  const V r = reduce_by_log2(x, n), scale = power_of_two(n);
  return fma(expm1_reduced(r), scale, scale - 1.0f);
}
static NOINLINE V expm1_extreme(V x) {
  const V moderate = expm1_moderate(minimum(maximum(x, c(-20.0f)), c(87.0f)));
  return where(x > 87.0f, exp_extreme(x), where(x == 0.0f, x, moderate));
}
static INLINE U expm1_range(V x) { return (U)abs(x) - 1u; }  // exact zeros keep their sign in the other function
const uint32_t expm1_limit = 0x41A00000u - 1u;               // bits of 20
GUARDED(expm1)

// log(x) - shift log(2) for normal positive x: with 1 + f between 1/sqrt(2) and sqrt(2),
// log(1 + f) = f - f f / 2 + f f f p(f)
static INLINE V log_normal(V x, V shift) {
  const M centred = (M)x - 0x3F3504F3;  // bits of 1/sqrt(2)
  const V n = __builtin_convertvector(centred >> 23, V) - shift;
  const V f = (V)((centred & 0x007FFFFF) + 0x3F3504F3) - 1.0f;
  V p = fma(c(7.0376836292e-2f), f, c(-1.1514610310e-1f));
  p = fma(p, f, c(1.1676998740e-1f));
  p = fma(p, f, c(-1.2420140846e-1f));
  p = fma(p, f, c(1.4249322787e-1f));
  p = fma(p, f, c(-1.6668057665e-1f));
  p = fma(p, f, c(2.0000714765e-1f));
  p = fma(p, f, c(-2.4999993993e-1f));
  p = fma(p, f, c(3.3333331174e-1f));
  const V square = f * f;
  const V tail = fma(n, c(-2.12194440e-4f), fma(square * f, p, square * -0.5f));
  return fma(n, c(0.693359375f), f + tail);
}
static NOINLINE V log_extreme(V x) {
  const M tiny = x < 0x1p-126f;
  const V result = log_normal(where(tiny, x * 0x1p23f, x), where(tiny, c(23.0f), V{}));
  const V edge = where(x == 0.0f, c(-INF), where(x == INF, x, c(NOT_A_NUMBER)));
  return where((x > 0.0f) & (x < INF), result, edge);
}
static INLINE V log_moderate(V x) { return log_normal(x, V{}); }
static INLINE U log_range(V x) { return (U)x - 0x00800000u; }
const uint32_t log_limit = 0x7F000000u;  // not normal and positive
GUARDED(log)

static INLINE V log1p(V x) {
  const V u = x + 1.0f, lost = x - (u - 1.0f);
  const V result = log(u) + lost / u;
  return where((u == 1.0f) | (x == INF), x, where(u == 0.0f, c(-INF), result));
}

static INLINE V sigmoid(V x) { return 1.0f / (1.0f + exp(-x)); }

// Far from 0 by its distance from 1, so that 1 - tanh(x)^2 vanishes where it should and not before.
static INLINE V tanh(V x) {
  const V size = abs(x), grown = expm1_moderate(2.0f * minimum(size, c(10.0f)));
  const M far = size > 0.55f;
  const V part = where(far, c(2.0f), grown) / (grown + 2.0f);
  return with_sign_of(where(far, 1.0f - part, part), x);
}

// Large arguments are left to the library, in double precision.
static INLINE V sine_moderate(V x, int quarters);
static NOINLINE V sine_extreme(V x, int quarters) {
  V result = sine_moderate(x, quarters);
  for (int lane = 0; lane < LANES; lane++)
    if (!(__builtin_fabsf(x[lane]) < 1e4f)) result[lane] = quarters ? __builtin_cos(x[lane]) : __builtin_sin(x[lane]);
  return result;
}

// Sine of x + quarters * pi/2.
static INLINE V sine_moderate(V x, int quarters) {
  const V shifted = fma(x, c(0.636619772f), c(0x1.8p23f)), n = shifted - 0x1.8p23f;
  const V r = fma(n, c(1.71512451e-15f), fma(n, c(4.37113883e-8f), fma(n, c(-1.57079637f), x))), z = r * r;
  V s = fma(c(-1.9515295891e-4f), z, c(8.3321608736e-3f));
  s = fma(s, z, c(-1.6666654611e-1f));
  s = fma(s * z, r, r);
  V k = fma(c(2.443315711809948e-5f), z, c(-1.388731625493765e-3f));
  k = fma(k, z, c(4.166664568298827e-2f));
  k = fma(k, z, c(-0.5f));
  k = fma(k, z, c(1.0f));
  const M quadrant = (M)shifted + quarters;
  const V size = where((quadrant & 1) != 0, k, s);
  return (V)((U)size ^ ((U)(quadrant & 2) << 30));
}
static INLINE V sin_moderate(V x) { return sine_moderate(x, 0); }
static INLINE V cos_moderate(V x) { return sine_moderate(x, 1); }
static INLINE V sin_extreme(V x) { return sine_extreme(x, 0); }
static INLINE V cos_extreme(V x) { return sine_extreme(x, 1); }
static INLINE U sin_range(V x) { return (U)abs(x); }
static INLINE U cos_range(V x) { return (U)abs(x); }
const uint32_t sin_limit = 0x461C4000u, cos_limit = sin_limit;  // bits of 10000
GUARDED(sin)
GUARDED(cos)

// atan of x in [0, 1]
static INLINE V atan_reduced(V x) {
  const M upper = x > 0.414213562f;
  const V t = where(upper, (x - 1.0f) / (x + 1.0f), x), z = t * t;
  V p = fma(c(8.05374449538e-2f), z, c(-1.38776856032e-1f));
  p = fma(p, z, c(1.99777106478e-1f));
  p = fma(p, z, c(-3.33329491539e-1f));
  return fma(p * z, t, t) + where(upper, c(0.785398163f), V{});
}
static NOINLINE V atan(V x) {
  const V size = abs(x);
  const M large = size > 1.0f;
  const V angle = atan_reduced(where(large, 1.0f / size, size));
  return with_sign_of(where(large, 1.57079633f - angle, angle), x);
}
static NOINLINE V atan2(V y, V x) {
  const V height = abs(y), width = abs(x);
  const M steep = height > width, equal = height == width;
  V ratio = where(steep, width, height) / where(steep, height, width);
  ratio = where(equal, where(height == 0.0f, V{}, c(1.0f)), ratio);
  V angle = atan_reduced(ratio);
  angle = where(steep, 1.57079633f - angle, angle);
  angle = where((M)x < 0, 3.14159265f - angle, angle);
  return where((x != x) | (y != y), c(NOT_A_NUMBER), with_sign_of(angle, y));
}

static NOINLINE V erf(V x) {
  const V t = minimum(abs(x), c(4.0f)), z = x * x, square = t * t;
  V far = fma(c(-1.72853470e-5f), t, c(3.83197126e-4f));
  far = fma(far, square, fma(c(-3.88396438e-3f), t, c(2.42546219e-2f)));
  far = fma(far, t, c(-1.06777877e-1f));
  far = fma(far, t, c(-6.34846687e-1f));
  far = fma(far, t, c(-1.28717512e-1f));
  far = fma(far, t, -t);
  V near = fma(c(-5.96761703e-4f), z, c(4.99119423e-3f));
  near = fma(near, z, c(-2.67681349e-2f));
  near = fma(near, z, c(1.12819925e-1f));
  near = fma(near, z, c(-3.76125336e-1f));
  near = fma(near, z, c(1.28379166e-1f));
  return where(t > 0.927734375f, with_sign_of(1.0f - exp(far), x), fma(near, x, x));
}

// x to the power y through double precision.
static NOINLINE V pow(V x, V y) {
  const V size = abs(x);
  const D d = __builtin_convertvector(size, D), e = __builtin_convertvector(y, D);
  const L bits = (L)d - 0x3FE6A09E667F3BCDll;  // bits of 1/sqrt(2)
  const D n = __builtin_convertvector(bits >> 52, D);
  const D m = (D)((bits & 0x000FFFFFFFFFFFFFll) + 0x3FE6A09E667F3BCDll);
  const D s = (m - 1.0) / (m + 1.0), z = s * s;
  const D series =
      1.0 + z * (1 / 3.0 + z * (1 / 5.0 + z * (1 / 7.0 + z * (1 / 9.0 + z * (1 / 11.0 + z * (1 / 13.0 + z * (1 / 15.0)))))));
  D power = e * (n + s * series * 2.8853900817779268);  // y log2 |x|
  power = power > 300.0 ? 300.0 - D{} : power;
  power = power < -300.0 ? -300.0 - D{} : power;
  const D shifted = power + 0x1.8p52, whole = shifted - 0x1.8p52, f = (power - whole) * 0.69314718055994531;
  const D grown =
      1.0 + f * (1.0 + f * (1 / 2.0 + f * (1 / 6.0 + f * (1 / 24.0 + f * (1 / 120.0 + f * (1 / 720.0 + f * (1 / 5040.0 + f * (1 / 40320.0 + f * (1 / 362880.0 + f * (1 / 3628800.0))))))))));
  const D scale = (D)(((L)shifted - (L)(0x1.8p52 - D{}) + 1023) << 52);
  V result = __builtin_convertvector(grown * scale, V);
  const M grows = (size > 1.0f) == (y > 0.0f);
  const M limit = (size == 0.0f) | (size == INF) | (abs(y) == INF);
  result = where(limit, where(size == 1.0f, c(1.0f), where(grows, c(INF), V{})), result);
  const V half = y * 0.5f;
  const M whole_number = floor(y) == y, odd = whole_number & (floor(half) != half);
  const M negative = (M)x < 0;
  result = where(negative & odd, -result, result);
  result = where((x < 0.0f) & ~whole_number & (size != INF), c(NOT_A_NUMBER), result);
  result = where((x != x) | (y != y), c(NOT_A_NUMBER), result);
  return where((y == 0.0f) | (x == 1.0f), c(1.0f), result);
}

// ---------------------------------------------------------------- four examples at once

template <class T>
struct Block {
  T p, q, r, s;
  INLINE Block() = default;
  INLINE Block(T each) : p(each), q(each), r(each), s(each) {}
  INLINE Block(T p_, T q_, T r_, T s_) : p(p_), q(q_), r(r_), s(s_) {}
};
typedef Block<V> B;
typedef Block<M> BM;

// `name` for blocks, given as an expression in x (and y, z) for one example; a plain operand counts for all four.
#define LIFT1(R, name, T, expression)                                                    \
  static INLINE Block<R> name(Block<T> a) {                                              \
    const auto each = [](T x) __attribute__((always_inline)) -> R { return expression; }; \
    return {each(a.p), each(a.q), each(a.r), each(a.s)};                                 \
  }
#define LIFT2(R, name, T, expression)                                                          \
  static INLINE Block<R> name(Block<T> a, Block<T> b) {                                        \
    const auto each = [](T x, T y) __attribute__((always_inline)) -> R { return expression; };  \
    return {each(a.p, b.p), each(a.q, b.q), each(a.r, b.r), each(a.s, b.s)};                   \
  }                                                                                            \
  static INLINE Block<R> name(Block<T> a, T b) { return name(a, Block<T>(b)); }                \
  static INLINE Block<R> name(T a, Block<T> b) { return name(Block<T>(a), b); }

LIFT2(V, operator+, V, x + y)
LIFT2(V, operator-, V, x - y)
LIFT2(V, operator*, V, x * y)
LIFT2(V, operator/, V, x / y)
LIFT2(M, operator<, V, x < y)
LIFT2(M, operator<=, V, x <= y)
LIFT2(M, operator>, V, x > y)
LIFT2(M, operator>=, V, x >= y)
LIFT2(M, operator==, V, x == y)
LIFT2(M, operator!=, V, x != y)
LIFT2(M, operator&, M, x & y)
LIFT2(M, operator|, M, x | y)
LIFT2(M, operator^, M, x ^ y)
LIFT1(M, operator~, M, ~x)
LIFT1(V, operator-, V, -x)
LIFT2(V, minimum, V, minimum(x, y))
LIFT2(V, maximum, V, maximum(x, y))
LIFT2(V, pow, V, pow(x, y))
LIFT2(V, atan2, V, atan2(x, y))
LIFT1(V, to_float, M, to_float(x))
LIFT1(V, abs, V, abs(x))
LIFT1(V, sign, V, sign(x))
LIFT1(V, sqrt, V, sqrt(x))
LIFT1(V, log1p, V, log1p(x))
LIFT1(V, tanh, V, tanh(x))
LIFT1(V, atan, V, atan(x))
LIFT1(V, erf, V, erf(x))
LIFT1(V, floor, V, floor(x))
LIFT1(V, ceil, V, ceil(x))
LIFT1(V, round, V, round(x))
LIFT1(V, trunc, V, trunc(x))

// One question for the whole block whether any argument is out of the ordinary.
#define GUARDED_BLOCK(f)                                                                           \
  static INLINE B f(B a) {                                                                         \
    const B result = {f##_moderate(a.p), f##_moderate(a.q), f##_moderate(a.r), f##_moderate(a.s)};  \
    const U range = largest(largest(f##_range(a.p), f##_range(a.q)), largest(f##_range(a.r), f##_range(a.s))); \
    if (UNLIKELY(any_at_least(range, f##_limit))) return {f##_extreme(a.p), f##_extreme(a.q), f##_extreme(a.r), f##_extreme(a.s)}; \
    return result;                                                                                 \
  }
GUARDED_BLOCK(exp)
GUARDED_BLOCK(expm1)
GUARDED_BLOCK(log)
GUARDED_BLOCK(sin)
GUARDED_BLOCK(cos)
static INLINE B sigmoid(B x) { return c(1.0f) / (c(1.0f) + exp(-x)); }

static INLINE B fma(B a, B b, B c) {
  return {fma(a.p, b.p, c.p), fma(a.q, b.q, c.q), fma(a.r, b.r, c.r), fma(a.s, b.s, c.s)};
}
static INLINE B where(BM m, B a, B b) {
  return {where(m.p, a.p, b.p), where(m.q, a.q, b.q), where(m.r, a.r, b.r), where(m.s, a.s, b.s)};
}
static INLINE BM where(BM m, BM a, BM b) { return (m & a) | (~m & b); }

// The four examples of a block that lie `stride` apart in memory.
static INLINE B gather(const V *from, int64_t stride) {
  return {from[0], from[stride], from[2 * stride], from[3 * stride]};
}
static INLINE B gather(const float *from, int64_t stride) {
  return {c(from[0]), c(from[stride]), c(from[2 * stride]), c(from[3 * stride])};
}

// In evaluation one lane is one example: four vectors of examples that lie side by side in memory.
const int EXAMPLES = 4 * LANES;
static INLINE B adjacent(const float *from) {
  return {load(from), load(from + LANES), load(from + 2 * LANES), load(from + 3 * LANES)};
}

// Sum over the examples of a block, or over its first `count`.
static INLINE V total(B a) { return (a.p + a.q) + (a.r + a.s); }
static INLINE V total(B a, B b) { return fma(a.p, b.p, a.q * b.q) + fma(a.r, b.r, a.s * b.s); }
static INLINE V partial_total(B a, int64_t count) {
  return a.p + (count > 1 ? a.q : V{}) + (count > 2 ? a.r : V{}) + (count > 3 ? a.s : V{});
}

// Sum over the four vectors, of the first `count` examples only.
static INLINE V total_of_first(B a, int64_t count) {
  if (UNLIKELY(count < EXAMPLES)) {
    V *const parts[4] = {&a.p, &a.q, &a.r, &a.s};
    for (int64_t example = count; example < EXAMPLES; example++) (*parts[example / LANES])[example % LANES] = 0.0f;
  }
  return total(a);
}
static INLINE double sum_of_lanes(V a) {
  double sums[4] = {};
  for (int lane = 0; lane < LANES; lane++) sums[lane % 4] += a[lane];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Note the step after which a member first had a parameter that is not finite; `probe` is NaN in such lanes, else 0.
static INLINE void note_divergence(V probe, int64_t step, int64_t *diverged) {
  const M found = probe != 0.0f;
  if (UNLIKELY(any(found)))
    for (int lane = 0; lane < LANES; lane++)
      if (found[lane] && diverged[lane] < 0) diverged[lane] = step;
}
