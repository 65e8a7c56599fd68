// For kernels in which a block walks along one row of a model's batch and waits for nobody. Defined before: PACKED.

// This block's row of the batch, and where its steps lie; `starts`: where each step's rows begin, and their number.
struct Place {
  const int64 *starts;
  int64 batch, model, own, length, first;
  INLINE Place(const int64 *starts_, int64 steps, int64 batch_) : starts(starts_), batch(batch_) {
    model = blockIdx.x / batch, own = blockIdx.x % batch, length = steps;
    if (PACKED)
      for (length = 0; length < steps && starts[length + 1] - starts[length] > own;) length++;
    first = model * (PACKED ? starts[steps] : steps * batch) + own;
  }
  INLINE int64 at(int64 t) const { return first + (PACKED ? starts[t] : t * batch); }
};
