// Rows of numbers taken as vectors along the units: loads, stores, and the part of a vector at the end of a row.
//
// Included after the definition of V (a vector of LANES numbers), R (one number), M (truth values) and their functions.

struct Whole {};  // all lanes of a vector
struct Part {     // the first `count` lanes
  int64_t count;
};

static INLINE V load(const R *from, Whole) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
static INLINE void store(R *to, V value, Whole) { __builtin_memcpy(to, &value, sizeof value); }
#if defined(__AVX512F__) && defined(__AVX512DQ__)
static INLINE int some(Part part) { return (1 << part.count) - 1; }
static INLINE __m512 load_some(const float *from, int lanes) { return _mm512_maskz_loadu_ps(lanes, from); }
static INLINE __m512d load_some(const double *from, int lanes) { return _mm512_maskz_loadu_pd(lanes, from); }
static INLINE void store_some(float *to, V value, int lanes) { _mm512_mask_storeu_ps(to, lanes, (__m512)value); }
static INLINE void store_some(double *to, V value, int lanes) { _mm512_mask_storeu_pd(to, lanes, (__m512d)value); }
static INLINE V load(const R *from, Part part) { return (V)load_some(from, some(part)); }
static INLINE void store(R *to, V value, Part part) { store_some(to, value, some(part)); }
#else
static INLINE V load(const R *from, Part part) {
  R numbers[LANES] = {};
  for (int64_t lane = 0; lane < part.count; lane++) numbers[lane] = from[lane];
  return load(numbers, Whole{});
}
static INLINE void store(R *to, V value, Part part) {
  R numbers[LANES];
  store(numbers, value, Whole{});
  for (int64_t lane = 0; lane < part.count; lane++) to[lane] = numbers[lane];
}
#endif
static INLINE int64_t count(Whole) { return LANES; }
static INLINE int64_t count(Part part) { return part.count; }

// Numbers that do not lie side by side.
template <class Lanes>
static INLINE V gather(const R *from, int64_t stride, Lanes lanes) {
  R numbers[LANES] = {};
  for (int64_t lane = 0; lane < count(lanes); lane++) numbers[lane] = from[lane * stride];
  return load(numbers, Whole{});
}
template <class Lanes>
static INLINE void scatter(R *to, int64_t stride, V value, Lanes lanes) {
  R numbers[LANES];
  store(numbers, value, Whole{});
  for (int64_t lane = 0; lane < count(lanes); lane++) to[lane * stride] = numbers[lane];
}

// `value` in the lanes that count, `neutral` in the others.
static INLINE V among(V value, R, Whole) { return value; }
static INLINE V among(V value, R neutral, Part part) {
  R numbers[LANES];
  store(numbers, value, Whole{});
  for (int64_t lane = part.count; lane < LANES; lane++) numbers[lane] = neutral;
  return load(numbers, Whole{});
}

// The upper half of the first 2 * `half` lanes at the place of the lower one; what is beyond does not matter.
template <int half>
static INLINE V upper_lanes(V value) {
#if LANES == 16
  return __builtin_shufflevector(value, value, half, half + 1, (half + 2) % 16, (half + 3) % 16, (half + 4) % 16,
                                 (half + 5) % 16, (half + 6) % 16, (half + 7) % 16, 0, 0, 0, 0, 0, 0, 0, 0);
#elif LANES == 8
  return __builtin_shufflevector(value, value, half, half + 1, (half + 2) % 8, (half + 3) % 8, 0, 0, 0, 0);
#elif LANES == 4
  return __builtin_shufflevector(value, value, half, half + 1, 0, 0);
#else
  return __builtin_shufflevector(value, value, half, 0);
#endif
}

// All lanes put together by `join`, pairwise.
template <class Join>
static INLINE R across(V value, const Join &join) {
#if LANES == 16
  value = join(value, upper_lanes<8>(value));
#endif
#if LANES >= 8
  value = join(value, upper_lanes<4>(value));
#endif
#if LANES >= 4
  value = join(value, upper_lanes<2>(value));
#endif
  return join(value, upper_lanes<1>(value))[0];
}

// body(j, lanes) for j = 0, LANES, ... up to `size`.
template <class Body>
static INLINE void over_units(int64_t size, const Body &body) {
  int64_t j = 0;
  for (; j + LANES <= size; j += LANES) body(j, Whole{});
  if (j < size) body(j, Part{size - j});
}
