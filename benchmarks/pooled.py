"""Each unit's cells pooled, and the two other measures: ``python -m benchmarks.pooled``, the Primer's or a table's.

Rates are means over cells, for the published ones have more runs in some cells than in others.
"""

import csv
import sys
from collections.abc import Sequence

from scipy.stats import chi2

Line = dict[str, str]


def counts(line: Line) -> tuple[int, int, int, int]:
    """Our successes and runs, and the published ones."""
    theirs = int(line["published_runs"])
    return int(line["solved"]), int(line["runs"]), round(theirs * float(line["published_success_rate"])), theirs


def cochran_mantel_haenszel(lines: Sequence[Line]) -> float:
    """p of one common difference in success over all cells, with continuity correction."""
    difference = variance = 0.0
    for a, n, b, m in map(counts, lines):
        total, both = n + m, a + b
        difference += a - n * both / total
        variance += n * m * both * (total - both) / (total**2 * (total - 1))
    return float(chi2.sf((abs(difference) - 0.5) ** 2 / variance, 1)) if variance else 1.0


def apart(lines: Sequence[Line], measure: str) -> tuple[int, list[str]]:
    """How many cells have two intervals, by the published estimator, and those where they do not overlap."""
    names = [
        f"{start}{end}"
        for start in (f"{measure}_as_published", f"published_{measure}")
        for end in ("", "_low", "_high")
    ]
    both = [line for line in lines if all(line[name] for name in names)]
    found = []
    for line in both:
        ours, low, high, theirs, low2, high2 = (float(line[name]) for name in names)
        if low > high2 or low2 > high:
            found.append(f"{line['panel']} {line['series']} {line['x']}: {ours:.3g}, published {theirs:.3g}")
    return len(both), found


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else "docs/_static/primer2022/table.csv"
    with open(path, encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["published_runs"]]
    print("| unit | cells | ours | published | cells lower, higher | p |\n|---|---|---|---|---|---|")
    for unit in dict.fromkeys(line["series"] for line in lines):
        own = [line for line in lines if line["series"] == unit]
        ours, theirs = (sum(c[i] / c[i + 1] for c in map(counts, own)) / len(own) for i in (0, 2))
        gaps = [a / n - b / m for a, n, b, m in map(counts, own)]
        lower, higher = sum(gap < 0 for gap in gaps), sum(gap > 0 for gap in gaps)
        p = cochran_mantel_haenszel(own)
        print(f"| {unit} | {len(own)} | {ours:.1%} | {theirs:.1%} | {lower}, {higher} | {p:.3f} |")
    for measure in ("solved_at_mean", "sparsity_error_mean"):
        cells, found = apart(lines, measure)
        print(f"{measure}: intervals overlap in {cells - len(found)} of {cells} cells")
        print(*(f"  {line}\n" for line in found), sep="", end="")


if __name__ == "__main__":
    main()
