// Single numbers on a GPU under the names that emitted code uses, and access to memory that other blocks write.
#define INLINE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define KERNEL extern "C" __global__ __launch_bounds__(256, 1)
#define INF __int_as_float(0x7F800000)
#define NOT_A_NUMBER __int_as_float(0x7FFFFFFF)

typedef float R;
typedef float V;
typedef bool M;
typedef long long int64;

INLINE float c(float number) { return number; }
INLINE bool c(bool truth) { return truth; }
INLINE float sign(float a) { return float(a > 0) - float(a < 0); }
INLINE float sigmoid(float a) { return 1.0f / (1.0f + expf(-a)); }
INLINE float minimum(float a, float b) { return a != a ? a : b != b ? b : fminf(a, b); }
INLINE float maximum(float a, float b) { return a != a ? a : b != b ? b : fmaxf(a, b); }
template <class T> INLINE T where(bool condition, T a, T b) { return condition ? a : b; }

#ifdef __CUDACC__
INLINE float half_to_float(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
INLINE unsigned short float_to_half(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#endif

// bfloat16: the upper half of a float.
struct BFloat16 {
  unsigned short bits;
};
INLINE float number(float a) { return a; }
INLINE float number(BFloat16 a) { return __uint_as_float(unsigned(a.bits) << 16); }
struct Half {  // float16
  unsigned short bits;
};
INLINE float number(Half a) { return half_to_float(a.bits); }
template <class T> INLINE T stored(float a);
template <> INLINE float stored<float>(float a) { return a; }
template <> INLINE BFloat16 stored<BFloat16>(float a) {  // half to even
  const unsigned bits = __float_as_uint(a);
  const unsigned rounded = a != a ? 0x7FC00000u : bits + 0x7FFFu + (bits >> 16 & 1);
  return {(unsigned short)(rounded >> 16)};
}
template <> INLINE Half stored<Half>(float a) { return {float_to_half(a)}; }

struct __align__(16) Quad {
  float x, y, z, w;
};

#ifdef __CUDACC__
extern __shared__ __align__(16) float shared[];

// 16 bytes, from memory that another block has written, to shared memory; past the nearest cache.
INLINE void copy_quad(float *to, const float *from) {
  asm volatile("{ .reg .u64 target; cvta.to.shared.u64 target, %0; cp.async.cg.shared.global [target], [%1], 16; }" ::"l"(to),
               "l"(from)
               : "memory");
}
INLINE void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATEST> INLINE void wait_for_copies() {  // but not for the latest groups
  asm volatile("cp.async.wait_group %0;" ::"n"(LATEST) : "memory");
}
INLINE unsigned latest(const unsigned *counter) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}
INLINE void release(unsigned *counter) {  // one more; what this thread, and those it waited for, wrote comes before
  __threadfence();
  atomicAdd(counter, 1u);
}
INLINE void stop() { asm volatile("trap;"); }
#endif
