// What the persistent kernels that walk along time share: groups of blocks, and products whose weight stays in registers.
//
// The batch of each model is cut into groups of rows, the units of the hidden state into parts; block (model, group, part)
// computes the units of its part for the rows of its group. All arrays have the models one after the other. Blocks of a group exchange what they computed through memory and wait for each
// other; groups never meet. A group of one block keeps all in its shared memory and never waits. Products are in single
// precision whatever the type S of the stored numbers.
//
// Defined before: S, and the sizes HIDDEN, UNITS (of a part), PARTS, ROWS (of a pass), STATES; whether sequences are PACKED,
// and whether there are several MODELS.
// With more than one part UNITS divides 32 and ROWS is a multiple of 4. Includes nothing, since the compiler at run time
// brings no headers.

const int THREADS = 256, WARPS = THREADS / 32;
const int PADDED = (ROWS % 8 == 0) ? ROWS + 4 : ROWS;  // keeps neighbouring columns in different banks

// (row, column) pairs of a thread, where a part has WIDE columns.
template <int WIDE>
struct Pairs {
  static const int STEP = THREADS / WIDE;                  // rows from one of a thread's pairs to the next
  static const int COUNT = (ROWS + STEP - 1) / STEP;       // pairs of a thread in one pass
  INLINE static int column() { return threadIdx.x % WIDE; }
  INLINE static int row(int pair) { return threadIdx.x / WIDE + pair * STEP; }
  INLINE static bool real(int pair) { return threadIdx.x < STEP * WIDE && row(pair) < ROWS; }
};
const int PAIRS = Pairs<UNITS>::COUNT;

// The rows of each step: all of the batch or, with `starts` (steps + 1 places), the first ones, as many as lie between.
struct Steps {
  const int64 *starts;
  int64 steps, batch;
  INLINE int64 start(int64 t) const { return PACKED ? starts[t] : t * batch; }
  INLINE int rows(int64 t) const { return t < 0 || t >= steps ? 0 : PACKED ? int(starts[t + 1] - starts[t]) : int(batch); }
};
// Whether row r of a group takes part in a step with so many of its rows.
INLINE bool among(int r, int rows) { return PACKED ? r < rows : rows > 0; }

// ---------------------------------------------------------------- one thread for all, and all blocks of a group

// Arrive: what this block's threads wrote before is visible to those that waited.
INLINE void arrive(unsigned *counter) {
  __syncthreads();
  if (threadIdx.x == 0) release(counter);
}

INLINE void wait(unsigned *counter, unsigned count) {
  if (threadIdx.x == 0) {
    long long patience = 1ll << 24;
    while (latest(counter) < count)
      if (--patience == 0) stop();
  }
  __syncthreads();  // the others come after the first thread's acquiring load, too
}

// ---------------------------------------------------------------- products

// Slices of a warp, and columns of a lane, in a product with `columns` of them.
#define SUB_OF(columns) ((columns) > 16 ? 1 : (columns) > 8 ? 2 : (columns) > 4 ? 4 : 8)
#define COLS_OF(columns) (((columns) + 31) / 32)

// Sums over k of weight[k][column] x[k][row] for the rows of a pass. The k are cut into WARPS * SUB slices of DEPTH; a
// lane has COLS columns in one slice: its columns are lane % (32 / SUB) + i * 32, its slice is warp * SUB + lane / (32 / SUB).
template <int DEPTH, int COLS, int SUB>
struct Product {
  static const int LANES = 32 / SUB, CHUNK = DEPTH < 32 ? DEPTH : 32, SIZE = COLS * LANES, SLICES = WARPS * SUB;
  static const int STAGES = DEPTH > CHUNK ? 2 : 1, STAGE = STAGES * SUB * CHUNK * ROWS;  // floats of one warp's stages
  static const int SHARED = WARPS * STAGE + SLICES * SIZE * PADDED;  // floats: stages, then sums
  static const int DEPTHS = SLICES * DEPTH;                   // k in all, filled up with zeros
  float weight[COLS][DEPTH];

  INLINE static int column(int i) { return threadIdx.x % LANES + i * 32; }
  INLINE static int slice() { return threadIdx.x / 32 * SUB + threadIdx.x % 32 / LANES; }

  // The numbers of a chunk of this warp's slices.
  INLINE static void fetch(const float *x, float *stage, int start) {
    const int count = start + CHUNK <= DEPTH ? CHUNK : DEPTH - start;
    UNROLL for (int s = 0; s < SUB; s++) {
      const float *const from = x + ((threadIdx.x / 32 * SUB + s) * DEPTH + start) * ROWS;
      float *const to = stage + (start / CHUNK % 2 * SUB + s) * CHUNK * ROWS;
      for (int j = threadIdx.x % 32 * 4; j < count * ROWS; j += 128) copy_quad(to + j, from + j);
    }
    end_of_copies();
  }

  // x: (DEPTHS, ROWS); afterwards, and a wait for all threads, `sum` gives the results.
  INLINE void run(const float *x, float *room) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, sub = lane / LANES;
    float *const stage = room + warp * STAGE;
    float sums[COLS][ROWS];
    UNROLL for (int i = 0; i < COLS; i++) UNROLL for (int r = 0; r < ROWS; r++) sums[i][r] = 0;
    fetch(x, stage, 0);
    UNROLL for (int start = 0; start < DEPTH; start += CHUNK) {
      if (start + CHUNK < DEPTH) {  // the next chunk comes in while this one is used
        fetch(x, stage, start + CHUNK);
        wait_for_copies<1>();
      } else {
        wait_for_copies<0>();
      }
      __syncwarp();
      const float *const own = stage + (start / CHUNK % 2 * SUB + sub) * CHUNK * ROWS;
      UNROLL for (int k = 0; k < CHUNK; k++)
        if (start + k < DEPTH) add(own + k * ROWS, start + k, sums);
      __syncwarp();
    }
    put(sums, room + WARPS * STAGE);
  }

  INLINE static float sum(const float *room, int column, int row) { return total(room + WARPS * STAGE, column, row); }

  // The same with x in shared memory, and `total` for its results; `out` has SLICES * SIZE * PADDED floats.
  INLINE void run_near(const float *x, float *out) const {
    const float *const own = x + slice() * DEPTH * ROWS;
    float sums[COLS][ROWS];
    UNROLL for (int i = 0; i < COLS; i++) UNROLL for (int r = 0; r < ROWS; r++) sums[i][r] = 0;
    UNROLL for (int k = 0; k < DEPTH; k++) add(own + k * ROWS, k, sums);
    put(sums, out);
  }

  INLINE static float total(const float *out, int column, int row) {
    const float *const at = out + column * PADDED + row;
    float result = 0;
    UNROLL for (int s = 0; s < SLICES; s++) result += at[s * SIZE * PADDED];
    return result;
  }

  INLINE void add(const float *x, int k, float (&sums)[COLS][ROWS]) const {
    if constexpr (ROWS % 4 != 0) {
      UNROLL for (int r = 0; r < ROWS; r++)
        UNROLL for (int i = 0; i < COLS; i++) sums[i][r] = fmaf(weight[i][k], x[r], sums[i][r]);
    } else {
      UNROLL for (int r = 0; r < ROWS; r += 4) {
        const Quad q = *(const Quad *)(x + r);
        UNROLL for (int i = 0; i < COLS; i++) {
          sums[i][r] = fmaf(weight[i][k], q.x, sums[i][r]);
          sums[i][r + 1] = fmaf(weight[i][k], q.y, sums[i][r + 1]);
          sums[i][r + 2] = fmaf(weight[i][k], q.z, sums[i][r + 2]);
          sums[i][r + 3] = fmaf(weight[i][k], q.w, sums[i][r + 3]);
        }
      }
    }
  }

  INLINE static void put(const float (&sums)[COLS][ROWS], float *out) {
    UNROLL for (int i = 0; i < COLS; i++) {
      float *const to = out + (slice() * SIZE + column(i)) * PADDED;
      if constexpr (ROWS % 4 != 0) {
        UNROLL for (int r = 0; r < ROWS; r++) to[r] = sums[i][r];
      } else {
        UNROLL for (int r = 0; r < ROWS; r += 4) {
          const Quad q = {sums[i][r], sums[i][r + 1], sums[i][r + 2], sums[i][r + 3]};
          *(Quad *)(to + r) = q;
        }
      }
    }
  }
};

// Where block, row and unit of this thread's pair lie.
struct Place {
  int unit, rows, first;  // unit of the whole; rows of this group and the first of them
  int group, part, u;     // group among those of all models
  int model, groups, own;  // groups of a model, and which of them this one is

  INLINE Place(int batch, int rows_each) {
    group = blockIdx.x / PARTS, part = blockIdx.x % PARTS;
    u = Pairs<UNITS>::column(), unit = part * UNITS + u;
    groups = (batch + rows_each - 1) / rows_each;
    model = MODELS ? group / groups : 0, own = MODELS ? group % groups : group;
    first = own * rows_each;
    rows = batch - first < rows_each ? batch - first : rows_each;
  }
  INLINE int64 state(int k, int64 batch, int64 row) const {  // place of a number of the state, of all models
    return ((int64(model) * STATES + k) * batch + row) * HIDDEN + unit;
  }
  INLINE int row(int pass, int pair) const { return pass * ROWS + row_of_pass(pair); }
  INLINE int row_of_pass(int pair) const { return Pairs<UNITS>::row(pair); }
  INLINE bool inside(int pass, int pair) const {
    return unit < HIDDEN && Pairs<UNITS>::real(pair) && row(pass, pair) < rows;
  }
};
