// A traced residual function: one start per lane, rows streamed from a table. Needs marquardt.hpp, and of the emitted code
//   PARAMETERS, OUTPUTS, HOISTED; void hoisted(const V *p, V *h), what depends on the parameters alone;
//   void row(const double *table, int64_t stride, const V *p, const V *h, V *out): residuals, then the Jacobian (OUTPUTS, PARAMETERS)
// for the table's column k at table[k * stride].
struct Residual {
  static constexpr bool fixed_frame = true;
  static constexpr int numbers = PARAMETERS, unknowns = PARAMETERS, ROWS = 4, TRIANGLE = PARAMETERS * (PARAMETERS + 1) / 2;
  int64_t rows, stride;
  const double *table;
  V normal[TRIANGLE], slope[PARAMETERS], new_normal[TRIANGLE], new_slope[PARAMETERS];
  V found[ROWS][OUTPUTS * (1 + PARAMETERS)];

  V evaluate(V *trial) {
    V h[HOISTED + 1], loss = {};
    hoisted(trial, h);
    for (int i = 0; i < TRIANGLE; i++) new_normal[i] = V{};
    for (int i = 0; i < PARAMETERS; i++) new_slope[i] = V{};
    for (int64_t first = 0; first < rows; first += ROWS) {
      const int64_t there = rows - first < ROWS ? rows - first : ROWS;
      for (int64_t q = 0; q < there; q++) row(table + first + q, stride, trial, h, found[q]);
      for (int64_t q = there; q < ROWS; q++)
        for (int i = 0; i < OUTPUTS * (1 + PARAMETERS); i++) found[q][i] = V{};
      for (int o = 0; o < OUTPUTS; o++) loss += gather(o);
    }
    return loss;
  }

  // Sums over four rows: J^T J, -J^T r; returns r^T r.
  INLINE V gather(int output) {
    const V *const a = found[0] + OUTPUTS + output * PARAMETERS, *const b = found[1] + OUTPUTS + output * PARAMETERS;
    const V *const e = found[2] + OUTPUTS + output * PARAMETERS, *const f = found[3] + OUTPUTS + output * PARAMETERS;
    const V r = found[0][output], s = found[1][output], t = found[2][output], u = found[3][output];
    V *sum = new_normal;
    for (int k = 0; k < PARAMETERS; k++) {
      for (int l = 0; l <= k; l++, sum++) *sum = fma(a[k], a[l], fma(b[k], b[l], fma(e[k], e[l], fma(f[k], f[l], *sum))));
      new_slope[k] -= fma(a[k], r, b[k] * s) + fma(e[k], t, f[k] * u);
    }
    return fma(r, r, s * s) + fma(t, t, u * u);
  }

  void accept(M lanes) {
    for (int i = 0; i < TRIANGLE; i++) normal[i] = where(lanes, new_normal[i], normal[i]);
    for (int i = 0; i < PARAMETERS; i++) slope[i] = where(lanes, new_slope[i], slope[i]);
  }
  void take(int, int64_t) {}
  V length(const V *point, const V *scale) const {
    V sum = {};
    for (int k = 0; k < PARAMETERS; k++) sum = fma(scale[k] * point[k], scale[k] * point[k], sum);
    return sqrt_lanes(sum);
  }
  void move(const V *point, const V *step, V *trial, M lanes) const {
    for (int k = 0; k < PARAMETERS; k++) trial[k] = where(lanes, point[k] + step[k], trial[k]);
  }
};

extern "C" void fit(int64_t first, int64_t last, int64_t rows, int64_t stride, const double *table, const double *starts,
                    const Settings *settings, double *points, double *losses, double *normals, int64_t *evaluations, int64_t *converged) {
  Residual *const model = (Residual *)aligned_alloc(sizeof(V), sizeof(Residual));
  __builtin_memset((void *)model, 0, sizeof(Residual));
  model->rows = rows, model->stride = stride, model->table = table;
  levenberg_marquardt(*model, first, last, starts, *settings, points, losses, normals, evaluations, converged);
  free(model);
}
