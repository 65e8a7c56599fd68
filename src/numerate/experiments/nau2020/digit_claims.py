"""What the paper says of the product and the sum of handwritten digits, and whether it holds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median

from numerate.report import Claim, Comparison
from numerate.report.metrics import Measured
from numerate.report.text import percent, scientific
from numerate.results import Row
from numerate.results.outcome import judge
from numerate.stats import boschloo, rank_agreement

GROUPS = {
    "product": (("NMU", "NAC•,NMU"), ("NAC•,σ", "NAC•"), ("NALU", "LSTM")),
    "sum": (("NAU",), ("NAC+,Rz",), ("NAC+",), ("NALU", "LSTM")),
}
"""Models of the figures with R_z, from best to worst by the share of runs and lengths that succeed in print."""
TIE = 0.05
"""The last two groups may both be near zero; if their shares differ by no more, their order cannot be told."""
LEVEL = 0.05
SIMILAR = 0.15
"""Success rates that differ by no more are somewhat similar."""
FIRST = {"product": "NMU", "sum": "NAU"}


def claims(operation: str, regularised: bool, compared: Comparison) -> list[Claim]:
    """Sentences of section 4.2 and appendix D; without a bound on success no verdict, but why there is none."""
    found = (with_r_z if regularised else without_r_z)(operation, compared)
    if all(cell.measured.solved is not None for cell in compared.cells):
        return found
    return [replace(claim, ours=compared.lead.meaning, holds=None) for claim in found]


def with_r_z(operation: str, compared: Comparison) -> list[Claim]:
    """Sentences of section 4.2; the order of the models as drawn in the figure."""
    unit, cells = FIRST[operation], {(c.series, float(c.x)): c.measured for c in compared.cells}
    lengths = sorted({length for _, length in cells})
    if any((name, lengths[0]) not in cells for group in GROUPS[operation] for name in group):
        return []
    trained, longest = 2.0 if operation == "product" else 10.0, lengths[-1]
    near, far = cells[unit, trained], cells[unit, longest]
    return [
        Claim(
            f"The {unit} does not hinder learning a more complex neural network.",
            f"{_counted(near)} of the runs succeed at the length of training, {trained:g}.",
            _share(near) >= 0.5,
        ),
        Claim(
            f"The {unit} can extrapolate to much longer sequences than what it is trained on.",
            f"{_counted(far)} succeed at length {longest:g}.",
            None if _share(near) < 0.5 else _share(far) >= 0.5,
        ),
        _order(operation, cells),
    ]


def without_r_z(operation: str, compared: Comparison) -> list[Claim]:
    """Sentences of D.3 and D.4 on what R_z changes."""
    names = ("NAU",) if operation == "sum" else ("NMU", "NAC•,NMU")
    if any(f"{name}{ending}" not in compared.series for name in names for ending in ("", ",Rz")):
        return []
    shares = {n: [list(_by_seed(compared.rows, f"{n}{e}", _solved).values()) for e in ("", ",Rz")] for n in names}
    said = "; ".join(
        f"{n}: {percent(fmean(a))} without R_z, {percent(fmean(b))} with it" for n, (a, b) in shares.items()
    )
    said = f"lengths at which a run succeeds, {said}"
    told = [rank_agreement([0] * len(a) + [1] * len(b), [*a, *b]).word for a, b in shares.values()]
    if operation == "sum":
        near, far = (_count(compared, "NAU", place) for place in (10.0, max(float(c.x) for c in compared.cells)))
        grows = boschloo(near, far) < LEVEL
        return [
            Claim(
                "Removing the regularizer causes a reduction in the success-rate (our test: by the rank sums of the "
                f"runs' shares, p < {LEVEL}).",
                f"{said}.",
                {"same order": True, "other order": False}.get(told[0]),
            ),
            Claim(
                "Some of the model instances just learn the mean, which is why the success-rate increases for longer "
                f"sequences (our test: more runs without R_z succeed at the longest than at length 10, p < {LEVEL}).",
                f"{near[0]} of {near[1]} at length 10, {far[0]} of {far[1]} at the longest.",
                far[0] > near[0] if grows else None,
            ),
        ]
    same = all(abs(fmean(a) - fmean(b)) <= SIMILAR for a, b in shares.values())
    sparsity = [list(_by_seed(compared.rows, name, _sparsity).values()) for name in ("NMU", "NMU,Rz")]
    return [
        Claim(
            f"The success-rate is somewhat similar to figure 4 (our test: within {SIMILAR * 100:g} points; not, if "
            f"the rank sums of the runs' shares differ, p < {LEVEL}).",
            f"{said}.",
            False if {"same order", "other order"} & set(told) else True if same else None,
        ),
        Claim(
            "As seen in the sparsity error, the solution is quite different (our test: by the rank sums of the NMU's "
            f"sparsity errors, p < {LEVEL}).",
            f"median sparsity error of the NMU: {scientific(median(sparsity[0]))} without R_z, "
            f"{scientific(median(sparsity[1]))} with it."
            if all(sparsity) else "no sparsity error is known.",
            True if all(sparsity) and rank_agreement(
                [0] * len(sparsity[0]) + [1] * len(sparsity[1]), [*sparsity[0], *sparsity[1]]
            ).word in ("same order", "other order") else None,
        ),
    ]  # fmt: skip


def _by_seed(rows: Sequence[Row], name: str, value: Callable[[Row], float]) -> dict[int, float]:
    """Seed -> the mean of a value over the lengths, of the runs of one model that have it."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row.labels["unit"] == name and math.isfinite(value(row)):
            found.setdefault(row.seed, []).append(value(row))
    return {seed: fmean(values) for seed, values in found.items()}


def _solved(row: Row) -> float:
    return float(judge(row).solved)


def _sparsity(row: Row) -> float:
    return float(row.scores.get("best_sparsity", math.nan))


def _count(compared: Comparison, name: str, length: float) -> tuple[int, int]:
    (found,) = (c.measured for c in compared.cells if c.series == name and float(c.x) == length)
    return found.solved or 0, found.n


def _order(operation: str, cells: dict[tuple[str, float], Measured]) -> Claim:
    shares = {
        name: sum(_share(m) for (other, _), m in cells.items() if other == name)
        / sum(other == name for other, _ in cells)
        for group in GROUPS[operation]
        for name in group
    }
    groups = [[shares[name] for name in group] for group in GROUPS[operation]]
    in_order = all(min(better) > max(worse) for better, worse in pairwise(groups[:-1]))
    ahead = min(groups[-2]) - max(groups[-1])
    return Claim(
        f"In print, the models succeed in this order: {_listed_groups(GROUPS[operation])}.",
        "success over all lengths: " + ", ".join(f"{name} {percent(share)}" for name, share in shares.items()) + ".",
        False if not in_order else None if abs(ahead) <= TIE else ahead > 0,
    )


def _listed_groups(groups: Sequence[Sequence[str]]) -> str:
    return "; ".join(" and ".join(group) for group in groups)


def _share(measured: Measured) -> float:
    return (measured.solved or 0) / measured.n


def _counted(measured: Measured) -> str:
    return f"{measured.solved or 0} of {measured.n}"
