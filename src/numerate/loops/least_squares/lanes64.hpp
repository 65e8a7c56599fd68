// Elementary functions of double-precision vectors that are called often, without a call per lane. Needs prelude64.hpp.
static INLINE bool any(M m) {
#if LANES == 8
  return _mm512_movepi64_mask((__m512i)m) != 0;
#elif LANES == 4
  return _mm256_movemask_pd((__m256d)m) != 0;
#else
  return m[0] | m[1];
#endif
}

static INLINE V sqrt_lanes(V x) {
#if LANES == 8
  return (V)_mm512_sqrt_pd((__m512d)x);
#elif LANES == 4
  return (V)_mm256_sqrt_pd((__m256d)x);
#else
  return sqrt(x);
#endif
}

static INLINE V abs_lanes(V x) { return (V)((M)x & 0x7FFFFFFFFFFFFFFFll); }

// exp(x), within 1 unit in the last place where it is a normal number.
static INLINE V exp_lanes(V x) {
  const V clipped = minimum(maximum(x, c(-746.0)), c(710.0));
  const V shifted = fma(clipped, c(1.4426950408889634), c(0x1.8p52)), n = shifted - 0x1.8p52;
  const V f = fma(n, c(-1.9082149292705877e-10), fma(n, c(-6.93147180369123816490e-01), clipped));
  V p = c(1.6059043836821613e-10);
  p = fma(p, f, c(2.08767569878681e-09));
  p = fma(p, f, c(2.505210838544172e-08));
  p = fma(p, f, c(2.755731922398589e-07));
  p = fma(p, f, c(2.7557319223985893e-06));
  p = fma(p, f, c(2.48015873015873e-05));
  p = fma(p, f, c(1.984126984126984e-04));
  p = fma(p, f, c(1.388888888888889e-03));
  p = fma(p, f, c(8.333333333333333e-03));
  p = fma(p, f, c(4.1666666666666664e-02));
  p = fma(p, f, c(1.6666666666666666e-01));
  p = fma(p, f, c(0.5));
  p = fma(p * f, f, f) + 1.0;
  const M whole = (M)shifted - (M)c(0x1.8p52), half = whole >> 1;  // two factors: 2^n alone may be no number
  const V result = p * (V)((half + 1023) << 52) * (V)((whole - half + 1023) << 52);
  return where(x > 709.782712893384, c(INF), result);
}


// log(x), within 1 unit in the last place; the polynomial is FreeBSD's (msun, e_log.c).
static INLINE V log_lanes(V x) {
  const M tiny = x < 0x1p-1022;
  const V scaled = where(tiny, x * 0x1p54, x);
  const M bits = (M)scaled - 0x3FE6A09E667F3BCDll;  // bits of 1/sqrt(2)
  const V k = __builtin_convertvector(bits >> 52, V) - where(tiny, c(54.0), V{});
  const V f = (V)((bits & 0x000FFFFFFFFFFFFFll) + 0x3FE6A09E667F3BCDll) - 1.0;
  const V s = f / (2.0 + f), z = s * s;
  V p = c(1.479819860511658591e-01);
  p = fma(p, z, c(1.531383769920937332e-01));
  p = fma(p, z, c(1.818357216161805012e-01));
  p = fma(p, z, c(2.222219843214978396e-01));
  p = fma(p, z, c(2.857142874366239149e-01));
  p = fma(p, z, c(3.999999999940941908e-01));
  p = fma(p, z, c(6.666666666666735130e-01));
  const V half = 0.5 * f * f;
  const V result = fma(k, c(6.93147180369123816490e-01), f - (half - fma(s, half + z * p, k * 1.90821492927058770002e-10)));
  const V edge = where(x == 0.0, c(-INF), where(x == INF, x, c(NOT_A_NUMBER)));
  return where((x > 0.0) & (x < INF), result, edge);
}
