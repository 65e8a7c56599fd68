"""What the paper says of the product and the sum of handwritten digits, and whether it holds."""

from collections.abc import Sequence
from itertools import pairwise

from numerate.report import Claim, Comparison
from numerate.report.metrics import Measured
from numerate.report.text import percent

GROUPS = {
    "product": (("NMU", "NAC•,NMU"), ("NAC•,σ", "NAC•"), ("NALU", "LSTM")),
    "sum": (("NAU",), ("NAC+,Rz",), ("NAC+",), ("NALU", "LSTM")),
}
"""Models of the figures with R_z, from best to worst by the share of runs and lengths that succeed in print."""
TIE = 0.05
"""The last two groups may both be near zero; if their shares differ by no more, their order cannot be told."""
FIRST = {"product": "NMU", "sum": "NAU"}


def claims(operation: str, regularised: bool, compared: Comparison) -> list[Claim]:
    """Sentences of section 4.2 and appendix D; the order of the models as drawn in the figure."""
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
        *([_order(operation, cells)] if regularised else []),
    ]


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
