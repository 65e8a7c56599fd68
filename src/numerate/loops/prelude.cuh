// What every emitted CUDA loop is built on: the random streams, the functions of the intermediate form, and sums over
// the THREADS threads of one member. Includes nothing, since the compiler at run time brings no headers.
#define INLINE __device__ __forceinline__
#define UNROLL _Pragma("unroll")

typedef unsigned int u32;
typedef unsigned long long u64;

// ---------------------------------------------------------------- random streams: Philox4x32-10

// The numbers of one step of one member; the compiler keeps what does not depend on the block, or not on the step.
struct Stream {
  u32 seed, domain;
  u64 step;

  // The numbers at positions 4 * block, ..., 4 * block + 3.
  INLINE void draw(u32 block, float *out) const {
    u32 c0 = block, c1 = u32(step), c2 = u32(step >> 32), c3 = 0;
    UNROLL for (u32 round = 0; round < 10; round++) {
      const u64 first = u64(0xD2511F53u) * c0, second = u64(0xCD9E8D57u) * c2;
      c0 = u32(second >> 32) ^ c1 ^ (seed + round * 0x9E3779B9u), c1 = u32(second);
      c2 = u32(first >> 32) ^ c3 ^ (domain + round * 0xBB67AE85u), c3 = u32(first);
    }
    out[0] = unit_interval(c0), out[1] = unit_interval(c1), out[2] = unit_interval(c2), out[3] = unit_interval(c3);
  }

  static INLINE float unit_interval(u32 word) { return float(word >> 8) * (1.0f / 16777216); }
};

// ---------------------------------------------------------------- functions of the intermediate form

INLINE float sign(float a) { return float(a > 0) - float(a < 0); }
INLINE float sigmoid(float a) { return 1.0f / (1.0f + expf(-a)); }
INLINE bool is_finite(float a) { return fabsf(a) <= 3.402823466e+38f; }
template <class T> INLINE T where(bool condition, T a, T b) { return condition ? a : b; }

// Not a number if either is not.
INLINE float minimum(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a != a ? a : b != b ? b : fminf(a, b);
#endif
}

INLINE float maximum(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a != a ? a : b != b ? b : fmaxf(a, b);
#endif
}

INLINE float add(float a, float b) { return a + b; }
INLINE float multiply(float a, float b) { return a * b; }
INLINE float both(float a, float b) { return float(a != 0 && b != 0); }
INLINE float either(float a, float b) { return float(a != 0 || b != 0); }

// ---------------------------------------------------------------- the threads of one member

// Wait for the member's other threads, and see what they have written.
INLINE void together() {
  if (THREADS <= 32)
    __syncwarp();
  else
    __syncthreads();
}

// All threads get `value` of every thread put together; those of one warp only.
template <float (*JOIN)(float, float)> INLINE float over_warp(float value) {
  UNROLL for (int distance = (THREADS < 32 ? THREADS : 32) / 2; distance > 0; distance /= 2)
    value = JOIN(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  return value;
}

// The same for all threads of the member; `scratch`: one number per warp.
template <float (*JOIN)(float, float)> INLINE float over_threads(float value, float *scratch) {
  value = over_warp<JOIN>(value);
  if (THREADS > 32) {
    const int thread = threadIdx.x % THREADS;
    together();
    if (thread % 32 == 0) scratch[thread / 32] = value;
    together();
    value = scratch[0];
    UNROLL for (int warp = 1; warp < THREADS / 32; warp++) value = JOIN(value, scratch[warp]);
  }
  return value;
}
