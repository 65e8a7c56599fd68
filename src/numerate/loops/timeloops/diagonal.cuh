// The walk along time of a diagonal recurrence on a GPU, around the emitted functions `forward_unit` and `backward_unit`; as
// diagonal.hpp on a CPU, with the same layouts.
//
// A thread has a unit of a row and walks it alone, with all of its modes; the 32 threads of a warp have neighbouring units.
// Steps go in chunks: the columns and outputs of a chunk are in registers, and one mode after the other walks through it.
// Where there are few rows, time is cut into segments of several chunks that walk side by side. `survey` walks each from
// state 0, `join` finds the states where segments begin, and `forward` walks again from there; likewise backwards.
//
// Defined before: S, UNITS, MODES, PARTS, COLUMNS, EXTRAS, COEFFICIENTS, SAVED, SUMMED, SHARED, CHUNK, PACKED, FORWARD or
// BACKWARD.

const int TILES = (UNITS + 31) / 32, WARPS = 8;
const int WIDTH = COLUMNS * UNITS + (SHARED ? 2 * MODES : 0), OUT = SUMMED ? 1 : PARTS;
const int LANES = PARTS * MODES * UNITS;  // numbers in the state of a row

#ifdef __CUDACC__
INLINE float over_warp(float value) {
  for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(0xFFFFFFFF, value, distance);
  return value;
}
#endif

// Where a thread is. `batch` rows in all, `rows_each` of each model; arrays with a row per step have `total` rows for each
// model. `segments` of `each` chunks; `starts` and `lengths`, of one model, may be null if all rows are alike.
struct Place {
  int64 warp, row, model, origin, segment, batch, steps, rows_each, each, reverse, length, chunks;
  const int64 *starts;
  int unit, tile;
  bool alive, idle;

  INLINE Place(const int64 *starts, const int64 *lengths, int64 steps, int64 batch, int64 rows_each, int64 segments,
               int64 each, int64 reverse, int64 total)
      : batch(batch), steps(steps), rows_each(rows_each), each(each), reverse(reverse), starts(starts) {
    warp = int64(blockIdx.x) * WARPS + threadIdx.x / 32;
    tile = int(warp % TILES), row = warp / TILES % batch, segment = warp / TILES / batch;
    model = row / rows_each, origin = model * total + row % rows_each;
    idle = segment >= segments;
    const int own = tile * 32 + threadIdx.x % 32;
    alive = own < UNITS, unit = alive ? own : UNITS - 1;
    length = PACKED && !idle ? lengths[row % rows_each] : steps;
    chunks = (length + CHUNK - 1) / CHUNK;
  }
  INLINE int64 first() const { return segment * each; }  // chunk of the segment
  INLINE int64 end() const { return (segment + 1) * each < chunks ? (segment + 1) * each : chunks; }
  INLINE int count(int64 chunk) const { return length - chunk * CHUNK < CHUNK ? int(length - chunk * CHUNK) : CHUNK; }
  INLINE int64 at(int64 chunk, int k) const {
    const int64 step = chunk * CHUNK + k, t = reverse ? length - 1 - step : step;
    return origin + (PACKED ? starts[t] : t * rows_each);
  }
  INLINE int64 lane(int part, int n) const { return (part * MODES + n) * UNITS + unit; }
};

INLINE void load_columns(const Place &here, const S *gx, int64 chunk, int count, float (*column)[COLUMNS]) {
  UNROLL for (int k = 0; k < CHUNK; k++) if (k < count) {
    const S *const row = gx + here.at(chunk, k) * WIDTH + here.unit;
    UNROLL for (int c = 0; c < COLUMNS; c++) column[k][c] = number(row[c * UNITS]);
  }
}
// The numbers of mode n that multiply b and c.
INLINE float into(const Place &here, const S *gx, int64 chunk, int k, int n) {
  return SHARED ? number(gx[here.at(chunk, k) * WIDTH + COLUMNS * UNITS + n]) : 1.0f;
}
INLINE float out_of(const Place &here, const S *gx, int64 chunk, int k, int n) {
  return SHARED ? number(gx[here.at(chunk, k) * WIDTH + COLUMNS * UNITS + MODES + n]) : 1.0f;
}
INLINE void load_extras(const Place &here, const float *extra, int n, float *own) {
  UNROLL for (int k = 0; k < EXTRAS; k++)
    own[k] = extra[((here.model * EXTRAS + k) * MODES + n) * UNITS + here.unit];
}
INLINE void times(const float *a, float *s) {  // s = a s
  if (PARTS == 1) {
    s[0] *= a[0];
  } else {
    const float re = s[0], im = s[PARTS - 1];
    s[0] = a[0] * re - a[PARTS - 1] * im, s[PARTS - 1] = a[0] * im + a[PARTS - 1] * re;
  }
}
INLINE void times_conjugate(const float *a, float *g) {  // the gradient of s from that of a s
  if (PARTS == 1) {
    g[0] *= a[0];
  } else {
    const float re = g[0], im = g[PARTS - 1];
    g[0] = a[0] * re + a[PARTS - 1] * im, g[PARTS - 1] = a[0] * im - a[PARTS - 1] * re;
  }
}
INLINE void advance(const float *coefficient, float factor, float *s) {
  times(coefficient, s);
  UNROLL for (int part = 0; part < PARTS; part++) s[part] += coefficient[PARTS + part] * factor;
}

#ifdef FORWARD
// From state 0 through each segment but the last: product of a (`decay`) and state at its end, (segments, batch, LANES).
KERNEL void survey(const S *gx, const float *extra, float *decay, float *reached, const int64 *starts, const int64 *lengths,
                   int64 steps, int64 batch, int64 rows_each, int64 segments, int64 each, int64 reverse, int64 total) {
  const Place here(starts, lengths, steps, batch, rows_each, segments, each, reverse, total);
  if (here.idle) return;
  float *const products = decay + (here.segment * batch + here.row) * LANES;
  float *const ends = reached + (here.segment * batch + here.row) * LANES;
  for (int64 chunk = here.first(); chunk < here.end(); chunk++) {
    const int count = here.count(chunk);
    float column[CHUNK][COLUMNS];
    load_columns(here, gx, chunk, count, column);
    for (int n = 0; n < MODES; n++) {
      float own[EXTRAS + 1], s[PARTS], a[PARTS];
      load_extras(here, extra, n, own);
      UNROLL for (int part = 0; part < PARTS; part++) {
        s[part] = chunk == here.first() ? 0.0f : ends[here.lane(part, n)];
        a[part] = chunk == here.first() ? float(part == 0) : products[here.lane(part, n)];
      }
      UNROLL for (int k = 0; k < CHUNK; k++) if (k < count) {
        float coefficient[COEFFICIENTS], saved[SAVED + 1];
        forward_unit(column[k], own, coefficient, saved);
        advance(coefficient, into(here, gx, chunk, k, n), s);
        times(coefficient, a);
      }
      if (here.alive)
        UNROLL for (int part = 0; part < PARTS; part++)
          ends[here.lane(part, n)] = s[part], products[here.lane(part, n)] = a[part];
    }
  }
}

// The states where segments begin, put into `kept`: at their first chunk, or at the segment's number if only those are
// kept (`all` is 0). A thread for each number of a mode and row.
KERNEL void join(const float *decay, const float *reached, const float *initial, float *kept, const int64 *lengths,
                 int64 steps, int64 batch, int64 rows_each, int64 segments, int64 each, int64 all) {
  const int64 index = int64(blockIdx.x) * WARPS * 32 + threadIdx.x;
  if (index >= batch * MODES * UNITS) return;
  const int64 row = index / (MODES * UNITS), lane = index % (MODES * UNITS);
  const int64 chunks = ((PACKED ? lengths[row % rows_each] : steps) + CHUNK - 1) / CHUNK;
  float s[PARTS];
  UNROLL for (int part = 0; part < PARTS; part++) s[part] = initial[row * LANES + part * MODES * UNITS + lane];
  for (int64 segment = 0; segment < segments && segment * each < chunks; segment++) {
    if (segment) {
      const int64 before = ((segment - 1) * batch + row) * LANES + lane;
      float a[PARTS];
      UNROLL for (int part = 0; part < PARTS; part++) a[part] = decay[before + part * MODES * UNITS];
      times(a, s);
      UNROLL for (int part = 0; part < PARTS; part++) s[part] += reached[before + part * MODES * UNITS];
    }
    float *const target = kept + ((all ? segment * each : segment) * batch + row) * LANES + lane;
    UNROLL for (int part = 0; part < PARTS; part++) target[part * MODES * UNITS] = s[part];
  }
}

// kept: (chunks, batch, LANES) if `all`, else (segments, batch, LANES); final: (batch, LANES); out: (rows, OUT * UNITS).
KERNEL void forward(const S *gx, const float *extra, float *kept, float *final, S *out, const int64 *starts,
                    const int64 *lengths, int64 steps, int64 batch, int64 rows_each, int64 segments, int64 each,
                    int64 reverse, int64 total, int64 all) {
  const Place here(starts, lengths, steps, batch, rows_each, segments, each, reverse, total);
  if (here.idle) return;
  for (int64 chunk = here.first(); chunk < here.end(); chunk++) {
    const int count = here.count(chunk);
    float column[CHUNK][COLUMNS], y[CHUNK][OUT];
    load_columns(here, gx, chunk, count, column);
    UNROLL for (int k = 0; k < CHUNK; k++) UNROLL for (int part = 0; part < OUT; part++) y[k][part] = 0;
    const float *const from = kept + ((all ? chunk : here.segment) * batch + here.row) * LANES;
    float *const to = chunk + 1 == here.chunks ? final + here.row * LANES
                      : all                    ? kept + ((chunk + 1) * batch + here.row) * LANES
                                               : kept + (here.segment * batch + here.row) * LANES;
    const bool stored_there = here.alive && (chunk + 1 < here.end() || chunk + 1 == here.chunks);
    for (int n = 0; n < MODES; n++) {
      float own[EXTRAS + 1], s[PARTS];
      load_extras(here, extra, n, own);
      UNROLL for (int part = 0; part < PARTS; part++) s[part] = from[here.lane(part, n)];
      UNROLL for (int k = 0; k < CHUNK; k++) if (k < count) {
        float coefficient[COEFFICIENTS], saved[SAVED + 1];
        forward_unit(column[k], own, coefficient, saved);
        advance(coefficient, into(here, gx, chunk, k, n), s);
        if (SUMMED) {
          float sum = coefficient[(2 * PARTS) % COEFFICIENTS] * s[0];
          if (PARTS == 2) sum -= coefficient[COEFFICIENTS - 1] * s[PARTS - 1];
          y[k][0] += sum * out_of(here, gx, chunk, k, n);
        } else {
          UNROLL for (int part = 0; part < OUT; part++) y[k][part] = s[part];
        }
      }
      if (stored_there) UNROLL for (int part = 0; part < PARTS; part++) to[here.lane(part, n)] = s[part];
    }
    if (here.alive)
      UNROLL for (int k = 0; k < CHUNK; k++) if (k < count)
        UNROLL for (int part = 0; part < OUT; part++)
          out[(here.at(chunk, k) * OUT + part) * UNITS + here.unit] = stored<S>(y[k][part]);
  }
}
#endif

#ifdef BACKWARD
INLINE void load_gradients(const Place &here, const S *dout, int64 chunk, int count, float (*dy)[OUT]) {
  UNROLL for (int k = 0; k < CHUNK; k++) UNROLL for (int part = 0; part < OUT; part++)
    dy[k][part] = dout && k < count ? number(dout[(here.at(chunk, k) * OUT + part) * UNITS + here.unit]) : 0.0f;
}
// What an output adds to the gradient of the state.
INLINE void pull_output(const float *coefficient, const float *dy, float factor, float *g) {
  if (SUMMED) {
    g[0] += coefficient[(2 * PARTS) % COEFFICIENTS] * dy[0] * factor;
    if (PARTS == 2) g[PARTS - 1] -= coefficient[COEFFICIENTS - 1] * dy[0] * factor;
  } else {
    UNROLL for (int part = 0; part < OUT; part++) g[part] += dy[part];
  }
}

// From gradient 0 back through each segment but the first: the gradient at its beginning, (segments, batch, LANES).
KERNEL void survey_gradients(const S *gx, const float *extra, const S *dout, float *reached, const int64 *starts,
                             const int64 *lengths, int64 steps, int64 batch, int64 rows_each, int64 segments, int64 each,
                             int64 reverse, int64 total) {
  const Place here(starts, lengths, steps, batch, rows_each, segments, each, reverse, total);
  if (here.idle) return;
  float *const begins = reached + (here.segment * batch + here.row) * LANES;
  for (int64 chunk = here.end() - 1; chunk >= here.first(); chunk--) {
    const int count = here.count(chunk);
    float column[CHUNK][COLUMNS], dy[CHUNK][OUT];
    load_columns(here, gx, chunk, count, column);
    load_gradients(here, dout, chunk, count, dy);
    for (int n = 0; n < MODES; n++) {
      float own[EXTRAS + 1], g[PARTS];
      load_extras(here, extra, n, own);
      UNROLL for (int part = 0; part < PARTS; part++)
        g[part] = chunk == here.end() - 1 ? 0.0f : begins[here.lane(part, n)];
      UNROLL for (int k = CHUNK - 1; k >= 0; k--) if (k < count) {
        float coefficient[COEFFICIENTS], saved[SAVED + 1];
        forward_unit(column[k], own, coefficient, saved);
        pull_output(coefficient, dy[k], out_of(here, gx, chunk, k, n), g);
        times_conjugate(coefficient, g);
      }
      if (here.alive) UNROLL for (int part = 0; part < PARTS; part++) begins[here.lane(part, n)] = g[part];
    }
  }
}

// The gradients where segments end, (segments, batch, LANES); decay as in the forward walk.
KERNEL void join_gradients(const float *decay, const float *reached, const float *dfinal, float *grad,
                           const int64 *lengths, int64 steps, int64 batch, int64 rows_each, int64 segments, int64 each) {
  const int64 index = int64(blockIdx.x) * WARPS * 32 + threadIdx.x;
  if (index >= batch * MODES * UNITS) return;
  const int64 row = index / (MODES * UNITS), lane = index % (MODES * UNITS);
  const int64 chunks = ((PACKED ? lengths[row % rows_each] : steps) + CHUNK - 1) / CHUNK;
  float g[PARTS];
  UNROLL for (int part = 0; part < PARTS; part++) g[part] = dfinal[row * LANES + part * MODES * UNITS + lane];
  for (int64 segment = (chunks - 1) / each; segment >= 0; segment--) {
    const int64 own = (segment * batch + row) * LANES + lane;
    UNROLL for (int part = 0; part < PARTS; part++) grad[own + part * MODES * UNITS] = g[part];
    if (segment) {
      float a[PARTS];
      UNROLL for (int part = 0; part < PARTS; part++) a[part] = decay[own + part * MODES * UNITS];
      times_conjugate(a, g);
      UNROLL for (int part = 0; part < PARTS; part++) g[part] += reached[own + part * MODES * UNITS];
    }
  }
}

// grad: (segments, batch, LANES), the gradient where each segment ends at first and where it begins at last; dgx: (rows,
// COLUMNS * UNITS); dshared: (rows, TILES, 2, MODES), for each warp; dextra: (segments, batch, EXTRAS, MODES, UNITS), 0.
KERNEL void backward(const S *gx, const float *extra, const float *kept, const S *dout, float *grad, S *dgx, float *dshared,
                     float *dextra, const int64 *starts, const int64 *lengths, int64 steps, int64 batch, int64 rows_each,
                     int64 segments, int64 each, int64 reverse, int64 total) {
  const Place here(starts, lengths, steps, batch, rows_each, segments, each, reverse, total);
  if (here.idle) return;
  float *const running = grad + (here.segment * batch + here.row) * LANES;
  float *const sums = dextra + (here.segment * batch + here.row) * EXTRAS * MODES * UNITS;
  for (int64 chunk = here.end() - 1; chunk >= here.first(); chunk--) {
    const int count = here.count(chunk);
    float column[CHUNK][COLUMNS], dcolumn[CHUNK][COLUMNS], dy[CHUNK][OUT];
    load_columns(here, gx, chunk, count, column);
    load_gradients(here, dout, chunk, count, dy);
    UNROLL for (int k = 0; k < CHUNK; k++) UNROLL for (int c = 0; c < COLUMNS; c++) dcolumn[k][c] = 0;
    for (int n = 0; n < MODES; n++) {
      float own[EXTRAS + 1], down[EXTRAS + 1], s[PARTS], g[PARTS], before[CHUNK][PARTS];
      load_extras(here, extra, n, own);
      UNROLL for (int k = 0; k < EXTRAS; k++) down[k] = 0;
      UNROLL for (int part = 0; part < PARTS; part++) {
        s[part] = kept[(chunk * batch + here.row) * LANES + here.lane(part, n)];
        g[part] = running[here.lane(part, n)];
      }
      UNROLL for (int k = 0; k < CHUNK; k++) if (k < count) {
        float coefficient[COEFFICIENTS], saved[SAVED + 1];
        UNROLL for (int part = 0; part < PARTS; part++) before[k][part] = s[part];
        forward_unit(column[k], own, coefficient, saved);
        advance(coefficient, into(here, gx, chunk, k, n), s);
      }
      UNROLL for (int k = CHUNK - 1; k >= 0; k--) if (k < count) {
        const float factor = into(here, gx, chunk, k, n), read = out_of(here, gx, chunk, k, n);
        float coefficient[COEFFICIENTS], saved[SAVED + 1], above[COEFFICIENTS], pulled[COLUMNS], now[PARTS];
        forward_unit(column[k], own, coefficient, saved);
        pull_output(coefficient, dy[k], read, g);
        UNROLL for (int part = 0; part < PARTS; part++) now[part] = before[k][part];
        advance(coefficient, factor, now);
        float dinto = 0, dout_of = 0;
        if (SUMMED) {
          const float pull = dy[k][0] * read;
          float sum = coefficient[(2 * PARTS) % COEFFICIENTS] * now[0];
          above[(2 * PARTS) % COEFFICIENTS] = pull * now[0];
          if (PARTS == 2) {
            sum -= coefficient[COEFFICIENTS - 1] * now[PARTS - 1];
            above[COEFFICIENTS - 1] = -pull * now[PARTS - 1];
          }
          dout_of = dy[k][0] * sum;
        }
        UNROLL for (int part = 0; part < PARTS; part++) {
          above[PARTS + part] = g[part] * factor;
          dinto += g[part] * coefficient[PARTS + part];
        }
        above[0] = g[0] * before[k][0];
        if (PARTS == 2) {
          above[0] += g[PARTS - 1] * before[k][PARTS - 1];
          above[PARTS - 1] = g[PARTS - 1] * before[k][0] - g[0] * before[k][PARTS - 1];
        }
        backward_unit(saved, coefficient, own, above, pulled, down);
        UNROLL for (int c = 0; c < COLUMNS; c++) dcolumn[k][c] += pulled[c];
        times_conjugate(coefficient, g);
        if (SHARED) {
          dinto = over_warp(here.alive ? dinto : 0.0f), dout_of = over_warp(here.alive ? dout_of : 0.0f);
          if (threadIdx.x % 32 == 0) {
            float *const target = dshared + (here.at(chunk, k) * TILES + here.tile) * 2 * MODES + n;
            target[0] = dinto, target[MODES] = dout_of;
          }
        }
      }
      if (here.alive) {
        UNROLL for (int part = 0; part < PARTS; part++) running[here.lane(part, n)] = g[part];
        UNROLL for (int k = 0; k < EXTRAS; k++) sums[(k * MODES + n) * UNITS + here.unit] += down[k];
      }
    }
    if (here.alive)
      UNROLL for (int k = 0; k < CHUNK; k++) if (k < count)
        UNROLL for (int c = 0; c < COLUMNS; c++)
          dgx[(here.at(chunk, k) * COLUMNS + c) * UNITS + here.unit] = stored<S>(dcolumn[k][c]);
  }
}
#endif
