// What emitted lines of a row call, whose units the threads of a block share.
//
// Defined before: THREADS, a multiple of 32, and HIDDEN. Defined later: JOINED, shared memory of THREADS / 32 floats.

template <class T> INLINE float load(const T *from) { return number(*from); }
template <class T> INLINE void store(T *to, float value) { *to = stored<T>(value); }

#define EACH_UNIT for (int j = threadIdx.x; j < HIDDEN; j += THREADS)

// The values of all threads put together, for all of them, who wait for each other before they call anything again.
#define across(value, join) across_block(JOINED, value, join)
template <class Join> INLINE float across_block(float *joined, float value, const Join &join) {
  UNROLL for (int distance = 16; distance; distance /= 2) value = join(value, __shfl_xor_sync(~0u, value, distance));
  if (threadIdx.x % 32 == 0) joined[threadIdx.x / 32] = value;
  __syncthreads();
  float result = joined[0];
  UNROLL for (int warp = 1; warp < THREADS / 32; warp++) result = join(result, joined[warp]);
  return result;
}

// to[k] = from[0] + ... + from[k], each with its stride; a thread has neighbouring k.
#define running_sum(count, from, stride, to, other) running_sum_of_block(JOINED, count, from, stride, to, other)
template <class From, class To>
INLINE void running_sum_of_block(float *joined, int count, const From *from, int stride, To *to, int other) {
  const int each = (count + THREADS - 1) / THREADS, first = threadIdx.x * each;
  const int end = first + each < count ? first + each : count, lane = threadIdx.x % 32;
  float own = 0;
  for (int k = first; k < end; k++) own += load(from + k * stride);
  UNROLL for (int distance = 1; distance < 32; distance *= 2) {
    const float before = __shfl_up_sync(~0u, own, distance);
    if (lane >= distance) own += before;
  }
  if (lane == 31) joined[threadIdx.x / 32] = own;
  const float before = __shfl_up_sync(~0u, own, 1);
  __syncthreads();
  float sum = lane ? before : 0.0f;
  for (int warp = 0; warp < threadIdx.x / 32; warp++) sum += joined[warp];
  for (int k = first; k < end; k++) store(to + k * other, sum += load(from + k * stride));
  __syncthreads();
}
