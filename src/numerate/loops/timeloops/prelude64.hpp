// Double-precision twin of prelude.hpp, for the time loops: the same names, elementary functions from the C library.
#pragma once
#include <stdint.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define LANES 8
#elif defined(__AVX2__)
#define LANES 4
#else
#define LANES 2
#endif

typedef double V __attribute__((vector_size(8 * LANES)));  // one number per lane
typedef decltype(V{} < V{}) M;                            // one truth value per lane: 0 or -1

const double INF = __builtin_inf(), NOT_A_NUMBER = __builtin_nan("");

static INLINE V c(double number) { return number - V{}; }  // a constant; the subtraction keeps -0
static INLINE M c(bool truth) { return truth ? ~M{} : M{}; }
static INLINE V where(M m, V a, V b) { return m ? a : b; }
static INLINE M where(M m, M a, M b) { return (m & a) | (~m & b); }
static INLINE V to_float(M m) { return (V)(m & (M)c(1.0)); }
static INLINE V sign(V x) { return to_float(x > 0) - to_float(x < 0); }
static INLINE V minimum(V a, V b) { return where((b < a) | (b != b), b, a); }
static INLINE V maximum(V a, V b) { return where((b > a) | (b != b), b, a); }

#define EACH_LANE(name, function)                                             \
  static INLINE V name(V x) {                                                 \
    for (int lane = 0; lane < LANES; lane++) x[lane] = function(x[lane]);     \
    return x;                                                                 \
  }
#define EACH_LANE_OF_TWO(name, function)                                      \
  static INLINE V name(V x, V y) {                                            \
    for (int lane = 0; lane < LANES; lane++) x[lane] = function(x[lane], y[lane]); \
    return x;                                                                 \
  }
EACH_LANE(abs, __builtin_fabs)
EACH_LANE(sqrt, __builtin_sqrt)
EACH_LANE(exp, __builtin_exp)
EACH_LANE(expm1, __builtin_expm1)
EACH_LANE(log, __builtin_log)
EACH_LANE(log1p, __builtin_log1p)
EACH_LANE(sin, __builtin_sin)
EACH_LANE(cos, __builtin_cos)
EACH_LANE(tanh, __builtin_tanh)
EACH_LANE(atan, __builtin_atan)
EACH_LANE(erf, __builtin_erf)
EACH_LANE(floor, __builtin_floor)
EACH_LANE(ceil, __builtin_ceil)
EACH_LANE(round, __builtin_rint)  // half to even
EACH_LANE(trunc, __builtin_trunc)
EACH_LANE_OF_TWO(pow, __builtin_pow)
EACH_LANE_OF_TWO(atan2, __builtin_atan2)
#undef EACH_LANE
#undef EACH_LANE_OF_TWO

static INLINE V fma(V a, V b, V addend) {
#if LANES == 8
  return (V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)addend);
#elif LANES == 4 && defined(__FMA__)
  return (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)addend);
#else
  return a * b + addend;
#endif
}
static INLINE V sigmoid(V x) { return 1.0 / (1.0 + exp(-x)); }
