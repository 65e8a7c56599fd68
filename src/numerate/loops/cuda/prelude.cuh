// What every emitted CUDA loop is built on: the random streams, the functions of the intermediate form, and sums over
// the THREADS threads of one member. Includes nothing, since the compiler at run time brings no headers.
#define INLINE __device__ __forceinline__
#define UNROLL _Pragma("unroll")

typedef unsigned int u32;
typedef unsigned long long u64;

// ---------------------------------------------------------------- random streams: Philox4x32-10

INLINE u64 wide_product(u32 a, u32 b) {
#if __CUDA_ARCH__
  u64 result;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(result) : "r"(a), "r"(b));  // one instruction
  return result;
#else
  return u64(a) * b;
#endif
}

// The numbers of one step of one member. In the first two rounds half of the words do not depend on the block; `start`
// keeps them. The other half do not depend on the step, and the compiler keeps them where there are few.
struct Stream {
  u32 seed, domain;
  u32 c0_partly, c2_partly, c3;  // of the second round

  INLINE void start(u64 step) {
    const u64 second = wide_product(0xCD9E8D57u, u32(step >> 32));
    const u64 first = wide_product(0xD2511F53u, u32(second >> 32) ^ u32(step) ^ seed);
    c0_partly = u32(second) ^ (seed + 0x9E3779B9u);
    c2_partly = u32(first >> 32) ^ (domain + 0xBB67AE85u);
    c3 = u32(first);
  }

  // The numbers at positions 4 * block, ..., 4 * (block + BLOCKS) - 1; side by side, since each round waits for the last.
  template <int BLOCKS> INLINE void draw(u32 block, float *out) const {
    u32 a[BLOCKS], b[BLOCKS], c[BLOCKS], d[BLOCKS];
    UNROLL for (int k = 0; k < BLOCKS; k++) {
      const u64 first = wide_product(0xD2511F53u, block + k);
      const u64 second = wide_product(0xCD9E8D57u, u32(first >> 32) ^ domain);
      a[k] = u32(second >> 32) ^ c0_partly, b[k] = u32(second), c[k] = u32(first) ^ c2_partly, d[k] = c3;
    }
    UNROLL for (u32 round = 2; round < 10; round++) {
      UNROLL for (int k = 0; k < BLOCKS; k++) {
        const u64 first = wide_product(0xD2511F53u, a[k]), second = wide_product(0xCD9E8D57u, c[k]);
        a[k] = u32(second >> 32) ^ b[k] ^ (seed + round * 0x9E3779B9u), b[k] = u32(second);
        c[k] = u32(first >> 32) ^ d[k] ^ (domain + round * 0xBB67AE85u), d[k] = u32(first);
      }
    }
    UNROLL for (int k = 0; k < BLOCKS; k++) {
      out[4 * k] = unit_interval(a[k]), out[4 * k + 1] = unit_interval(b[k]);
      out[4 * k + 2] = unit_interval(c[k]), out[4 * k + 3] = unit_interval(d[k]);
    }
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
    value = JOIN(value, __shfl_xor_sync(BLOCK < 32 ? (1u << BLOCK % 32) - 1 : 0xFFFFFFFFu, value, distance));
  return value;
}

// The sum of all threads of a warp.
INLINE double over_warp(double value) {
  UNROLL for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
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

// The mean losses of the COUNT members from `member` on, from the sums of all threads of a block; `parts`: one number per
// member and warp, in shared memory. What lies in shared memory is free after.
template <int COUNT>
INLINE void mean_over_threads(double *sums, double (*parts)[(THREADS + 31) / 32], float *losses, int member, int count) {
  const int thread = threadIdx.x;
  UNROLL for (int m = 0; m < COUNT; m++) {
    sums[m] = over_warp(sums[m]);
    if (thread % 32 == 0) parts[m][thread / 32] = sums[m];
  }
  together();
  if (thread < COUNT) {
    double sum = parts[thread][0];
    UNROLL for (int warp = 1; warp < THREADS / 32; warp++) sum += parts[thread][warp];
    losses[member + thread] = float(sum / count);
  }
  together();
}
