// The walk along time of a diagonal recurrence, state' = a state + b, around the emitted functions `forward_row` (from the
// columns and extra vectors to the coefficients a, b and, if the output is a sum over the modes, c) and `backward_row`.
//
// Row b of step t lies at starts[t] + b of every array with a row per step; the sequence of row b has lengths[b] steps. Of
// several models, each has `rows_each` rows, its own extra vectors, and arrays of `total` rows after those of the last one.
// Each call walks the sequences of the rows first, ..., last - 1 from end to end; calls may run side by side. Steps go in
// chunks of CHUNK: the state before each chunk is kept, and the backward walk computes the states inside a chunk again.
//
// Defined before: PARTS (2 if the state is complex), COLUMNS, EXTRAS, COEFFICIENTS, SUMMED, SHARED, CHUNK.

extern "C" void *malloc(__SIZE_TYPE__);
extern "C" void free(void *);

struct Walk {
  int64_t batch, reverse, units, modes, saved, rows_each, total;  // batch: rows of all models
  const int64_t *starts, *lengths;

  INLINE int64_t length(int64_t b) const { return lengths[b % rows_each]; }
  INLINE int64_t row(int64_t b, int64_t step) const {
    return b / rows_each * total + starts[reverse ? length(b) - 1 - step : step] + b % rows_each;
  }
  INLINE int64_t width() const { return COLUMNS * units + (SHARED ? 2 * modes : 0); }
  INLINE int64_t chunks(int64_t b) const { return (length(b) + CHUNK - 1) / CHUNK; }
  INLINE int64_t count(int64_t b, int64_t chunk) const {
    const int64_t left = length(b) - chunk * CHUNK;
    return left < CHUNK ? left : CHUNK;
  }
  // A mode of a row: (batch, PARTS, modes, units), and of a model: (models, EXTRAS, modes, units).
  INLINE int64_t lanes(int64_t b, int part, int64_t n) const { return ((b * PARTS + part) * modes + n) * units; }
  INLINE int64_t extra(int64_t b, int k, int64_t n) const { return ((b / rows_each * EXTRAS + k) * modes + n) * units; }
};

static INLINE R *numbers(int64_t size) { return (R *)malloc((size ? size : 1) * sizeof(R)); }
static INLINE void clear(R *to, int64_t size) {
  for (int64_t j = 0; j < size; j++) to[j] = 0;
}

// One step of a mode: from `state` to `next`, which may be the same; a and b are the first coefficients.
template <class Lanes> static INLINE void advance(V *state, R *const *coefficient, R factor, int64_t j, Lanes lanes) {
  const V b = load(coefficient[PARTS] + j, lanes) * c(factor), a = load(coefficient[0] + j, lanes);
  if constexpr (PARTS == 1) {
    state[0] = a * state[0] + b;
  } else {
    const V ai = load(coefficient[1] + j, lanes), re = state[0], im = state[1];
    state[0] = a * re - ai * im + b;
    state[1] = a * im + ai * re + load(coefficient[3] + j, lanes) * c(factor);
  }
}

// state: (batch, PARTS, modes, units), the initial state at first and the final one at last; kept: (chunks, batch, PARTS,
// modes, units), may be null; out: (rows, units) if SUMMED, else (rows, PARTS * units).
extern "C" void forward(const Walk *walk, int64_t first, int64_t last, const R *gx, const R *extra, R *state, R *kept,
                        R *out) {
  const Walk w = *walk;
  const int64_t U = w.units, N = w.modes, width = w.width(), across = SUMMED ? U : PARTS * U;
  R *const memory = numbers(COEFFICIENTS * U + w.saved), *coefficient[COEFFICIENTS];
  for (int k = 0; k < COEFFICIENTS; k++) coefficient[k] = memory + k * U;
  for (int64_t b = first; b < last; b++)
    for (int64_t chunk = 0; chunk < w.chunks(b); chunk++) {
      const int64_t count = w.count(b, chunk), start = chunk * CHUNK;
      if (kept) __builtin_memcpy(kept + w.lanes(chunk * w.batch + b, 0, 0), state + w.lanes(b, 0, 0), PARTS * N * U * sizeof(R));
      if (SUMMED)
        for (int64_t k = 0; k < count; k++) clear(out + w.row(b, start + k) * U, U);
      for (int64_t n = 0; n < N; n++) {
        const R *extras[EXTRAS + 1];
        for (int k = 0; k < EXTRAS; k++) extras[k] = extra + w.extra(b, k, n);
        R *const re = state + w.lanes(b, 0, n), *const im = state + w.lanes(b, PARTS - 1, n);
        for (int64_t k = 0; k < count; k++) {
          const int64_t row = w.row(b, start + k);
          const R *const factors = gx + row * width + COLUMNS * U + n;
          const R into = SHARED ? factors[0] : R(1), out_of = SHARED ? factors[N] : R(1);
          forward_row(U, gx + row * width, extras, coefficient, memory + COEFFICIENTS * U);
          R *const y = out + row * across;
          over_units(U, [&](const int64_t j, const auto lanes) INLINED {
            V s[2] = {load(re + j, lanes), load(im + j, lanes)};
            advance(s, coefficient, into, j, lanes);
            for (int part = 0; part < PARTS; part++) store((part ? im : re) + j, s[part], lanes);
            if constexpr (SUMMED) {
              V sum = load(coefficient[2 * PARTS] + j, lanes) * s[0];
              if constexpr (PARTS == 2) sum = sum - load(coefficient[5] + j, lanes) * s[1];
              store(y + j, load(y + j, lanes) + sum * c(out_of), lanes);
            } else {
              for (int part = 0; part < PARTS; part++) store(y + part * U + j, s[part], lanes);
            }
          });
        }
      }
    }
  free(memory);
}

// grad: (batch, PARTS, modes, units), the gradient of the final state at first and that of the initial one at last; dout:
// as out, or null; dgx: as gx; dextra: (models, EXTRAS, modes, units), added to.
extern "C" void backward(const Walk *walk, int64_t first, int64_t last, const R *gx, const R *extra, const R *kept,
                         const R *dout, R *grad, R *dgx, R *dextra) {
  const Walk w = *walk;
  const int64_t U = w.units, N = w.modes, width = w.width(), across_row = SUMMED ? U : PARTS * U;
  const int64_t each = (COEFFICIENTS + PARTS) * U + w.saved;
  R *const memory = numbers(CHUNK * each + (COEFFICIENTS + COLUMNS) * U), *const pulled = memory + CHUNK * each;
  R *above[COEFFICIENTS];
  for (int k = 0; k < COEFFICIENTS; k++) above[k] = pulled + (COLUMNS + k) * U;
  for (int64_t b = first; b < last; b++)
    for (int64_t chunk = w.chunks(b) - 1; chunk >= 0; chunk--) {
      const int64_t count = w.count(b, chunk), start = chunk * CHUNK;
      for (int64_t k = 0; k < count; k++) clear(dgx + w.row(b, start + k) * width, width);
      for (int64_t n = 0; n < N; n++) {
        const R *extras[EXTRAS + 1];
        R *dextras[EXTRAS + 1];
        for (int k = 0; k < EXTRAS; k++) extras[k] = extra + w.extra(b, k, n), dextras[k] = dextra + w.extra(b, k, n);
        const R *old[2] = {kept + w.lanes(chunk * w.batch + b, 0, n), kept + w.lanes(chunk * w.batch + b, PARTS - 1, n)};
        for (int64_t k = 0; k < count; k++) {
          const R *const row = gx + w.row(b, start + k) * width;
          R *const here = memory + k * each, *coefficient[COEFFICIENTS];
          for (int i = 0; i < COEFFICIENTS; i++) coefficient[i] = here + i * U;
          R *const next[2] = {here + COEFFICIENTS * U, here + (COEFFICIENTS + PARTS - 1) * U};
          forward_row(U, row, extras, coefficient, here + (COEFFICIENTS + PARTS) * U);
          const R into = SHARED ? row[COLUMNS * U + n] : R(1);
          over_units(U, [&](const int64_t j, const auto lanes) INLINED {
            V s[2] = {load(old[0] + j, lanes), load(old[1] + j, lanes)};
            advance(s, coefficient, into, j, lanes);
            for (int part = 0; part < PARTS; part++) store(next[part] + j, s[part], lanes);
          });
          old[0] = next[0], old[1] = next[1];
        }
        R *const g[2] = {grad + w.lanes(b, 0, n), grad + w.lanes(b, PARTS - 1, n)};
        for (int64_t k = count - 1; k >= 0; k--) {
          const int64_t row = w.row(b, start + k);
          const R *const factors = gx + row * width + COLUMNS * U + n;
          const R into = SHARED ? factors[0] : R(1), out_of = SHARED ? factors[N] : R(1);
          R *const here = memory + k * each, *coefficient[COEFFICIENTS];
          for (int i = 0; i < COEFFICIENTS; i++) coefficient[i] = here + i * U;
          const R *const new_re = here + COEFFICIENTS * U, *const new_im = here + (COEFFICIENTS + PARTS - 1) * U;
          const R *const re = k ? new_re - each : kept + w.lanes(chunk * w.batch + b, 0, n);
          const R *const im = k ? new_im - each : kept + w.lanes(chunk * w.batch + b, PARTS - 1, n);
          const R *const dy = dout ? dout + row * across_row : nullptr;
          V dinto = c(R(0)), dout_of = c(R(0));
          over_units(U, [&](const int64_t j, const auto lanes) INLINED {
            V G[2] = {load(g[0] + j, lanes), load(g[1] + j, lanes)};
            const V s[2] = {load(re + j, lanes), load(im + j, lanes)}, a = load(coefficient[0] + j, lanes);
            if constexpr (SUMMED) {
              const V above_y = dy ? load(dy + j, lanes) : c(R(0)), pull = above_y * c(out_of);
              const V read = load(coefficient[2 * PARTS] + j, lanes), now = load(new_re + j, lanes);
              V sum = read * now;
              G[0] = G[0] + read * pull;
              store(above[2 * PARTS] + j, pull * now, lanes);
              if constexpr (PARTS == 2) {
                const V other = load(coefficient[5] + j, lanes), also = load(new_im + j, lanes);
                sum = sum - other * also;
                G[1] = G[1] - other * pull;
                store(above[5] + j, -(pull * also), lanes);
              }
              if constexpr (SHARED) dout_of = dout_of + among(above_y * sum, R(0), lanes);
            } else if (dy) {
              for (int part = 0; part < PARTS; part++) G[part] = G[part] + load(dy + part * U + j, lanes);
            }
            if constexpr (SHARED)
              for (int part = 0; part < PARTS; part++)
                dinto = dinto + among(G[part] * load(coefficient[PARTS + part] + j, lanes), R(0), lanes);
            for (int part = 0; part < PARTS; part++) store(above[PARTS + part] + j, G[part] * c(into), lanes);
            if constexpr (PARTS == 1) {
              store(above[0] + j, G[0] * s[0], lanes);
              store(g[0] + j, a * G[0], lanes);
            } else {
              const V ai = load(coefficient[1] + j, lanes);
              store(above[0] + j, G[0] * s[0] + G[1] * s[1], lanes);
              store(above[1] + j, G[1] * s[0] - G[0] * s[1], lanes);
              store(g[0] + j, a * G[0] + ai * G[1], lanes);
              store(g[1] + j, a * G[1] - ai * G[0], lanes);
            }
          });
          backward_row(U, here + (COEFFICIENTS + PARTS) * U, coefficient, extras, above, pulled, dextras);
          R *const target = dgx + row * width;
          over_units(COLUMNS * U, [&](const int64_t j, const auto lanes) INLINED {
            store(target + j, load(target + j, lanes) + load(pulled + j, lanes), lanes);
          });
          if constexpr (SHARED) {
            const auto join = [](V x, V y) INLINED { return x + y; };
            target[COLUMNS * U + n] = across(dinto, join), target[COLUMNS * U + N + n] = across(dout_of, join);
          }
        }
      }
    }
  free(memory);
}
