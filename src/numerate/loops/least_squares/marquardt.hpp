// Levenberg–Marquardt with one start per lane; marquardt.py is the same in NumPy. Needs prelude64.hpp and lanes64.hpp.
//
// A Model has `numbers` numbers per point and `unknowns` directions of a step, `fixed_frame` if these are always the same, and
//   void take(int lane, int64_t start)     which start, or -1 for none, a lane has from now on
//   V evaluate(V *trial)                   the sum of squares at the trial point, which it may normalise
//   void accept(M lanes)                   make the trial the current point of these lanes, with its normal equations:
//   V *normal, *slope                      lower triangle of J^T J, and -J^T r, at the current point
//   V length(const V *point, const V *scale)       size of the point, measured as the step is
//   void move(const V *point, const V *step, V *trial, M lanes)
// Lanes never mix: what a start gives does not depend on its neighbours. A lane that is done takes the next start.
#include <stdlib.h>

static V *vectors(int64_t count) {
  void *memory = aligned_alloc(sizeof(V), sizeof(V) * (count + 1));
  return (V *)__builtin_memset(memory, 0, sizeof(V) * (count + 1));
}
static INLINE int triangle(int i) { return i * (i + 1) / 2; }

// Cholesky factor of a packed lower triangle, in place; the diagonal holds reciprocals. A pivot that is not above
// `least` belongs to a column that depends on earlier ones, or to numbers that are none: its unknown becomes 0.
static void cholesky(V *a, int size, double least) {
  for (int j = 0; j < size; j++) {
    V *const row = a + triangle(j);
    V pivot = row[j];
    for (int k = 0; k < j; k++) pivot = fma(-row[k], row[k], pivot);
    const V reciprocal = where(pivot > least, 1.0 / sqrt_lanes(pivot), V{});
    row[j] = reciprocal;
    int i = j + 1;
    for (; i + 4 <= size; i += 4) {
      V *const p = a + triangle(i), *const q = a + triangle(i + 1), *const r = a + triangle(i + 2), *const s = a + triangle(i + 3);
      V x = p[j], y = q[j], z = r[j], w = s[j];
      for (int k = 0; k < j; k++) {
        const V l = -row[k];
        x = fma(l, p[k], x), y = fma(l, q[k], y), z = fma(l, r[k], z), w = fma(l, s[k], w);
      }
      p[j] = x * reciprocal, q[j] = y * reciprocal, r[j] = z * reciprocal, s[j] = w * reciprocal;
    }
    for (; i < size; i++) {
      V *const p = a + triangle(i);
      V x = p[j];
      for (int k = 0; k < j; k++) x = fma(-row[k], p[k], x);
      p[j] = x * reciprocal;
    }
  }
}
static void forwards(const V *factor, int size, V *b) {
  for (int i = 0; i < size; i++) {
    const V *const row = factor + triangle(i);
    V x = b[i];
    for (int k = 0; k < i; k++) x = fma(-row[k], b[k], x);
    b[i] = x * row[i];
  }
}
static void backwards(const V *factor, int size, V *b) {
  for (int i = size; i-- > 0;) {
    const V *const row = factor + triangle(i);
    b[i] = b[i] * row[i];
    for (int k = 0; k < i; k++) b[k] = fma(-row[k], b[i], b[k]);
  }
}

struct Settings {
  double damping, small_gain, small_step, enough;
  int64_t evaluations, refusals;
};
const double LEAST_DAMPING = 1e-15, LEAST_PIVOT = 1e-15;

// The damped step of all lanes: (S + damping) z = D^-1 slope, S = D^-1 normal D^-1, step = D^-1 z, where D^2 is the diagonal
// of the normal equations, or the largest so far if directions stay what they are.
struct Step {
  M small;         // lanes whose step is small
  V predicted;     // fall of the sum of squares, were the residuals linear
};
template <class Model>
static Step solve(Model &model, V damping, const V *point, double small, V *scale, V *system, V *step) {
  const int size = model.unknowns;
  for (int i = 0; i < size; i++) {
    const V own = sqrt_lanes(model.normal[triangle(i) + i]);
    scale[i] = Model::fixed_frame ? maximum(scale[i], own) : own;
  }
  for (int i = 0; i < size; i++) {
    const V mine = where(scale[i] > 0.0, scale[i], c(1.0));
    for (int j = 0; j < i; j++) system[triangle(i) + j] = model.normal[triangle(i) + j] / (mine * where(scale[j] > 0.0, scale[j], c(1.0)));
    system[triangle(i) + i] = model.normal[triangle(i) + i] / (mine * mine) + damping;
    step[i] = model.slope[i] / mine;
  }
  cholesky(system, size, LEAST_PIVOT);
  forwards(system, size, step);
  backwards(system, size, step);
  V moved = {}, along = {};
  for (int i = 0; i < size; i++) {
    moved = fma(step[i], step[i], moved);
    step[i] = step[i] / where(scale[i] > 0.0, scale[i], c(1.0));
    along = fma(step[i], model.slope[i], along);
  }
  const V length = model.length(point, scale);
  return {moved <= small * small * length * length, fma(damping, moved, along)};
}

// Starts first, ..., last - 1: where each ends, its sum of squares, J^T J there, evaluations, and whether it converged.
template <class Model>
static void levenberg_marquardt(Model &model, int64_t first, int64_t last, const double *starts, const Settings &settings,
                                double *points, double *losses, double *normals, int64_t *evaluations, int64_t *converged) {
  const int numbers = model.numbers, size = model.unknowns;
  V *const trial = vectors(numbers), *const point = vectors(numbers), *const step = vectors(size);
  V *const scale = vectors(size), *const system = vectors(triangle(size));
  V loss, damping, predicted;
  int64_t start[LANES], count[LANES], refused[LANES], still[LANES], next = first;
  int working = 0;

  // The next start into a lane, or nothing more to do there.
  const auto refill = [&](int lane) {
    const int64_t from = next < last ? next : first;
    start[lane] = next < last ? next++ : -1;
    model.take(lane, start[lane]);
    working += start[lane] >= 0;
    for (int i = 0; i < numbers; i++) trial[i][lane] = starts[from * numbers + i];
    for (int i = 0; i < size; i++) scale[i][lane] = 0.0;
    loss[lane] = INF, damping[lane] = settings.damping;
    count[lane] = refused[lane] = still[lane] = 0;
  };
  const auto finish = [&](int lane, bool good) {
    const int64_t to = start[lane];
    for (int i = 0; i < numbers; i++) points[to * numbers + i] = point[i][lane];
    if (normals)
      for (int i = 0; i < triangle(size); i++) normals[to * triangle(size) + i] = model.normal[i][lane];
    losses[to] = loss[lane], evaluations[to] = count[lane], converged[to] = good;
    working--;
    refill(lane);
  };

  for (int lane = 0; lane < LANES; lane++) refill(lane);
  while (working) {
    const V found = model.evaluate(trial);
    const M better = found < loss;
    const V gain = 1.0 - found / loss, ratio = (loss - found) / predicted;
    for (int i = 0; i < numbers; i++) point[i] = where(better, trial[i], point[i]);
    if (any(better)) model.accept(better);
    bool fresh[LANES];
    for (int lane = 0; lane < LANES; lane++) {
      fresh[lane] = start[lane] < 0;
      if (fresh[lane]) continue;
      count[lane]++;
      const bool begun = loss[lane] < INF;
      if (better[lane]) {
        still[lane] = begun && gain[lane] < settings.small_gain ? still[lane] + 1 : 0;
        if (begun && ratio[lane] > 0.75) damping[lane] = damping[lane] * 0.25 > LEAST_DAMPING ? damping[lane] * 0.25 : LEAST_DAMPING;
        if (begun && ratio[lane] < 0.25) damping[lane] *= 2.0;
        loss[lane] = found[lane], refused[lane] = 0;
      } else if (begun) {
        damping[lane] *= (double)(3ll << refused[lane]++);
      } else {
        for (int i = 0; i < numbers; i++) point[i][lane] = trial[i][lane];
        loss[lane] = NOT_A_NUMBER;
      }
      const bool none = !(loss[lane] < INF), good = !none && (still[lane] > 1 || loss[lane] <= settings.enough);
      if (none || good || refused[lane] >= settings.refusals || count[lane] >= settings.evaluations) finish(lane, good), fresh[lane] = true;
    }
    const Step next_step = solve(model, damping, point, settings.small_step, scale, system, step);
    predicted = next_step.predicted;
    const M end = next_step.small | ((damping < 1.0) & (predicted <= settings.small_gain * loss));
    M moving = {};
    for (int lane = 0; lane < LANES; lane++) {
      if (fresh[lane]) {
        for (int i = 0; i < size; i++) scale[i][lane] = 0.0;  // what was solved here belongs to the start before
      } else if (end[lane]) {
        finish(lane, true);
      } else {
        moving[lane] = -1;
      }
    }
    model.move(point, step, trial, moving);
  }
  V *const all[] = {trial, point, step, scale, system};
  for (V *memory : all) free(memory);
}
