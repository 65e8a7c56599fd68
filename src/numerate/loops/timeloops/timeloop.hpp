// The walk along time around the emitted functions `forward_row` and `backward_row`.
//
// Row b of step t lies at starts[t] + b of every array with a row per step; the first alive[t] rows of the batch take
// part in step t, so that sequences may end early. Rows do not depend on each other: each call walks the whole sequence
// for the rows first, ..., last - 1, and calls may run side by side. `multiply` is that of product.cpp.

extern "C" void *malloc(__SIZE_TYPE__);
extern "C" void free(void *);

typedef void (*Multiply)(int64_t rows, int64_t depth, int64_t columns, const R *a, int64_t stride_a, const R *b, R *c,
                         int64_t stride_c, bool add);

struct Segment {
  int64_t own, start, width;  // whether it lies in dgh or in dgx, and where in a row
};

struct Walk {
  int64_t steps, hidden, columns, saved, own, padded, reverse, segments;  // padded: hidden as packed
  const int64_t *starts, *alive;
  const Segment *segment;
  Multiply multiply;

  INLINE int64_t time(int64_t step) const { return reverse ? steps - 1 - step : step; }
  INLINE int64_t rows(int64_t t, int64_t first, int64_t last) const {
    const int64_t end = alive[t] < last ? alive[t] : last;
    return end > first ? end - first : 0;
  }
};

static INLINE void copy(R *to, const R *from, int64_t size) { __builtin_memcpy(to, from, size * sizeof(R)); }
static INLINE R *numbers(int64_t size) { return (R *)malloc((size ? size : 1) * sizeof(R)); }

// state: where each row is now, (B, H) each, the initial state at first and the final one at last.
// history: (rows, H) for each entry, history[0] is the output; the others, and `saved`, may be null if there is no
// backward walk to come.
extern "C" void forward(const Walk *walk, int64_t first, int64_t last, const R *gx, const R *weight, R *const *state,
                        const R *const *extra, R *const *history, R *saved) {
  const Walk w = *walk;
  const int64_t H = w.hidden, C = w.columns;
  R *const gh = numbers((last - first) * C), *const unused = numbers(w.saved + STATES * H);
  for (int64_t step = 0; step < w.steps; step++) {
    const int64_t t = w.time(step), count = w.rows(t, first, last);
    w.multiply(count, H, C, state[0] + first * H, H, weight, gh, C, false);
    for (int64_t b = first; b < first + count; b++) {
      const int64_t row = w.starts[t] + b;
      const R *now[STATES];
      R *fresh[STATES];
      for (int k = 0; k < STATES; k++) {
        now[k] = state[k] + b * H;
        fresh[k] = history[k] ? history[k] + row * H : unused + w.saved + k * H;
      }
      forward_row(H, gx + row * C, gh + (b - first) * C, now, extra, fresh, saved ? saved + row * w.saved : unused);
      for (int k = 0; k < STATES; k++) copy(state[k] + b * H, fresh[k], H);
    }
  }
  free(gh), free(unused);
}

// grad: (B, H) each, the gradient of the final state at first and that of the initial one at last; dout: (rows, H) or
// null; dgh: (rows, own), the columns of the gradient of gh that are not those of dgx; weight: packed segment by segment;
// dextra: (H,) each, added to.
extern "C" void backward(const Walk *walk, int64_t first, int64_t last, const R *weight, const R *const *initial,
                         const R *const *extra, const R *const *history, const R *saved, const R *dout, R *const *grad,
                         R *dgx, R *dgh, R *const *dextra) {
  const Walk w = *walk;
  const int64_t H = w.hidden, C = w.columns;
  R *const here = numbers(STATES * H);
  for (int64_t step = w.steps - 1; step >= 0; step--) {
    const int64_t t = w.time(step), count = w.rows(t, first, last), before = step ? w.time(step - 1) : 0;
    for (int64_t b = first; b < first + count; b++) {
      const int64_t row = w.starts[t] + b;
      const bool begins = step == 0 || b >= w.alive[before];
      const R *old[STATES], *fresh[STATES], *gradient[STATES];
      R *dstate[STATES];
      for (int k = 0; k < STATES; k++) {
        old[k] = begins ? initial[k] + b * H : history[k] + (w.starts[before] + b) * H;
        fresh[k] = history[k] + row * H;
        dstate[k] = grad[k] + b * H;
        gradient[k] = here + k * H;
        copy(here + k * H, dstate[k], H);
      }
      if (dout)
        for (int64_t j = 0; j < H; j++) here[j] += dout[row * H + j];
      backward_row(H, saved + row * w.saved, old, fresh, extra, gradient, dgx + row * C, dgh + row * w.own, dstate, dextra);
    }
    const R *right = weight;
    for (int64_t s = 0; s < w.segments; s++) {
      const Segment here = w.segment[s];
      const R *left = (here.own ? dgh + (w.starts[t] + first) * w.own : dgx + (w.starts[t] + first) * C) + here.start;
      w.multiply(count, here.width, H, left, here.own ? w.own : C, right, grad[0] + first * H, H, true);
      right += here.width * w.padded;
    }
  }
  free(here);
}
