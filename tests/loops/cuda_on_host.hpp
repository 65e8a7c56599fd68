// Enough of CUDA to run an emitted kernel on the host: the threads of a block take turns between two barriers, in
// alternating order, so that a value which is read before the barrier that should protect it is seen to be wrong.
#pragma GCC optimize("no-tree-vectorize")  // GCC 12 gets sums over arrays that are read backwards wrong
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(count)

struct Place {
  int x;
};
static Place blockIdx;
static int host_current;
static Place host_thread() { return {host_current}; }
#define threadIdx host_thread()

static ucontext_t host_main, *host_threads;
static bool *host_done;
static double host_exchange[1024];
alignas(16) float memory[1 << 16];

static void host_barrier() { swapcontext(&host_threads[host_current], &host_main); }
static inline void __syncthreads() { host_barrier(); }
static inline void __syncwarp() { host_barrier(); }
static inline int __syncthreads_or(int value) {
  static int votes = 0;
  votes |= value;
  host_barrier();
  const int found = votes;
  host_barrier();
  votes = 0;
  host_barrier();
  return found;
}
template <class T> T __shfl_xor_sync(unsigned, T value, int distance) {
  host_exchange[host_current] = value;
  host_barrier();
  const T other = T(host_exchange[host_current ^ distance]);
  host_barrier();
  return other;
}

static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __int_as_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static inline void atomicMin(unsigned long long *target, unsigned long long value) {
  if (value < *target) *target = value;
}

static void kernel(const uint64_t *arguments);  // follows the emitted source
static const uint64_t *host_arguments;
static void host_entry() {
  kernel(host_arguments);
  host_done[host_current] = true;
  swapcontext(&host_threads[host_current], &host_main);
}

extern "C" void launch(int blocks, int block, const uint64_t *arguments) {
  const size_t stack = 1 << 18;
  char *const stacks = (char *)malloc(stack * block);
  host_threads = (ucontext_t *)calloc(block, sizeof(ucontext_t));
  host_done = (bool *)calloc(block, 1);
  host_arguments = arguments;
  for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
    for (float &value : memory) value = NAN;
    for (int i = 0; i < block; i++) {
      host_done[i] = false;
      getcontext(&host_threads[i]);
      host_threads[i].uc_stack.ss_sp = stacks + stack * i;
      host_threads[i].uc_stack.ss_size = stack;
      makecontext(&host_threads[i], host_entry, 0);
    }
    for (int turn = 0, left = block; left; turn++)
      for (int i = 0; i < block; i++) {
        host_current = turn % 2 ? block - 1 - i : i;
        if (host_done[host_current]) continue;
        swapcontext(&host_main, &host_threads[host_current]);
        left -= host_done[host_current];
      }
  }
  free(stacks), free(host_threads), free(host_done);
}
