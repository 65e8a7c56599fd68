// Index models by variable projection: y = exp(a . z) H(B z), H a polynomial of GROUPS variables; index.py is the same in
// NumPy. Needs marquardt.hpp, and GROUPS.
//
// The link is a sum of products of Chebyshev polynomials T_k, of total degree at most `degree`, in B z scaled to [-1, 1].
// Since 2 T_i T_j = T_(i+j) + T_|i-j|, the Gram matrix of its columns is made of the moments of w^2 = exp(2 a . z): many
// fewer sums over the rows than it has entries.
const int ROWS = 4, MOST = 12, MOST_INPUTS = 64;  // rows at once; highest degree; most inputs

typedef V Rows[ROWS];
typedef Rows Table[2 * MOST + 1];  // [k]: T_k, or its derivative, for each row

// T_0, ..., T_top
static INLINE void chebyshev(const Rows &x, Table &T, int top) {
  for (int q = 0; q < ROWS; q++) T[0][q] = c(1.0), T[1][q] = x[q];
  for (int k = 1; k < top; k++)
    for (int q = 0; q < ROWS; q++) T[k + 1][q] = fma(2.0 * x[q], T[k][q], -T[k - 1][q]);
}
static INLINE void derivatives(const Rows &x, const Table &T, Table &D, int top) {
  for (int q = 0; q < ROWS; q++) D[0][q] = V{}, D[1][q] = c(1.0);
  for (int k = 1; k < top; k++)
    for (int q = 0; q < ROWS; q++) D[k + 1][q] = fma(2.0 * x[q], D[k][q], fma(c(2.0), T[k][q], -D[k - 1][q]));
}

// Products of one T_k for each variable, total degree at most `left`, in lexicographic order, times `front`:
// their sums over the rows are added to `sums`,
template <int J>
static INLINE V *collect(V *sums, const Rows &front, const Table *T, int left) {
  for (int k = 0; k <= left; k++) {
    const Rows &t = T[J][k];
    if constexpr (J == GROUPS - 1) {
      *sums += fma(front[0], t[0], front[1] * t[1]) + fma(front[2], t[2], front[3] * t[3]);
      sums++;
    } else {
      const Rows next = {front[0] * t[0], front[1] * t[1], front[2] * t[2], front[3] * t[3]};
      sums = collect<J + 1>(sums, next, T, left - k);
    }
  }
  return sums;
}
// or they are written one after the other,
template <int J>
static INLINE Rows *columns(Rows *out, const Rows &front, const Table *T, int left) {
  for (int k = 0; k <= left; k++) {
    const Rows &t = T[J][k];
    const Rows next = {front[0] * t[0], front[1] * t[1], front[2] * t[2], front[3] * t[3]};
    if constexpr (J == GROUPS - 1) {
      for (int q = 0; q < ROWS; q++) (*out)[q] = next[q];
      out++;
    } else {
      out = columns<J + 1>(out, next, T, left - k);
    }
  }
  return out;
}
// or summed with coefficients.
template <int J>
static INLINE const V *combine(const V *coefficients, Rows &out, const Table *const *T, int left) {
  Rows sum = {};
  for (int k = 0; k <= left; k++) {
    const Rows &t = (*T[J])[k];
    if constexpr (J == GROUPS - 1) {
      for (int q = 0; q < ROWS; q++) sum[q] = fma(*coefficients, t[q], sum[q]);
      coefficients++;
    } else {
      Rows inner;
      coefficients = combine<J + 1>(coefficients, inner, T, left - k);
      for (int q = 0; q < ROWS; q++) sum[q] = fma(inner[q], t[q], sum[q]);
    }
  }
  for (int q = 0; q < ROWS; q++) out[q] = sum[q];
  return coefficients;
}

static int polynomials(int variables, int degree) {  // how many products there are
  int64_t count = 1;
  for (int i = 1; i <= variables; i++) count = count * (degree + i) / i;
  return (int)count;
}

struct Index {
  static constexpr bool fixed_frame = false;
  // the table: z (rows, inputs), target (rows), weight (rows), 0 for rows that fill up the last four
  int64_t rows;
  int inputs, degree;
  const double *z, *target, *weight;
  const int32_t *places;  // for each entry of the Gram matrix, the moments it is the mean of

  int terms, moments, others, numbers, unknowns;
  // of the trial: range of each group, factor of the Gram matrix, coefficients; and for each row w and the groups
  V middle[GROUPS], half[GROUPS];
  V *factor, *norms, *coefficients, *w, *groups, *sums, *right, *refined;
  // of the current point
  V *basis, *normal, *slope;
  // of the linearisation
  V *new_basis, *new_normal, *new_slope, *cross, *outside;  // outside: N a
  Rows *phi, *jacobian;

  Index(int64_t rows_, int inputs_, int degree_, const double *z_, const double *target_, const double *weight_, const int32_t *places_)
      : rows(rows_), inputs(inputs_), degree(degree_), z(z_), target(target_), weight(weight_), places(places_) {
    terms = polynomials(GROUPS, degree), moments = polynomials(GROUPS, 2 * degree), others = inputs - GROUPS;
    numbers = inputs * (1 + GROUPS), unknowns = others * (1 + GROUPS);
    factor = vectors(triangle(terms)), norms = vectors(terms), coefficients = vectors(terms), w = vectors(rows), groups = vectors(rows * GROUPS);
    sums = vectors(moments), right = vectors(terms), refined = vectors(terms);
    basis = vectors(inputs * inputs), normal = vectors(triangle(unknowns)), slope = vectors(unknowns);
    new_basis = vectors(inputs * inputs), new_normal = vectors(triangle(unknowns)), new_slope = vectors(unknowns);
    cross = vectors((int64_t)terms * unknowns), outside = vectors(others);
    phi = (Rows *)vectors((int64_t)terms * ROWS), jacobian = (Rows *)vectors((int64_t)unknowns * ROWS);
  }
  void release() {
    V *const all[] = {factor, norms, coefficients, w, groups, sums, right, refined, basis, normal, slope, new_basis, new_normal, new_slope, cross, outside, (V *)phi, (V *)jacobian};
    for (V *memory : all) free(memory);
  }

  // Orthonormal rows of B, and of what is orthogonal to them, by Householder reflections as LAPACK has them: (inputs, inputs).
  void orthonormal(const V *B, V *Q) const {
    const int d = inputs;
    V R[GROUPS * MOST_INPUTS], tau[GROUPS];
    for (int i = 0; i < GROUPS * d; i++) R[i] = B[i];
    for (int j = 0; j < GROUPS; j++) {
      V *const v = R + j * d;
      V rest = {};
      for (int i = j + 1; i < d; i++) rest = fma(v[i], v[i], rest);
      const V alpha = v[j], norm = sqrt_lanes(fma(alpha, alpha, rest)), beta = where(alpha < 0.0, norm, -norm);
      const M none = rest == 0.0;
      tau[j] = where(none, V{}, (beta - alpha) / beta);
      for (int i = j + 1; i < d; i++) v[i] = where(none, V{}, v[i] / (alpha - beta));
      v[j] = c(1.0);
      for (int k = j + 1; k < GROUPS; k++) reflect(v, tau[j], R + k * d, j);
    }
    for (int i = 0; i < d; i++)
      for (int k = 0; k < d; k++) Q[i * d + k] = c(i == k ? 1.0 : 0.0);
    for (int i = 0; i < d; i++)
      for (int j = GROUPS; j-- > 0;) reflect(R + j * d, tau[j], Q + i * d, j);
  }
  void reflect(const V *v, V tau, V *x, int from) const {
    V dot = {};
    for (int i = from; i < inputs; i++) dot = fma(v[i], x[i], dot);
    dot = dot * tau;
    for (int i = from; i < inputs; i++) x[i] = fma(-dot, v[i], x[i]);
  }

  // The trial point with orthonormal rows of B, and a orthogonal to them: what lies in their span belongs to the link.
  void normalise(V *point, V *Q) const {
    V *const B = point + inputs;
    orthonormal(B, Q);
    for (int i = 0; i < GROUPS * inputs; i++) B[i] = Q[i];
    for (int j = 0; j < GROUPS; j++) {
      V dot = {};
      for (int i = 0; i < inputs; i++) dot = fma(B[j * inputs + i], point[i], dot);
      for (int i = 0; i < inputs; i++) point[i] = fma(-dot, B[j * inputs + i], point[i]);
    }
  }

  void project_rows(const V *point) {
    V low[GROUPS], high[GROUPS];
    for (int j = 0; j < GROUPS; j++) low[j] = c(INF), high[j] = c(-INF);
    for (int64_t row = 0; row < rows; row++) {
      const double *const x = z + row * inputs;
      V sum[1 + GROUPS] = {};
      for (int i = 0; i < inputs; i++)
        for (int j = 0; j <= GROUPS; j++) sum[j] = fma(point[j * inputs + i], c(x[i]), sum[j]);
      w[row] = weight[row] * exp_lanes(minimum(maximum(sum[0], c(-30.0)), c(30.0)));
      for (int j = 0; j < GROUPS; j++) {
        const V u = groups[row * GROUPS + j] = sum[1 + j];
        low[j] = minimum(low[j], u), high[j] = maximum(high[j], u);
      }
    }
    for (int j = 0; j < GROUPS; j++) {
      middle[j] = 0.5 * (low[j] + high[j]);
      half[j] = maximum(0.5 * (high[j] - low[j]), c(1e-9));
    }
  }
  INLINE void scaled(int64_t row, int j, Rows &x) const {
    for (int q = 0; q < ROWS; q++) x[q] = (groups[(row + q) * GROUPS + j] - middle[j]) / half[j];
  }
  INLINE void tables(int64_t row, Table *T, int top) const {
    for (int j = 0; j < GROUPS; j++) {
      Rows x;
      scaled(row, j, x);
      chebyshev(x, T[j], top);
    }
  }

  // Moments and right-hand side, then the factor of the Gram matrix, its columns scaled to norm 1.
  void gram() {
    Table T[GROUPS];
    for (int i = 0; i < moments; i++) sums[i] = V{};
    for (int i = 0; i < terms; i++) right[i] = V{};
    for (int64_t row = 0; row < rows; row += ROWS) {
      tables(row, T, 2 * degree);
      Rows square, product;
      for (int q = 0; q < ROWS; q++) square[q] = w[row + q] * w[row + q], product[q] = w[row + q] * target[row + q];
      collect<0>(sums, square, T, 2 * degree);
      collect<0>(right, product, T, degree);
    }
    const int32_t *place = places;
    for (int i = 0; i < triangle(terms); i++) {
      V sum = {};
      for (int k = 0; k < 1 << GROUPS; k++) sum += sums[*place++];
      factor[i] = sum * (1.0 / (1 << GROUPS));
    }
    for (int i = 0; i < terms; i++) norms[i] = 1.0 / sqrt_lanes(maximum(factor[triangle(i) + i], c(1e-300)));
    for (int i = 0; i < terms; i++)
      for (int j = 0; j <= i; j++) factor[triangle(i) + j] *= norms[i] * norms[j];
    cholesky(factor, terms, 1e-13);
  }
  void eliminate(V *b) const {  // the coefficients of a right-hand side
    for (int i = 0; i < terms; i++) b[i] *= norms[i];
    forwards(factor, terms, b);
    backwards(factor, terms, b);
    for (int i = 0; i < terms; i++) b[i] *= norms[i];
  }

  // The sum of squares with the best link; its coefficients are refined once, from their own residuals.
  V evaluate(V *trial) {
    normalise(trial, new_basis);
    for (int i = 0; i < others; i++) {
      outside[i] = V{};
      for (int k = 0; k < inputs; k++) outside[i] = fma(new_basis[(GROUPS + i) * inputs + k], trial[k], outside[i]);
    }
    project_rows(trial);
    gram();
    for (int i = 0; i < terms; i++) coefficients[i] = right[i];
    eliminate(coefficients);
    for (int i = 0; i < terms; i++) right[i] = V{};
    Table T[GROUPS];
    const Table *which[GROUPS];
    for (int j = 0; j < GROUPS; j++) which[j] = &T[j];
    V loss = {};
    for (int64_t row = 0; row < rows; row += ROWS) {
      tables(row, T, degree);
      Rows value;
      combine<0>(coefficients, value, which, degree);
      for (int q = 0; q < ROWS; q++) {
        const V residual = fma(-w[row + q], value[q], c(target[row + q]));
        loss = fma(residual, residual, loss);
        value[q] = w[row + q] * residual;
      }
      collect<0>(right, value, T, degree);
    }
    for (int i = 0; i < terms; i++) refined[i] = right[i];
    eliminate(refined);
    for (int i = 0; i < terms; i++) {
      coefficients[i] += refined[i];
      loss = fma(-refined[i], right[i], loss);
    }
    return maximum(loss, V{});
  }

  // Kaufman's Jacobian in the directions that change the model, N, orthogonal to B: P (w H N z) for a, and for row j of B
  // P (w H_j N z - w H (B z)_j N a), since a stays orthogonal to B; P takes away what the link can do itself.
  void accept(M lanes) {
    const int d = inputs;
    const V *const N = new_basis + GROUPS * d;
    for (int i = 0; i < triangle(unknowns); i++) new_normal[i] = V{};
    for (int i = 0; i < unknowns; i++) new_slope[i] = V{};
    for (int i = 0; i < terms * unknowns; i++) cross[i] = V{};
    Table T[GROUPS], D[GROUPS];
    const Table *which[GROUPS];
    for (int j = 0; j < GROUPS; j++) which[j] = &T[j];
    for (int64_t row = 0; row < rows; row += ROWS) {
      Rows value[1 + GROUPS], residual, front;
      for (int j = 0; j < GROUPS; j++) {
        Rows x;
        scaled(row, j, x);
        chebyshev(x, T[j], degree);
        derivatives(x, T[j], D[j], degree);
      }
      combine<0>(coefficients, value[0], which, degree);
      for (int j = 0; j < GROUPS; j++) {
        which[j] = &D[j];
        combine<0>(coefficients, value[1 + j], which, degree);
        which[j] = &T[j];
        for (int q = 0; q < ROWS; q++) value[1 + j][q] = value[1 + j][q] * w[row + q] / half[j];
      }
      for (int q = 0; q < ROWS; q++) {
        front[q] = w[row + q];
        value[0][q] *= w[row + q];
        residual[q] = target[row + q] - value[0][q];
      }
      columns<0>(phi, front, T, degree);
      for (int i = 0; i < others; i++)
        for (int q = 0; q < ROWS; q++) {
          V direction = {};
          for (int k = 0; k < d; k++) direction = fma(N[i * d + k], c(z[(row + q) * d + k]), direction);
          jacobian[i][q] = value[0][q] * direction;
          for (int j = 0; j < GROUPS; j++) {
            const V turned = value[0][q] * groups[(row + q) * GROUPS + j] * outside[i];
            jacobian[(1 + j) * others + i][q] = fma(value[1 + j][q], direction, -turned);
          }
        }
      gather(residual);
    }
    // what the link can do itself: W^T W, W = L^-1 Phi^T J
    for (int k = 0; k < unknowns; k++) {
      V *const column = cross + (int64_t)k * terms;
      for (int i = 0; i < terms; i++) column[i] *= norms[i];
      forwards(factor, terms, column);
    }
    for (int k = 0; k < unknowns; k++)
      for (int l = 0; l <= k; l++) {
        const V *const x = cross + (int64_t)k * terms, *const y = cross + (int64_t)l * terms;
        V sum = new_normal[triangle(k) + l];
        const V own = sum;
        for (int i = 0; i < terms; i++) sum = fma(-x[i], y[i], sum);
        if (k == l) sum = maximum(sum, own * 1e-14);
        V &kept = normal[triangle(k) + l];
        kept = where(lanes, sum, kept);
      }
    for (int k = 0; k < unknowns; k++) slope[k] = where(lanes, new_slope[k], slope[k]);
    for (int i = 0; i < d * d; i++) basis[i] = where(lanes, new_basis[i], basis[i]);
  }
  // Sums over four rows: Phi^T J, J^T J, J^T r.
  INLINE void gather(const Rows &residual) {
    for (int k = 0; k < unknowns; k++) {
      const V a = jacobian[k][0], b = jacobian[k][1], e = jacobian[k][2], f = jacobian[k][3];
      V *const column = cross + (int64_t)k * terms;
      for (int i = 0; i < terms; i++) {
        const Rows &p = phi[i];
        column[i] = fma(a, p[0], fma(b, p[1], fma(e, p[2], fma(f, p[3], column[i]))));
      }
      for (int l = 0; l <= k; l++) {
        const Rows &p = jacobian[l];
        V &sum = new_normal[triangle(k) + l];
        sum = fma(a, p[0], fma(b, p[1], fma(e, p[2], fma(f, p[3], sum))));
      }
      new_slope[k] = fma(a, residual[0], fma(b, residual[1], fma(e, residual[2], fma(f, residual[3], new_slope[k]))));
    }
  }

  void take(int, int64_t) {}
  V length(const V *, const V *scale) const {  // rows of B have norm 1
    V sum = {};
    for (int k = 0; k < unknowns; k++) sum = fma(scale[k], scale[k], sum);
    return sqrt_lanes(sum);
  }
  void move(const V *point, const V *step, V *trial, M lanes) const {
    const V *const N = basis + GROUPS * inputs;
    for (int j = 0; j <= GROUPS; j++)
      for (int k = 0; k < inputs; k++) {
        V sum = point[j * inputs + k];
        for (int i = 0; i < others; i++) sum = fma(step[j * others + i], N[i * inputs + k], sum);
        trial[j * inputs + k] = where(lanes, sum, trial[j * inputs + k]);
      }
  }
};

extern "C" void fit(int64_t first, int64_t last, int64_t rows, int64_t inputs, int64_t degree, const double *z, const double *target,
                    const double *weight, const int32_t *places, const double *starts, const Settings *settings, double *points,
                    double *losses, int64_t *evaluations, int64_t *converged) {
  Index model(rows, (int)inputs, (int)degree, z, target, weight, places);
  levenberg_marquardt(model, first, last, starts, *settings, points, losses, nullptr, evaluations, converged);
  model.release();
}
