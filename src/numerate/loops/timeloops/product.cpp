// Matrix products of a few rows with a matrix that is packed once and used at every step of a time loop.
//
// Compiled once for each type of number and handed to the emitted loops as a function pointer. Columns are cut into
// panels of up to WIDEST vectors, rows into tiles of up to TALLEST, both as evenly as can be, so that a tile's sums stay
// in registers.
#if defined(__AVX512F__) || defined(__ARM_NEON)  // 32 registers
const int TALLEST = 8, WIDEST = 3;
#else
const int TALLEST = 4, WIDEST = 3;
#endif

// A length cut into pieces of at most `most`.
struct Cut {
  int64_t pieces, size, larger;  // `larger` pieces of `size`, the others one less
  INLINE Cut(int64_t length, int64_t most) {
    pieces = (length + most - 1) / most;
    size = pieces ? (length + pieces - 1) / pieces : 0;
    larger = length - pieces * (size - 1);
  }
  INLINE int64_t operator[](int64_t piece) const { return piece < larger ? size : size - 1; }
};

static INLINE int64_t vectors(int64_t columns) { return (columns + LANES - 1) / LANES; }

// c (rows x columns) (+)= a (rows x depth) b, for one tile; b is one panel, WIDE vectors for each of depth. TURNED: a is
// (depth x rows).
template <int ROWS, int WIDE, bool TURNED>
static void tile(int64_t depth, const R *a, int64_t stride_a, const R *b, R *c, int64_t stride_c, int64_t columns, bool add) {
  V sum[ROWS][WIDE];
  for (int i = 0; i < ROWS; i++)
    for (int v = 0; v < WIDE; v++) sum[i][v] = V{};
  for (int64_t k = 0; k < depth; k++) {
    V right[WIDE];
    for (int v = 0; v < WIDE; v++) right[v] = load(b + (k * WIDE + v) * LANES, Whole{});
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
      const V left = V{} + a[TURNED ? k * stride_a + i : i * stride_a + k];
#pragma GCC unroll 3
      for (int v = 0; v < WIDE; v++) sum[i][v] = fma(left, right[v], sum[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
    for (int v = 0; v < WIDE; v++) {
      R *to = c + i * stride_c + v * LANES;
      const int64_t left = columns - v * LANES;
      if (left >= LANES)
        store(to, add ? load(to, Whole{}) + sum[i][v] : sum[i][v], Whole{});
      else if (left > 0)
        store(to, add ? load(to, Part{left}) + sum[i][v] : sum[i][v], Part{left});
    }
}

template <int ROWS, bool TURNED>
static INLINE void tile_of(int64_t wide, int64_t depth, const R *a, int64_t stride_a, const R *b, R *c, int64_t stride_c,
                           int64_t columns, bool add) {
  if (wide == 3) return tile<ROWS, 3, TURNED>(depth, a, stride_a, b, c, stride_c, columns, add);
  if (wide == 2) return tile<ROWS, 2, TURNED>(depth, a, stride_a, b, c, stride_c, columns, add);
  return tile<ROWS, 1, TURNED>(depth, a, stride_a, b, c, stride_c, columns, add);
}

template <bool TURNED>
static INLINE void tiled(int64_t rows, int64_t depth, int64_t columns, const R *a, int64_t stride_a, const R *b, R *c,
                         int64_t stride_c, bool add) {
  const Cut panels(vectors(columns), WIDEST), tiles(rows, TALLEST);
  int64_t first = 0;
  for (int64_t p = 0; p < panels.pieces; p++) {
    const int64_t wide = panels[p];
    int64_t row = 0;
    for (int64_t t = 0; t < tiles.pieces; t++) {
      const R *from = a + row * (TURNED ? 1 : stride_a);
      R *to = c + row * stride_c + first;
      const int64_t here = columns - first;
#define TILE_OF(n) tile_of<n, TURNED>(wide, depth, from, stride_a, b, to, stride_c, here, add)
      switch (tiles[t]) {
#if defined(__AVX512F__) || defined(__ARM_NEON)
        case 8: TILE_OF(8); break;
        case 7: TILE_OF(7); break;
        case 6: TILE_OF(6); break;
        case 5: TILE_OF(5); break;
#endif
        case 4: TILE_OF(4); break;
        case 3: TILE_OF(3); break;
        case 2: TILE_OF(2); break;
        default: TILE_OF(1);
      }
#undef TILE_OF
      row += tiles[t];
    }
    b += depth * wide * LANES;
    first += wide * LANES;
  }
}

// Numbers that a packed matrix takes.
extern "C" int64_t packed_size(int64_t depth, int64_t columns) { return depth * vectors(columns) * LANES; }

// Element (k, n) is from[k * stride_k + n * stride_n]; panels one after the other, filled up with zeros.
extern "C" void pack(const R *from, int64_t stride_k, int64_t stride_n, int64_t depth, int64_t columns, R *to) {
  const Cut panels(vectors(columns), WIDEST);
  int64_t first = 0;
  for (int64_t p = 0; p < panels.pieces; first += panels[p] * LANES, p++)
    for (int64_t k = 0; k < depth; k++)
      for (int64_t n = first; n < first + panels[p] * LANES; n += LANES, to += LANES) {
        const R *const here = from + k * stride_k + n * stride_n;
        const int64_t left = columns - n;
        if (stride_n == 1)
          store(to, left >= LANES ? load(here, Whole{}) : load(here, Part{left}), Whole{});
        else
          store(to, left >= LANES ? gather(here, stride_n, Whole{}) : gather(here, stride_n, Part{left}), Whole{});
      }
}

// c (rows x columns) = a (rows x depth) b, or added to c; b as `pack` made it.
extern "C" void multiply(int64_t rows, int64_t depth, int64_t columns, const R *a, int64_t stride_a, const R *b, R *c,
                         int64_t stride_c, bool add) {
  tiled<false>(rows, depth, columns, a, stride_a, b, c, stride_c, add);
}

// c (rows x columns) = a (rows x depth) b, and a bias in every row where there is one; b as `pack` made it.
extern "C" void affine(int64_t rows, int64_t depth, int64_t columns, const R *a, int64_t stride_a, const R *b,
                       const R *bias, R *c) {
  const int64_t most = depth * columns < 16384 ? TALLEST : rows;  // few rows stay at hand; a large b is read once
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = rows - first < most ? rows - first : most;
    R *const to = c + first * columns;
    if (bias)
      for (int64_t i = 0; i < count; i++) __builtin_memcpy(to + i * columns, bias, columns * sizeof(R));
    tiled<false>(count, depth, columns, a + first * stride_a, stride_a, b, to, columns, bias != nullptr);
  }
}

const int64_t DEEPEST = 128;  // rows of a block of `correlate`

// Numbers of `room` that `correlate` works in.
extern "C" int64_t correlate_room(int64_t columns_b) { return packed_size(DEEPEST, columns_b); }

// c (columns_a x columns_b) = a^T b, or added to c; a and b have a row for each of `rows`. Rows are taken in blocks of a
// fixed size, so that the bits of c do not depend on which columns of a are asked for.
extern "C" void correlate(int64_t rows, int64_t columns_a, int64_t columns_b, const R *a, int64_t stride_a, const R *b,
                          int64_t stride_b, R *c, int64_t stride_c, bool add, R *room) {
  for (int64_t first = 0; first < rows; first += DEEPEST) {
    const int64_t count = rows - first < DEEPEST ? rows - first : DEEPEST;
    pack(b + first * stride_b, stride_b, 1, count, columns_b, room);
    tiled<true>(columns_a, count, columns_b, a + first * stride_a, stride_a, room, c, stride_c, add || first > 0);
  }
}
