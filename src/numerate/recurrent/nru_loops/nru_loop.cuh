// The walk of the NRU along time as a persistent kernel, written by hand; the heads are in nru_heads.cuh, the way in which
// blocks share the work in grid.cuh.
//
// Every block of a group keeps the memory of all rows of the group (forwards), or its gradient (backwards), in shared
// memory and updates it by itself; exchanged are the hidden state and the heads' numbers z (forwards), the gradients of
// the pre-activations and of the memory (backwards), so that blocks wait for each other twice a step. The only block of a
// group has these in its shared memory and waits for nobody. Rows that do not take part in a step keep their state
// (forwards) or its gradient (backwards).
//
// Arrays of a row's numbers are laid out (number, row) in shared memory and in the exchange.
//
// Defined before, beside what grid.cuh and nru_heads.cuh need: COLUMNS (of gx), Z_UNITS and M_UNITS (columns of z and of
// the memory that a part computes, as UNITS), FORWARD or BACKWARD.

const int BOTH = HIDDEN + MEMORY;
const int SUB = SUB_OF(UNITS), Z_SUB = SUB_OF(Z_UNITS), M_SUB = SUB_OF(M_UNITS);
const int COLS = COLS_OF(UNITS), Z_COLS = COLS_OF(Z_UNITS), M_COLS = COLS_OF(M_UNITS);
typedef Pairs<Z_UNITS> OfHeads;
typedef Pairs<M_UNITS> OfMemory;

#define DEPTH_OF(numbers, subs) (((numbers) + WARPS * (subs) - 1) / (WARPS * (subs)))
#define EACH_WEIGHT(cols, depth) UNROLL for (int i = 0; i < (cols); i++) UNROLL for (int k = 0; k < (depth); k++)

// This block's numbers are there for the others.
INLINE void give(unsigned *counter) {
  if (PARTS > 1) arrive(counter);
}
// All blocks' numbers, after they were given so often; the only block of a group has written them in place.
INLINE void receive(unsigned *counter, unsigned times, float *to, const float *from, int numbers) {
  if (PARTS > 1) {
    wait(counter, times * PARTS);
    for (int i = threadIdx.x * 4; i < numbers * ROWS; i += THREADS * 4) copy_quad(to + i, from + i);
    end_of_copies();
    wait_for_copies<0>();
  }
  __syncthreads();
}

#ifdef FORWARD
const int DEPTH = DEPTH_OF(BOTH, SUB), Z_DEPTH = DEPTH_OF(BOTH, Z_SUB);
typedef Product<DEPTH, COLS, SUB> ToHidden;
typedef Product<Z_DEPTH, Z_COLS, Z_SUB> ToHeads;
const int NUMBERS = ToHidden::DEPTHS > ToHeads::DEPTHS ? ToHidden::DEPTHS : ToHeads::DEPTHS;

// Shapes are those of one model, but of x and counters, whose groups are those of all models.
// h: (batch, HIDDEN) and m: (batch, MEMORY), initial, then final; memory: (rows of all steps, MEMORY), history of m, and
// heads: (rows of all steps, WIDTH) may be null; x: (groups, HIDDEN + WIDTH, ROWS), zeros; counters: one per group, 0;
// starts: see Steps.
KERNEL void forward(const S *gx, const S *weight, const S *head_weight, const float *bias, float *h, float *m, S *out,
                    float *memory, float *heads, float *x, unsigned *counters, const int64 *starts, int64 steps,
                    int64 batch, int64 rows_each, int64 reverse) {
  const Place at(batch, rows_each);
  const Steps walk = {starts, steps, batch};
  const int64 rows = at.model * walk.start(steps);  // of the models before
  gx += rows * COLUMNS, weight += int64(at.model) * HIDDEN * BOTH, head_weight += int64(at.model) * WIDTH * BOTH;
  bias += at.model * WIDTH, h += at.model * batch * HIDDEN, m += at.model * batch * MEMORY, out += rows * HIDDEN;
  if (memory) memory += rows * MEMORY, heads += rows * WIDTH;
  float *const both = shared, *const z = both + NUMBERS * ROWS;
  const HeadRoom room(z + WIDTH * ROWS);
  float *const sums = z + (WIDTH + HeadRoom::FORWARD_SIZE) * ROWS;
  const int column = OfHeads::column(), number_of_z = at.part * Z_UNITS + column;
  ToHidden to_hidden;
  ToHeads to_heads;
  EACH_WEIGHT(COLS, DEPTH) {
    const int source = ToHidden::slice() * DEPTH + k, to = ToHidden::column(i), unit = at.part * UNITS + to;
    const bool real = source < BOTH && to < UNITS && unit < HIDDEN;
    to_hidden.weight[i][k] = real ? number(weight[int64(unit) * BOTH + source]) : 0.0f;
  }
  EACH_WEIGHT(Z_COLS, Z_DEPTH) {
    const int source = ToHeads::slice() * Z_DEPTH + k, to = ToHeads::column(i), row = at.part * Z_UNITS + to;
    const bool real = source < BOTH && to < Z_UNITS && row < WIDTH;
    to_heads.weight[i][k] = real ? number(head_weight[int64(row) * BOTH + source]) : 0.0f;
  }
  EACH(NUMBERS) {
    const int source = i / ROWS, row = i % ROWS;
    const int64 place = at.first + row;
    both[i] = row >= at.rows || source >= BOTH ? 0.0f
              : source < HIDDEN                ? h[place * HIDDEN + source]
                                               : m[place * MEMORY + source - HIDDEN];
  }
  const float own_bias = number_of_z < WIDTH ? bias[number_of_z] : 0.0f;
  float *const there = PARTS > 1 ? x + int64(at.group) * (HIDDEN + WIDTH) * ROWS : shared;
  float *const hidden = PARTS > 1 ? there : both, *const exchanged = PARTS > 1 ? there + HIDDEN * ROWS : z;
  unsigned *const counter = counters + at.group;
  float fresh[PAIRS];
  UNROLL for (int pair = 0; pair < PAIRS; pair++)
    fresh[pair] = at.inside(0, pair) ? h[int64(at.first + at.row(0, pair)) * HIDDEN + at.unit] : 0.0f;
  __syncthreads();
  for (int64 step = 0; step < steps; step++) {
    const int64 t = reverse ? steps - 1 - step : step, start = walk.start(t) + at.first;
    const int left = walk.rows(t) - at.first, alive = left < at.rows ? left : at.rows;
    float in[PAIRS], more[OfHeads::COUNT];
    UNROLL for (int pair = 0; pair < PAIRS; pair++) {
      const int row = at.row(0, pair);
      in[pair] = at.inside(0, pair) && among(row, alive) ? number(gx[(start + row) * COLUMNS + at.unit]) : 0.0f;
    }
    UNROLL for (int pair = 0; pair < OfHeads::COUNT; pair++) {
      const int row = OfHeads::row(pair);
      const bool real = COLUMNS > HIDDEN && number_of_z < WIDTH && OfHeads::real(pair) && row < alive;
      more[pair] = own_bias + (real ? number(gx[(start + row) * COLUMNS + HIDDEN + number_of_z]) : 0.0f);
    }
    to_hidden.run_near(both, sums);
    __syncthreads();
    UNROLL for (int pair = 0; pair < PAIRS; pair++) {
      if (!at.inside(0, pair)) continue;
      const float value = in[pair] + ToHidden::total(sums, at.u, at.row_of_pass(pair));
      if (among(at.row(0, pair), alive)) fresh[pair] = number(stored<S>(maximum(value, 0.0f)));
      hidden[at.unit * ROWS + at.row_of_pass(pair)] = fresh[pair];
    }
    give(counter);
    UNROLL for (int pair = 0; pair < PAIRS; pair++)
      if (at.inside(0, pair) && among(at.row(0, pair), alive))
        out[(start + at.row(0, pair)) * HIDDEN + at.unit] = stored<S>(fresh[pair]);
    receive(counter, 2 * step + 1, both, hidden, HIDDEN);
    to_heads.run_near(both, sums);
    __syncthreads();
    UNROLL for (int pair = 0; pair < OfHeads::COUNT; pair++) {
      const int row = OfHeads::row(pair);
      if (number_of_z >= WIDTH || !OfHeads::real(pair) || row >= alive) continue;
      const float value = more[pair] + ToHeads::total(sums, column, row);
      exchanged[number_of_z * ROWS + row] = value;
      if (heads) heads[(start + row) * WIDTH + number_of_z] = value;
    }
    give(counter);
    receive(counter, 2 * step + 2, z, exchanged, WIDTH);
    weigh(z, room);
    EACH(MEMORY) if (among(i % ROWS, alive)) both[HIDDEN * ROWS + i] += gain(z, room, i);
    __syncthreads();
    if (memory)
      for (int i = threadIdx.x + at.part * THREADS; i < alive * MEMORY; i += PARTS * THREADS)
        memory[start * MEMORY + i] = both[(HIDDEN + i % MEMORY) * ROWS + i / MEMORY];
  }
  UNROLL for (int pair = 0; pair < PAIRS; pair++)
    if (at.inside(0, pair)) h[int64(at.first + at.row(0, pair)) * HIDDEN + at.unit] = fresh[pair];
  for (int i = threadIdx.x + at.part * THREADS; i < at.rows * MEMORY; i += PARTS * THREADS)
    m[int64(at.first) * MEMORY + i] = both[(HIDDEN + i % MEMORY) * ROWS + i / MEMORY];
}
#endif

#ifdef BACKWARD
const int IN_DEPTH = DEPTH_OF(WIDTH, SUB), OUT_DEPTH = DEPTH_OF(HIDDEN, SUB), M_DEPTH = DEPTH_OF(WIDTH + HIDDEN, M_SUB);
typedef Product<IN_DEPTH, COLS, SUB> FromHeads;     // dz -> dh'
typedef Product<OUT_DEPTH, COLS, SUB> FromHidden;   // da -> dh
typedef Product<M_DEPTH, M_COLS, M_SUB> ToMemory;   // dz, da -> dm
const int NEEDED = WIDTH + FromHidden::DEPTHS > ToMemory::DEPTHS ? WIDTH + FromHidden::DEPTHS : ToMemory::DEPTHS;
const int NUMBERS = NEEDED > FromHeads::DEPTHS ? NEEDED : FromHeads::DEPTHS;

// dh: (batch, HIDDEN) and dm: (batch, MEMORY), gradients of the final state, then of the initial one; dout may be null;
// d: (rows of all steps, HIDDEN + WIDTH), gradients of the pre-activations of h and of z; x: (groups, HIDDEN + MEMORY, ROWS).
KERNEL void backward(const S *weight, const S *head_weight, const S *out, const float *heads, const S *dout, float *dh,
                     float *dm, S *d, float *x, unsigned *counters, const int64 *starts, int64 steps, int64 batch,
                     int64 rows_each, int64 reverse) {
  const Place at(batch, rows_each);
  const Steps walk = {starts, steps, batch};
  const int64 rows = at.model * walk.start(steps);  // of the models before
  weight += int64(at.model) * HIDDEN * BOTH, head_weight += int64(at.model) * WIDTH * BOTH, out += rows * HIDDEN, heads += rows * WIDTH;
  if (dout) dout += rows * HIDDEN;
  dh += at.model * batch * HIDDEN, dm += at.model * batch * MEMORY, d += rows * (HIDDEN + WIDTH);
  float *const memory = shared, *const dz = memory + MEMORY * ROWS, *const z = dz + NUMBERS * ROWS;
  const HeadRoom room(z + WIDTH * ROWS);
  float *const sums = z + (WIDTH + HeadRoom::SIZE) * ROWS;
  float *const other_sums = sums + FromHidden::SLICES * FromHidden::SIZE * PADDED;
  const int column = OfMemory::column(), cell = at.part * M_UNITS + column;  // of the memory
  FromHeads from_heads;
  FromHidden from_hidden;
  ToMemory to_memory;
  EACH_WEIGHT(COLS, IN_DEPTH) {
    const int source = FromHeads::slice() * IN_DEPTH + k, to = FromHeads::column(i), unit = at.part * UNITS + to;
    const bool real = source < WIDTH && to < UNITS && unit < HIDDEN;
    from_heads.weight[i][k] = real ? number(head_weight[int64(source) * BOTH + unit]) : 0.0f;
  }
  EACH_WEIGHT(COLS, OUT_DEPTH) {
    const int source = FromHidden::slice() * OUT_DEPTH + k, to = FromHidden::column(i), unit = at.part * UNITS + to;
    const bool real = source < HIDDEN && to < UNITS && unit < HIDDEN;
    from_hidden.weight[i][k] = real ? number(weight[int64(source) * BOTH + unit]) : 0.0f;
  }
  EACH_WEIGHT(M_COLS, M_DEPTH) {
    const int source = ToMemory::slice() * M_DEPTH + k, to = ToMemory::column(i), cell = at.part * M_UNITS + to;
    const bool real = source < WIDTH + HIDDEN && to < M_UNITS && cell < MEMORY;
    const S *const from = source < WIDTH ? head_weight + int64(source) * BOTH : weight + int64(source - WIDTH) * BOTH;
    to_memory.weight[i][k] = real ? number(from[HIDDEN + cell]) : 0.0f;
  }
  EACH(MEMORY) {
    const int64 row = at.first + i % ROWS;
    memory[i] = i % ROWS < at.rows ? dm[row * MEMORY + i / ROWS] : 0.0f;
  }
  EACH(NUMBERS) dz[i] = 0;
  EACH(WIDTH) z[i] = 0;
  float now[PAIRS];
  UNROLL for (int pair = 0; pair < PAIRS; pair++)
    now[pair] = at.inside(0, pair) ? dh[int64(at.first + at.row(0, pair)) * HIDDEN + at.unit] : 0.0f;
  float *const there = PARTS > 1 ? x + int64(at.group) * BOTH * ROWS : shared;
  float *const hidden = PARTS > 1 ? there : dz + WIDTH * ROWS, *const exchanged = PARTS > 1 ? there + HIDDEN * ROWS : memory;
  unsigned *const counter = counters + at.group;
  __syncthreads();
  for (int64 step = 0; step < steps; step++) {
    const int64 t = reverse ? step : steps - 1 - step, start = walk.start(t) + at.first;
    const int left = walk.rows(t) - at.first, alive = left < at.rows ? left : at.rows;
    bool on[PAIRS];
    UNROLL for (int pair = 0; pair < PAIRS; pair++) {
      on[pair] = false;
      if (!at.inside(0, pair) || !among(at.row(0, pair), alive)) continue;
      const int64 place = (start + at.row(0, pair)) * HIDDEN + at.unit;
      on[pair] = number(out[place]) > 0;
      if (dout) now[pair] += number(dout[place]);
    }
    for (int i = threadIdx.x; i < at.rows * WIDTH; i += THREADS)  // all gradients of rows with z = 0 are 0
      z[i % WIDTH * ROWS + i / WIDTH] = i < alive * WIDTH ? heads[start * WIDTH + i] : 0.0f;
    __syncthreads();
    pull(z, memory, dz, room);
    from_heads.run_near(dz, sums);
    __syncthreads();
    UNROLL for (int pair = 0; pair < PAIRS; pair++) {
      if (!at.inside(0, pair)) continue;
      const float all = now[pair] + FromHeads::total(sums, at.u, at.row_of_pass(pair));
      const float pulled = on[pair] ? number(stored<S>(all)) : 0.0f;
      if (among(at.row(0, pair), alive)) now[pair] = pulled;
      hidden[at.unit * ROWS + at.row_of_pass(pair)] = pulled;
    }
    give(counter);
    UNROLL for (int pair = 0; pair < PAIRS; pair++)
      if (at.inside(0, pair) && among(at.row(0, pair), alive))
        d[(start + at.row(0, pair)) * (HIDDEN + WIDTH) + at.unit] = stored<S>(now[pair]);
    for (int i = threadIdx.x + at.part * THREADS; i < alive * WIDTH; i += PARTS * THREADS)
      d[(start + i / WIDTH) * (HIDDEN + WIDTH) + HIDDEN + i % WIDTH] = stored<S>(dz[i % WIDTH * ROWS + i / WIDTH]);
    receive(counter, 2 * step + 1, dz + WIDTH * ROWS, hidden, HIDDEN);
    from_hidden.run_near(dz + WIDTH * ROWS, sums);
    to_memory.run_near(dz, other_sums);
    __syncthreads();
    UNROLL for (int pair = 0; pair < PAIRS; pair++)
      if (at.inside(0, pair) && among(at.row(0, pair), alive))
        now[pair] = FromHidden::total(sums, at.u, at.row_of_pass(pair));
    UNROLL for (int pair = 0; pair < OfMemory::COUNT; pair++) {
      const int row = OfMemory::row(pair);
      if (cell < MEMORY && OfMemory::real(pair) && row < at.rows)
        exchanged[cell * ROWS + row] = memory[cell * ROWS + row] + ToMemory::total(other_sums, column, row);
    }
    give(counter);
    receive(counter, 2 * step + 2, memory, exchanged, MEMORY);
  }
  UNROLL for (int pair = 0; pair < PAIRS; pair++)
    if (at.inside(0, pair)) dh[int64(at.first + at.row(0, pair)) * HIDDEN + at.unit] = now[pair];
  for (int i = threadIdx.x + at.part * THREADS; i < at.rows * MEMORY; i += PARTS * THREADS)
    dm[int64(at.first) * MEMORY + i] = memory[i % MEMORY * ROWS + i / MEMORY];
}
#endif
