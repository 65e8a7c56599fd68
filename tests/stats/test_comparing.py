"""The exact tests keep their level, and a table's verdicts follow from its q-values."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as distributions

from numerate import published
from numerate.stats import boschloo, false_discovery, fisher, verdict, verdicts

counts = st.integers(1, 25).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def scipy_fisher(table) -> float:
    result: Any = distributions.fisher_exact(table)
    return result.pvalue


@settings(max_examples=50, deadline=None)
@given(counts, counts)
def test_boschloo_is_symmetric_and_never_above_fisher(ours, theirs):
    p = boschloo(ours, theirs)
    assert 0 < p <= 1
    assert p == pytest.approx(boschloo(theirs, ours), abs=1e-9)
    assert p <= fisher(ours, theirs) * (1 + 1e-6)


@settings(max_examples=50, deadline=None)
@given(counts, counts)
def test_fisher_is_scipys(ours, theirs):
    (k, n), (m, total) = ours, theirs
    assert fisher(ours, theirs) == pytest.approx(scipy_fisher([[k, n - k], [m, total - m]]))


@pytest.mark.parametrize(("n", "m"), [(25, 25), (10, 25), (5, 40)])
def test_boschloo_keeps_its_level(n, m):
    p = np.array([[boschloo((k, n), (j, m)) for j in range(m + 1)] for k in range(n + 1)])
    for rate in (0.01, 0.1, 0.3, 0.5, 0.77):
        first = distributions.binom.pmf(np.arange(n + 1), n, rate)
        second = distributions.binom.pmf(np.arange(m + 1), m, rate)
        for level in (0.05, 0.01):
            assert first @ (p <= level) @ second <= level + 1e-9


def test_boschloo_by_brute_force():
    """Every table of 4 and 3 runs whose Fisher p-value is at most that of (4 of 4, 0 of 3), at the worst rate."""
    observed = scipy_fisher([[4, 0], [0, 3]])
    rates = np.linspace(0, 1, 20_001)
    total = np.zeros_like(rates)
    for k in range(5):
        for m in range(4):
            if scipy_fisher([[k, 4 - k], [m, 3 - m]]) <= observed * (1 + 1e-9):
                total += distributions.binom.pmf(k, 4, rates) * distributions.binom.pmf(m, 3, rates)
    assert boschloo((4, 4), (0, 3)) == pytest.approx(total.max(), rel=1e-4)


def test_counts_must_make_sense():
    for test in (boschloo, fisher):
        for counts in ((3, 2), (-1, 3), (0, 0)):
            with pytest.raises(ValueError, match="success counts must lie between 0 and a positive number of runs"):
                test(counts, (1, 25))
            with pytest.raises(ValueError, match="success counts must lie between 0 and a positive number of runs"):
                test((1, 25), counts)


def test_q_values_are_benjamini_hochbergs():
    p = [0.01, 0.04, 0.03, 0.005]
    assert false_discovery(p) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert false_discovery([]) == []


def test_verdict_words():
    assert verdict((25, 25), (25, 25)).word == "agrees"
    assert verdict((25, 25), (0, 25)).word == "differs"
    assert verdict((3, 3), None).word == "not published"
    assert verdict((1, 1), (13, 25)).word == "too few runs"
    assert verdict((0, 0), (13, 25)).word == "too few runs"
    assert verdict((13, 25), (0, 0)).word == "too few runs"


def test_a_table_of_equal_rates_has_few_differences():
    """207 cells drawn from the Primer's own rates: false-discovery control leaves next to none."""
    rates = [cell.value for cell in published.cells(paper="primer2022", metric="success_rate")]
    assert len(rates) == 207
    draw = np.random.default_rng(0)
    pairs = [((int(draw.binomial(25, rate)), 25), (round(rate * 25), 25)) for rate in rates]  # type: ignore[operator, arg-type]
    found = verdicts(pairs)
    assert sum(each.word == "differs" for each in found) <= 2
    worse = [((0, 25), theirs) if i < 10 else (ours, theirs) for i, (ours, theirs) in enumerate(pairs)]
    shifted = verdicts(worse)
    assert all(v.word == "differs" for v, (_, theirs) in zip(shifted[:10], pairs) if theirs[0] > 12)


def test_control_makes_a_verdict_milder():
    alone = verdict((25, 25), (19, 25))
    among = verdicts([((25, 25), (19, 25)), *[((12, 25), (12, 25))] * 50])[0]
    assert alone.p == among.p
    assert (alone.word, among.word) == ("differs", "agrees")
    assert among.q is not None
    assert among.q > 0.05
