"""Intervals against the printed ones, against MINOS, and against the authors' per-seed results recomputed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from iminuit import Minuit
from scipy import optimize
from scipy import stats as distributions

from numerate import published
from numerate.stats import Estimate, clustered_rate, gamma_mean, intervals, median, normal_mean, sparsity_mean, wilson

RATES = [
    line
    for file in ("nau2020_results", "primer2022_results")
    for line in published.raw(file)
    if line["metric"] == "success_rate"
]
RECOMPUTED = [line for line in published.raw("nau2020_recomputed") if line["gamma_profile_low"]]


def test_all_293_printed_success_rates_are_wilson_intervals():
    assert len(RATES) == 293
    for line in RATES:
        n, value = int(line["n_seeds"]), float(line["value"])
        rate = wilson(round(value * n), n)
        assert rate.value == pytest.approx(value)
        assert rate.low is not None
        assert rate.high is not None
        assert f"{value - rate.low:.2f}" == f"{float(line['ci_minus']):.2f}", line
        assert f"{rate.high - value:.2f}" == f"{float(line['ci_plus']):.2f}", line


def test_all_plotted_success_rates_are_wilson_intervals():
    lines = [line for line in published.raw("nau2020_figures") if line["metric"] == "success_rate"]
    assert len(lines) == 320
    for line in lines:
        n = int(line["n_seeds"])
        rate = wilson(round(float(line["value"]) * n), n)
        assert rate.low == pytest.approx(float(line["ci_low"]), abs=2e-3), line
        assert rate.high == pytest.approx(float(line["ci_high"]), abs=2e-3), line


@settings(deadline=None)
@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_wilson_interval_is_where_the_score_test_does_not_reject(case):
    k, n = case
    rate = wilson(k, n)
    z = distributions.norm.ppf(0.975)
    for end in (rate.low, rate.high):
        assert end is not None
        assert 0 <= end <= 1
        if 0 < end < 1:
            assert abs(k / n - end) == pytest.approx(z * np.sqrt(end * (1 - end) / n), rel=1e-6)


@pytest.mark.parametrize(("k", "n"), [(0, 7), (3, 7), (7, 7), (1, 40)])
def test_clusters_of_one_trial_and_clusters_that_go_one_way_are_as_many_trials(k, n):
    expected = wilson(k, n)
    for size in (1, 8):
        found = clustered_rate([size] * k + [0] * (n - k), [size] * n)
        assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))
        assert found.n == size * n


def test_an_interval_of_clusters_covers_the_rate():
    """The true rate is 0.3, the correlation in a cluster 0.4; taken as independent, half are covered."""
    draws = np.random.default_rng(0)
    solved = draws.binomial(20, draws.beta(0.3 * 1.5, 0.7 * 1.5, (1000, 10)))
    found = [clustered_rate(k, [20] * 10) for k in solved]
    covered = np.mean([rate.low <= 0.3 <= rate.high for rate in found])  # type: ignore[operator]
    assert 0.93 <= covered <= 0.98


def test_an_interval_of_clusters_needs_as_many_trials_as_successes():
    assert clustered_rate([], []).value is None
    with pytest.raises(ValueError, match="0 <= successes <= trials in each cluster"):
        clustered_rate([3, 1], [2, 2])


def test_a_rate_of_nothing():
    assert wilson(0, 0).value is None
    with pytest.raises(ValueError, match="0 <= k <= n"):
        wilson(3, 2)


def gamma_nll(x):
    return lambda mean, log_shape: (
        -distributions.gamma.logpdf(x, np.exp(log_shape), scale=mean / np.exp(log_shape)).sum()
    )


def minos(nll, mean, other, limits):
    fit = Minuit(nll, mean, other)
    fit.errordef = Minuit.LIKELIHOOD
    fit.errors = (abs(mean) / 10, 0.1)
    fit.limits = limits
    fit.strategy = 2
    fit.tol = 1e-4
    fit.migrad()
    fit.minos(0, cl=0.95)
    return fit.values[0], fit.values[0] + fit.merrors[0].lower, fit.values[0] + fit.merrors[0].upper


@pytest.mark.parametrize(("n", "shape"), [(5, 3.0), (8, 2.0), (25, 0.5), (100, 2.0), (100, 40.0)])
def test_gamma_profile_equals_minos(n, shape):
    x = np.asarray(distributions.gamma.rvs(shape, scale=500, size=n, random_state=n))
    found = gamma_mean(x)
    expected = minos(gamma_nll(x), x.mean(), np.log(shape), [(1e-3, None), (-10, 20)])
    assert (found.value, found.low, found.high) == pytest.approx(expected, rel=2e-4)


@pytest.mark.parametrize(
    ("n", "a", "b"), [(6, 2.0, 30.0), (25, 0.5, 4.0), (100, 2.0, 30.0), (100, 0.3, 0.2), (25, 3, 3e4)]
)
def test_sparsity_profile_equals_minos(n, a, b):
    y = np.asarray(distributions.beta.rvs(a, b, size=n, random_state=n))

    def nll(mean, log_v):
        v = np.exp(log_v)
        return -distributions.beta.logpdf(y, mean * v, (1 - mean) * v).sum()

    found = sparsity_mean(y / 2)
    _, low, high = minos(nll, y.mean(), np.log(a + b), [(1e-9, 1 - 1e-9), (-10, 25)])
    assert found.value == pytest.approx(y.mean() / 2)
    assert (found.low, found.high) == pytest.approx((low / 2, high / 2), rel=1e-3)
    assert found.how == "beta profile"


def sufficient(line):
    """The mean logarithm is not in the file: find it from the lower end of the true interval, then test the rest."""
    n, mean = int(line["n_solved"]), float(line["solved_at_sample_mean"])
    variance, low = float(line["solved_at_sd"]) ** 2, float(line["gamma_profile_low"])

    def gap(log_dispersion):
        data = intervals._Gamma(n, mean, np.log(mean) - np.exp(log_dispersion), variance)
        return intervals._profile_gamma(data).low / low - 1

    found = optimize.brentq(gap, np.log(1e-8), np.log(4.0), xtol=1e-12)
    return intervals._Gamma(n, mean, np.log(mean) - np.exp(found), variance)  # type: ignore[operator]


@pytest.mark.parametrize("line", RECOMPUTED, ids=lambda line: f"{line['model']} {line['op']}")
def test_both_gamma_estimators_against_the_authors_runs(line):
    """True profile: upper end. Held variance: mean and both ends, and the published ones within 1 % (mean 3 %)."""
    data = sufficient(line)
    n, digits = data.n, 2e-3  # the file has six digits; how far they carry through the inversion
    assert intervals._profile_gamma(data).high == pytest.approx(float(line["gamma_profile_high"]), rel=digits)
    found = intervals._conditional_gamma(data)
    expected = [float(line[f"conditional_{end}"]) for end in ("mu", "low", "high")]
    assert list(found) == pytest.approx(expected, rel=digits)
    printed = [float(line[f"published_solved_at_{end}"]) for end in ("mean", "low", "high")]
    assert found.value == pytest.approx(printed[0], rel=0.03 if n > 2 else 0.09)
    assert found.low == pytest.approx(printed[1], rel=0.01 if n > 2 else 0.016)
    assert found.high == pytest.approx(printed[2], rel=0.01)


def test_the_recomputed_cells_are_all_there():
    assert len(RECOMPUTED) == 20


def test_published_sparsity_is_about_half_unless_tiny():
    """Sample mean against published mean, all cells of the authors' runs whose values lie in [0, 1/2]."""
    draw = np.random.default_rng(1)
    for mean in (1e-7, 1e-5, 3e-5, 6e-5, 1e-3, 0.02, 0.2):
        x = mean * draw.gamma(4.0, 0.25, size=100)
        ratio = sparsity_mean(x, "published").value / x.mean()  # type: ignore[operator]
        assert ratio == pytest.approx(1.0 if mean < 3.5e-5 else 0.5, abs=0.03), mean


def test_published_sparsity_halves_the_beta_mean_of_x():
    x = np.asarray(distributions.beta.rvs(2, 30, size=100, random_state=3)) / 2

    def nll(mean, log_v):
        v = np.exp(log_v)
        return -distributions.beta.logpdf(x, mean * v, (1 - mean) * v).sum()

    expected = minos(nll, x.mean(), np.log(60), [(1e-9, 1), (-5, 20)])
    found = sparsity_mean(x, "published")
    assert (found.value, found.low, found.high) == pytest.approx([end / 2 for end in expected], rel=1e-3)
    assert found.value == pytest.approx(x.mean() / 2, rel=0.02)


@pytest.mark.parametrize("estimator", [gamma_mean, sparsity_mean])
@pytest.mark.parametrize("method", ["true", "published"])
def test_nothing_one_value_and_equal_values(estimator, method):
    assert estimator([], method) == Estimate(None, None, None, 0, "no values")
    assert estimator([0.25], method) == Estimate(0.25, None, None, 1, "one value")
    assert estimator([0.25, float("nan")], method).n == 1
    equal = estimator([0.25] * 3, method)
    assert (equal.value, equal.low, equal.high) == pytest.approx((0.25, 0.25, 0.25))


def test_exactly_sparse_weights_have_an_interval_of_zero_width():
    for method in ("true", "published"):
        zero = sparsity_mean(np.zeros(25), method)
        assert (zero.value, zero.low, zero.high) == (0, 0, 0)


def test_published_sparsity_at_its_upper_bound_is_the_plain_mean():
    """NALU, √, of the two-layer task: two values at almost 1/2, printed 0.499997 [0.49999, 0.5]."""
    found = sparsity_mean([0.4999965, 0.4999975], "published")
    assert found.value == pytest.approx(0.499997)
    assert found.low == pytest.approx(0.49999, abs=2e-6)
    assert found.high == 0.5


def test_published_sparsity_counts_values_above_its_bound_as_the_bound():
    """The authors clip before all else: x = pmin(0.5 - 1e-16, ...)."""
    for x in ([0.7, 0.8, 0.9], [0.1, 0.2, 0.8], [0.5, 0.49999, 3.0]):
        assert sparsity_mean(x, "published") == sparsity_mean(np.minimum(x, 0.5), "published")
    bound = sparsity_mean([0.7, 0.8, 0.9], "published")
    assert (bound.value, bound.low, bound.high) == (0.5, 0.5, 0.5)


def test_published_gamma_falls_back_to_t_for_equal_steps():
    assert gamma_mean([1000.0, 1000.0], "published").how == "normal"
    assert gamma_mean([1000.0, 1001.0], "published").how == "gamma, variance held"


def test_values_no_gamma_or_beta_can_have():
    for method in ("true", "published"):
        assert gamma_mean([0.0, 1000.0, 2000.0], method) == normal_mean([0.0, 1000.0, 2000.0], lowest=0)
        infinite = gamma_mean([1000.0, np.inf], method)
        assert (infinite.value, infinite.low, infinite.high, infinite.n) == (np.inf, None, None, 2)
    above = sparsity_mean([0.1, 0.2, 0.8])
    assert above.how == "normal"
    assert above.value == pytest.approx(1.1 / 3)


def test_normal_mean_is_the_t_interval():
    x = np.array([1.0, 2.0, 4.0])
    expected = distributions.ttest_1samp(x, 0).confidence_interval(0.95)
    found = normal_mean(x)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert normal_mean(x, 0.0, 3.0).high == 3.0


positive = st.lists(st.floats(1e-3, 1e7), min_size=2, max_size=30)


@settings(max_examples=60, deadline=None)
@given(positive)
def test_a_gamma_interval_encloses_the_sample_mean_and_scales_with_it(x):
    found = gamma_mean(x)
    assert found.low <= np.mean(x) * (1 + 1e-9)  # type: ignore[operator]
    assert np.mean(x) <= found.high * (1 + 1e-9)  # type: ignore[operator]
    assert found.value == pytest.approx(np.mean(x))
    scaled = gamma_mean(np.array(x) * 1000)
    assert scaled.low == pytest.approx(1000 * found.low, rel=1e-4)  # type: ignore[operator]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 0.5), min_size=2, max_size=30), st.sampled_from(["true", "published"]))
def test_sparsity_intervals_stay_in_their_domain(x, method):
    found = sparsity_mean(x, method)
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.high <= 0.5
    assert found.low <= found.value + 1e-12  # type: ignore[operator]
    if method == "true":
        assert found.value == pytest.approx(np.mean(x))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-14, 4e-6), min_size=3, max_size=25))
def test_tiny_sparsities_have_the_gamma_interval(x):
    """A Beta on small values is a gamma."""
    tiny, gamma = sparsity_mean(x), gamma_mean(x)
    assert (tiny.low, tiny.high) == pytest.approx((gamma.low, min(0.5, gamma.high)), rel=1e-6)  # type: ignore[type-var]


def test_the_two_ways_of_a_small_beta_meet():
    y = 8e-6 * np.random.default_rng(0).random(40)
    beta, gamma = intervals._profile_beta(intervals._Beta.of(y)), intervals._profile_gamma(intervals._Gamma.of(y))
    assert list(beta) == pytest.approx(list(gamma), rel=1e-3)


@pytest.mark.parametrize("estimator", ["gamma", "beta"])
def test_intervals_cover_the_truth(estimator):
    """95 % nominal, 300 samples of 25: at least 90 %."""
    hits = 0
    for seed in range(300):
        if estimator == "gamma":
            truth, found = 3.0, gamma_mean(distributions.gamma.rvs(1.5, scale=2, size=25, random_state=seed))
        else:
            draw = distributions.beta.rvs(1.5, 13.5, size=25, random_state=seed)
            truth, found = 0.05, sparsity_mean(draw / 2)
        hits += found.low <= truth <= found.high  # type: ignore[operator]
    assert hits >= 270


@pytest.mark.parametrize(("n", "ends"), [(6, (1, 6)), (9, (2, 8)), (10, (2, 9)), (25, (8, 18)), (100, (40, 61))])
def test_the_interval_of_a_median_is_the_one_in_statistical_tables(n, ends):
    found = median(np.random.default_rng(0).permutation(n) + 1.0)
    assert (found.low, found.high) == ends
    assert found.value == (n + 1) / 2


def test_a_median_may_be_infinite_and_few_values_have_no_interval():
    assert median([1.0, np.inf, np.inf]).value == np.inf
    assert median([1.0, 2.0, 3.0, 4.0, 5.0]).low is None
    assert median([]).value is None
