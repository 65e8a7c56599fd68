"""Each unit's cells pooled, and the two other measures: ``python -m benchmarks.pooled``, the Primer's or a table's."""

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


def overlapping(lines: Sequence[Line], measure: str) -> tuple[int, int]:
    """Cells whose two intervals overlap, of those that have both, by the published estimator."""
    names = [f"{measure}_as_published_low", f"{measure}_as_published_high"]
    names += [f"published_{measure}_low", f"published_{measure}_high"]
    ends = [[float(line[name]) for name in names] for line in lines if all(line[name] for name in names)]
    return sum(low <= high2 and low2 <= high for low, high, low2, high2 in ends), len(ends)


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else "docs/_static/primer2022/table.csv"
    with open(path, encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["published_runs"]]
    print("| unit | cells | ours | published | cells lower, higher | p |\n|---|---|---|---|---|---|")
    for unit in dict.fromkeys(line["series"] for line in lines):
        own = [line for line in lines if line["series"] == unit]
        ours, theirs = (sum(counts(line)[i] for line in own) / sum(counts(line)[i + 1] for line in own) for i in (0, 2))
        gaps = [a / n - b / m for a, n, b, m in map(counts, own)]
        lower, higher = sum(gap < 0 for gap in gaps), sum(gap > 0 for gap in gaps)
        p = cochran_mantel_haenszel(own)
        print(f"| {unit} | {len(own)} | {ours:.1%} | {theirs:.1%} | {lower}, {higher} | {p:.3f} |")
    for measure in ("solved_at_mean", "sparsity_error_mean"):
        print("{}: intervals overlap in {} of {} cells".format(measure, *overlapping(lines, measure)))


if __name__ == "__main__":
    main()
