// The new numbers of one run after an update of Adam; see cpu_adam.py.

// A number for all places, or one for each.
struct Setting {
  float all;
  const float *each;

  template <class Lanes>
  INLINE V at(int64_t j, Lanes lanes) const { return each ? load(each + j, lanes) : c(all); }
};

struct Settings {
  Setting rate, rest1, beta2, rest2, correction1, correction2;  // rest: 1 - beta
  float eps;
  const float *low, *high;  // null where there are no limits
};

// old, fresh: parameters, first and second moments. Returns whether all fresh parameters and second moments are finite.
extern "C" int update(int64_t count, const Settings *settings, const float *gradient, const float *const *old,
                      float *const *fresh) {
  const Settings s = *settings;
  V probe = {};  // NaN where a number is not finite
  over_units(count, [&](const int64_t j, const auto lanes) __attribute__((always_inline)) {
    const V g = load(gradient + j, lanes), m = load(old[1] + j, lanes), v = load(old[2] + j, lanes);
    const V first = m + (g - m) * s.rest1.at(j, lanes);
    const V second = v * s.beta2.at(j, lanes) + s.rest2.at(j, lanes) * g * g;
    const V spread = among(sqrt(second / s.correction2.at(j, lanes)) + s.eps, 1, lanes);  // beyond the row, by 1
    const V factor = s.rate.at(j, lanes) / among(s.correction1.at(j, lanes), 1, lanes);
    V p = load(old[0] + j, lanes) - first / spread * factor;
    if (s.low) p = where(p < load(s.low + j, lanes), load(s.low + j, lanes), p);
    if (s.high) p = where(p > load(s.high + j, lanes), load(s.high + j, lanes), p);
    store(fresh[0] + j, p, lanes), store(fresh[1] + j, first, lanes), store(fresh[2] + j, second, lanes);
    probe += (p - p) + (second - second);
  });
  return !any(probe != probe);
}
