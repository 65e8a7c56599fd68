// Constants of many expressions on one table. Each lane has an expression of its own; its rows are run through together,
// as many at once as a vector has lanes. Needs marquardt.hpp and OPERATIONS, an enumeration, from tape.py, which is the same
// in NumPy.
const int BLOCK = 8;  // vectors of rows at once

struct Instruction {
  int32_t operation, left, right, varies;  // varies: depends on a constant
};
typedef V Rows[BLOCK];

#define ROWS(expression) \
  for (int q = 0; q < BLOCK; q++) out[q] = expression;

// The value of an instruction from those of its arguments.
static void forward(int operation, const V *x, const V *y, V *out) {
  switch (operation) {
    case ADD: ROWS(x[q] + y[q]) break;
    case SUB: ROWS(x[q] - y[q]) break;
    case MUL: ROWS(x[q] * y[q]) break;
    case DIV: ROWS(x[q] / y[q]) break;
    case POW: ROWS(pow(x[q], y[q])) break;
    case NEG: ROWS(-x[q]) break;
    case ABS: ROWS(abs_lanes(x[q])) break;
    case SIGN: ROWS(sign(x[q])) break;
    case SQRT: ROWS(sqrt_lanes(x[q])) break;
    case SQUARE: ROWS(x[q] * x[q]) break;
    case EXP: ROWS(exp_lanes(x[q])) break;
    case LOG: ROWS(log_lanes(x[q])) break;
    case SIN: ROWS(sin(x[q])) break;
    case COS: ROWS(cos(x[q])) break;
    case TAN: ROWS(sin(x[q]) / cos(x[q])) break;
    case SINH: ROWS(0.5 * (expm1(x[q]) - expm1(-x[q]))) break;
    case COSH: ROWS(0.5 * (exp_lanes(x[q]) + exp_lanes(-x[q]))) break;
    case TANH: ROWS(tanh(x[q])) break;
    case ASIN: ROWS(atan2(x[q], sqrt_lanes((1.0 - x[q]) * (1.0 + x[q])))) break;
    case ACOS: ROWS(atan2(sqrt_lanes((1.0 - x[q]) * (1.0 + x[q])), x[q])) break;
    case ATAN: ROWS(atan(x[q])) break;
  }
}
#undef ROWS
#define PULL(expression) \
  for (int q = 0; q < BLOCK; q++) dx[q] = fma(g[q], expression, dx[q]);
#define PULL_RIGHT(expression) \
  for (int q = 0; q < BLOCK; q++) dy[q] = fma(g[q], expression, dy[q]);

// What the gradient g of a value f(x, y) adds to those of its arguments; null where none is asked for.
static void backward(int operation, const V *x, const V *y, const V *f, const V *g, V *dx, V *dy) {
  if (dx) switch (operation) {
    case ADD: case SUB: PULL(c(1.0)) break;
    case MUL: PULL(y[q]) break;
    case DIV: PULL(1.0 / y[q]) break;
    case POW: PULL(y[q] * pow(x[q], y[q] - 1.0)) break;
    case NEG: PULL(c(-1.0)) break;
    case ABS: PULL(sign(x[q])) break;
    case SQRT: PULL(0.5 / f[q]) break;
    case SQUARE: PULL(2.0 * x[q]) break;
    case EXP: PULL(f[q]) break;
    case LOG: PULL(1.0 / x[q]) break;
    case SIN: PULL(cos(x[q])) break;
    case COS: PULL(-sin(x[q])) break;
    case TAN: PULL(fma(f[q], f[q], c(1.0))) break;
    case SINH: PULL(0.5 * (exp_lanes(x[q]) + exp_lanes(-x[q]))) break;
    case COSH: PULL(0.5 * (expm1(x[q]) - expm1(-x[q]))) break;
    case TANH: PULL(fma(-f[q], f[q], c(1.0))) break;
    case ASIN: PULL(1.0 / sqrt_lanes((1.0 - x[q]) * (1.0 + x[q]))) break;
    case ACOS: PULL(-1.0 / sqrt_lanes((1.0 - x[q]) * (1.0 + x[q]))) break;
    case ATAN: PULL(1.0 / fma(x[q], x[q], c(1.0))) break;
  }
  if (dy) switch (operation) {
    case ADD: PULL_RIGHT(c(1.0)) break;
    case SUB: PULL_RIGHT(c(-1.0)) break;
    case MUL: PULL_RIGHT(x[q]) break;
    case DIV: PULL_RIGHT(-f[q] / y[q]) break;
    case POW: PULL_RIGHT(f[q] * log_lanes(x[q])) break;
  }
}

struct Tapes {
  static constexpr bool fixed_frame = true;
  int numbers, unknowns;
  int64_t rows, stride;            // rows, and rows with those that fill up the last block
  const double *table;             // columns of the inputs, each `stride` long
  const double *target, *weight;   // residual = weight * value - target
  const int64_t *begins;           // where each expression's instructions begin
  const Instruction *instructions;
  const double *fixed;             // numbers that are no constants, one place for each instruction
  int64_t candidate[LANES];
  V *normal, *slope, *new_normal, *new_slope, *sums;
  Rows *values, *gradients, *columns;

  void take(int lane, int64_t start) { candidate[lane] = start; }

  V evaluate(V *trial) {
    for (int i = 0; i < triangle(unknowns); i++) new_normal[i] = V{};
    for (int i = 0; i < unknowns; i++) new_slope[i] = V{};
    V loss = {};
    for (int lane = 0; lane < LANES; lane++)
      if (candidate[lane] >= 0) loss[lane] = expression(trial, lane);
    return loss;
  }

  // The sum of squares of one lane's expression; its normal equations into that lane.
  double expression(const V *trial, int lane) {
    const Instruction *const code = instructions + begins[candidate[lane]];
    const double *const numbers_here = fixed + begins[candidate[lane]];
    const int length = (int)(begins[candidate[lane] + 1] - begins[candidate[lane]]);
    int used = 0;
    for (int i = 0; i < length; i++)
      if (code[i].operation == CONSTANT && code[i].left >= used) used = code[i].left + 1;
    for (int i = 0; i < triangle(used + 1); i++) sums[i] = V{};
    for (int i = 0; i < length; i++)
      for (int q = 0; q < BLOCK; q++)
        values[i][q] = code[i].operation == CONSTANT ? c(trial[code[i].left][lane]) : c(numbers_here[i]);
    for (int64_t first = 0; first < stride; first += BLOCK * LANES) block(code, length, used, first);
    int place = 0;
    for (int k = 0; k < used; k++)
      for (int l = 0; l <= k; l++) new_normal[triangle(k) + l][lane] = total(sums[place++]);
    for (int k = 0; k < used; k++) new_slope[k][lane] = -total(sums[place++]);
    return total(sums[place]);
  }
  static double total(V sum) {
    double result = 0.0;
    for (int lane = 0; lane < LANES; lane++) result += sum[lane];
    return result;
  }

  const V *at(const Instruction &instruction, int place, int64_t first) const {
    return instruction.operation == INPUT ? (const V *)(table + instruction.left * stride + first) : values[place];
  }

  void block(const Instruction *code, int length, int used, int64_t first) {
    for (int i = 0; i < length; i++) {
      const Instruction &mine = code[i];
      if (mine.operation > CONSTANT)
        forward(mine.operation, at(code[mine.left], mine.left, first), at(code[mine.right], mine.right, first), values[i]);
      if (mine.varies)
        for (int q = 0; q < BLOCK; q++) gradients[i][q] = V{};
    }
    const V *const weights = (const V *)(weight + first), *const targets = (const V *)(target + first);
    const V *const value = at(code[length - 1], length - 1, first);
    Rows &residual = columns[used];
    for (int q = 0; q < BLOCK; q++) {
      residual[q] = where(weights[q] > 0.0, fma(weights[q], value[q], -targets[q]), V{});
      gradients[length - 1][q] = weights[q];
    }
    for (int k = 0; k < used; k++)
      for (int q = 0; q < BLOCK; q++) columns[k][q] = V{};
    for (int i = length; i-- > 0;) {
      const Instruction &mine = code[i];
      if (!mine.varies) continue;
      if (mine.operation == CONSTANT) {
        for (int q = 0; q < BLOCK; q++) columns[mine.left][q] += where(weights[q] > 0.0, gradients[i][q], V{});
      } else {
        V *const left = code[mine.left].varies ? gradients[mine.left] : nullptr;
        V *const right = mine.right != i && code[mine.right].varies ? gradients[mine.right] : nullptr;
        backward(mine.operation, at(code[mine.left], mine.left, first), at(code[mine.right], mine.right, first), values[i], gradients[i], left, right);
      }
    }
    V *sum = sums;
    for (int k = 0; k < used; k++)
      for (int l = 0; l <= k; l++) dot(columns[k], columns[l], *sum++);
    for (int k = 0; k < used; k++) dot(columns[k], residual, *sum++);
    dot(residual, residual, *sum);
  }
  static INLINE void dot(const Rows &x, const Rows &y, V &sum) {
    for (int q = 0; q < BLOCK; q++) sum = fma(x[q], y[q], sum);
  }

  void accept(M lanes) {
    for (int i = 0; i < triangle(unknowns); i++) normal[i] = where(lanes, new_normal[i], normal[i]);
    for (int i = 0; i < unknowns; i++) slope[i] = where(lanes, new_slope[i], slope[i]);
  }
  V length(const V *point, const V *scale) const {
    V sum = {};
    for (int k = 0; k < unknowns; k++) sum = fma(scale[k] * point[k], scale[k] * point[k], sum);
    return sqrt_lanes(sum);
  }
  void move(const V *point, const V *step, V *trial, M lanes) const {
    for (int k = 0; k < unknowns; k++) trial[k] = where(lanes, point[k] + step[k], trial[k]);
  }
};

extern "C" int64_t rows_at_once() { return BLOCK * LANES; }
extern "C" void fit(int64_t first, int64_t last, int64_t constants, int64_t longest, int64_t rows, int64_t stride, const double *table,
                    const double *target, const double *weight, const int64_t *begins, const Instruction *instructions, const double *fixed,
                    const double *starts, const Settings *settings, double *points, double *losses, double *normals, int64_t *evaluations,
                    int64_t *converged) {
  const int size = (int)constants;
  Tapes model = {size, size, rows, stride, table, target, weight, begins, instructions, fixed};
  model.normal = vectors(triangle(size)), model.new_normal = vectors(triangle(size));
  model.slope = vectors(size), model.new_slope = vectors(size), model.sums = vectors(triangle(size + 1) + 1);
  model.values = (Rows *)vectors(longest * BLOCK), model.gradients = (Rows *)vectors(longest * BLOCK), model.columns = (Rows *)vectors((size + 1) * BLOCK);
  levenberg_marquardt(model, first, last, starts, *settings, points, losses, normals, evaluations, converged);
  V *const all[] = {model.normal, model.new_normal, model.slope, model.new_slope, model.sums, (V *)model.values, (V *)model.gradients, (V *)model.columns};
  for (V *memory : all) free(memory);
}
