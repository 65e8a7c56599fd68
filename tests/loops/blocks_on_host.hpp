// Enough of CUDA to run, on the host, a kernel whose blocks wait for each other: every thread of every block is a fibre
// that runs until it waits. Threads take turns in alternating order.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct HostIndex {
  int x;
};
struct HostBarrier {
  int arrived, generation;
};
struct HostThread {
  ucontext_t context;
  int block, thread, waits_for;
  bool done, polls;
  HostBarrier *barrier;
};

static const int HOST_BLOCK = 256, HOST_SHARED = 1 << 16;
static HostThread *host_threads;
static HostBarrier *host_barriers;  // of each block one, then of each of its warps
static float *host_memory;
static int host_current, host_blocks;
static ucontext_t host_main;

#define threadIdx (HostIndex{host_threads[host_current].thread})
#define blockIdx (HostIndex{host_threads[host_current].block})
#define gridDim (HostIndex{host_blocks})
#define shared (host_memory + HOST_SHARED * host_threads[host_current].block)

static void host_yield() { swapcontext(&host_threads[host_current].context, &host_main); }
static void host_wait(HostBarrier *barrier, int count) {
  HostThread &own = host_threads[host_current];
  own.barrier = barrier, own.waits_for = barrier->generation + 1;
  if (++barrier->arrived == count) barrier->arrived = 0, barrier->generation++;
  host_yield();
  own.barrier = nullptr;
}
static HostBarrier *host_own() { return host_barriers + host_threads[host_current].block * (1 + HOST_BLOCK / 32); }
static void __syncthreads() { host_wait(host_own(), HOST_BLOCK); }
static void __syncwarp() { host_wait(host_own() + 1 + host_threads[host_current].thread / 32, 32); }
static float over_warp(float value) {  // diagonal.cuh
  static float *lanes;
  if (!lanes) lanes = (float *)calloc(1 << 20, sizeof(float));
  const int own = host_current, first = own / 32 * 32;
  lanes[own] = value;
  __syncwarp();
  float sum = 0;
  for (int lane = 0; lane < 32; lane++) sum += lanes[first + lane];
  __syncwarp();
  return sum;
}
static void __threadfence() {}
static unsigned atomicAdd(unsigned *target, unsigned value) {
  const unsigned before = *target;
  *target += value;
  return before;
}
static float host_lanes[1 << 20];  // what each thread shows to its warp
static float host_shuffled(float value, int source) {
  const int warp = host_current / 32 * 32;
  host_lanes[host_current] = value;
  __syncwarp();
  const float found = host_lanes[warp + source];
  __syncwarp();
  return found;
}
static float __shfl_xor_sync(unsigned, float value, int mask) { return host_shuffled(value, (host_current % 32) ^ mask); }
static float __shfl_up_sync(unsigned, float value, int distance) {
  const int lane = host_current % 32;
  return host_shuffled(value, lane < distance ? lane : lane - distance);
}
static void release(unsigned *counter) { ++*counter; }
static float __int_as_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static float __uint_as_float(uint32_t bits) { return __int_as_float(bits); }
static uint32_t __float_as_uint(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}
static float half_to_float(unsigned short bits) {
  _Float16 value;
  memcpy(&value, &bits, 2);
  return value;
}
static unsigned short float_to_half(float number) {
  const _Float16 value = number;
  unsigned short bits;
  memcpy(&bits, &value, 2);
  return bits;
}
static inline void copy_quad(float *to, const float *from) { memcpy(to, from, 16); }
static inline void end_of_copies() {}
template <int LATEST> static inline void wait_for_copies() {}
static unsigned latest(const unsigned *counter) {
  host_yield();
  return *counter;
}
static void stop() { abort(); }

static void kernel(const uint64_t *arguments);  // follows the emitted source
static const uint64_t *host_arguments;
static void host_entry() {
  kernel(host_arguments);
  host_threads[host_current].done = true;
  host_yield();
}

// How many numbers were written beyond the shared memory that a block was given.
extern "C" int launch(int blocks, const uint64_t *arguments, int given) {
  const size_t stack = 1 << 17;
  const int count = blocks * HOST_BLOCK;
  host_blocks = blocks, host_arguments = arguments;
  char *const stacks = (char *)malloc(stack * count);
  host_threads = (HostThread *)calloc(count, sizeof(HostThread));
  host_barriers = (HostBarrier *)calloc(blocks * (1 + HOST_BLOCK / 32), sizeof(HostBarrier));
  host_memory = (float *)aligned_alloc(64, sizeof(float) * HOST_SHARED * blocks);
  for (int i = 0; i < HOST_SHARED * blocks; i++) host_memory[i] = NAN;
  for (int i = 0; i < count; i++) {
    HostThread &own = host_threads[i];
    own.block = i / HOST_BLOCK, own.thread = i % HOST_BLOCK;
    getcontext(&own.context);
    own.context.uc_stack.ss_sp = stacks + stack * i;
    own.context.uc_stack.ss_size = stack;
    makecontext(&own.context, host_entry, 0);
  }
  for (int turn = 0, left = count; left; turn++)
    for (int i = 0; i < count; i++) {
      host_current = turn % 2 ? count - 1 - i : i;
      HostThread &own = host_threads[host_current];
      if (own.done || (own.barrier && own.barrier->generation < own.waits_for)) continue;
      swapcontext(&host_main, &own.context);
      left -= own.done;
    }
  int beyond = 0;
  for (int i = 0; i < HOST_SHARED * blocks; i++) beyond += i % HOST_SHARED >= given && host_memory[i] == host_memory[i];
  free(stacks), free(host_threads), free(host_barriers), free(host_memory);
  return beyond;
}
