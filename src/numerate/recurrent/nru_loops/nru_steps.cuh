// One step of the NRU's walk along time between matrix products: a block computes a row, its threads share the numbers. The
// mathematics is in nru_loop.cpp, the heads are in nru_heads.cuh.
//
// Forwards a step is gh = [h; m] A, to_hidden, gz = [h'; m] B, to_memory; backwards from_memory, pulled = dz B^T,
// from_hidden, pulled = da A^T.
//
// A block has a row r of a model's batch, `row` of all steps. Shapes are those of one model; models lie one after the other,
// and each has `alive` blocks. The step's rows begin at `start`, of `total`.
//
// Defined before, beside what nru_heads.cuh needs: S, HIDDEN, COLUMNS (of gx), FORWARD or BACKWARD; ROWS is 1.

const int BOTH = HIDDEN + MEMORY;

#define HERE                                                                                          \
  const int64 model = blockIdx.x / alive, r = blockIdx.x % alive, row = model * total + start + r; \
  const int64 place = model * batch + r;
#define EACH_OF(count) for (int i = threadIdx.x; i < (count); i += THREADS)

#ifdef FORWARD
// gx, out: of all steps; gh: (batch, HIDDEN); both: (batch, BOTH), (h, m), of which h is replaced.
KERNEL void to_hidden(const S *gx, const S *gh, S *both, S *out, int64 start, int64 total, int64 batch, int64 alive) {
  HERE
  EACH_OF(HIDDEN) {
    const S h = stored<S>(maximum(number(gx[row * COLUMNS + i]) + number(gh[place * HIDDEN + i]), 0.0f));
    both[place * BOTH + i] = h, out[row * HIDDEN + i] = h;
  }
}

// gz: (batch, WIDTH); m: (batch, MEMORY), replaced, as is that of `both`; memory and heads (z): of all steps, may be null.
KERNEL void to_memory(const S *gx, const S *gz, const float *all_bias, float *m, S *both, float *memory, float *heads,
                      int64 start, int64 total, int64 batch, int64 alive) {
  HERE
  const float *const bias = all_bias + model * WIDTH;
  float *const z = shared;
  const HeadRoom room(z + WIDTH);
  EACH_OF(WIDTH) {
    const float value = number(gz[place * WIDTH + i]) + bias[i];
    z[i] = COLUMNS > HIDDEN ? value + number(gx[row * COLUMNS + HIDDEN + i]) : value;
    if (heads) heads[row * WIDTH + i] = z[i];
  }
  __syncthreads();
  weigh(z, room);
  EACH_OF(MEMORY) {
    const float fresh = m[place * MEMORY + i] + gain(z, room, i);
    m[place * MEMORY + i] = fresh, both[place * BOTH + HIDDEN + i] = stored<S>(fresh);
    if (memory) memory[row * MEMORY + i] = fresh;
  }
}
#endif

#ifdef BACKWARD
// heads: of all steps; pulled: (batch, BOTH), what came through A from the step after; dh: (batch, HIDDEN) and dm: (batch,
// MEMORY), added to; d: of all steps, (total, HIDDEN + WIDTH), gradients of the pre-activations of h and of z.
KERNEL void from_memory(const float *heads, const S *pulled, float *dh, float *dm, S *d, int64 start, int64 total,
                        int64 batch, int64 alive) {
  HERE
  float *const z = shared, *const dz = z + WIDTH, *const above = dz + WIDTH;
  const HeadRoom room(above + MEMORY);
  EACH_OF(HIDDEN) dh[place * HIDDEN + i] += number(pulled[place * BOTH + i]);
  EACH_OF(MEMORY) above[i] = dm[place * MEMORY + i] += number(pulled[place * BOTH + HIDDEN + i]);
  EACH_OF(WIDTH) z[i] = heads[row * WIDTH + i];
  __syncthreads();
  pull(z, above, dz, room);
  EACH_OF(WIDTH) d[row * (HIDDEN + WIDTH) + HIDDEN + i] = stored<S>(dz[i]);
}

// out, dout (may be null): of all steps; pulled: what came through B; dh: 0 afterwards.
KERNEL void from_hidden(const S *out, const S *dout, const S *pulled, float *dh, float *dm, S *d, int64 start, int64 total,
                        int64 batch, int64 alive) {
  HERE
  EACH_OF(HIDDEN) {
    const float above = dh[place * HIDDEN + i] + (dout ? number(dout[row * HIDDEN + i]) : 0.0f);
    const float all = above + number(pulled[place * BOTH + i]);
    d[row * (HIDDEN + WIDTH) + i] = stored<S>(number(out[row * HIDDEN + i]) > 0 ? all : 0.0f);
    dh[place * HIDDEN + i] = 0;
  }
  EACH_OF(MEMORY) dm[place * MEMORY + i] += number(pulled[place * BOTH + HIDDEN + i]);
}
#endif
