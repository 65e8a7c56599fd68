"""Our numbers beside the printed ones: what Tables 2 and 3 share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from numerate import published
from numerate.experiments.experiment import Options
from numerate.experiments.nru2019.runs import order
from numerate.report import Claim, Picture, TextTable
from numerate.report.figures import lay_out, style
from numerate.report.learning import grouped, panels, plot_beside
from numerate.results import Row
from numerate.stats import rank_agreement


@dataclass(frozen=True)
class Column:
    """One number of each run, and the printed one.

    Args:
        title: for people.
        score: among the scores of a run.
        table, metric, split: of the printed number.
        scale: from our score to what is printed.
        digits: after the point.
        near: a difference of at most this agrees.
    """

    title: str
    score: str
    table: str
    metric: str
    split: str
    scale: float = 100.0
    digits: int = 2
    near: float = 1.0

    def ours(self, rows: Sequence[Row]) -> dict[str, list[float]]:
        """Unit -> the number of each of its runs, in the order of the paper."""
        groups = grouped(rows, "unit")
        return {
            name: [self.scale * row.scores[self.score] for row in groups[name]]
            for name in order(rows)
            if name in groups
        }

    def theirs(self) -> dict[str, float]:
        cells = published.cells(paper="nru2019", table=self.table, metric=self.metric, split=self.split)
        return {cell.model: cell.value for cell in cells if cell.value is not None}

    def show(self, value: float) -> str:
        return f"{value:.{self.digits}f}"


def picture(column: Column, rows: Sequence[Row], comparable: bool) -> Picture:
    ours = column.ours(rows)
    with style():
        fig, (ax,) = panels(1, 6.0, 1.2 + 0.28 * len(ours))
        plot_beside(ax, ours, column.theirs() if comparable else {}, order=order(rows))
        ax.set_xlabel(column.title)
        lay_out(fig)
    beside = "a hollow mark is the printed number" if comparable else "the printed numbers are of another size"
    return Picture("beside", fig, f"{column.title.capitalize()}: a dot for each run; {beside}.")


def table(title: str, columns: Sequence[Column], rows: Sequence[Row], comparable: bool) -> TextTable:
    """A line for each unit: parameters, and for each column ours (mean of the runs), printed, and their difference."""
    groups = grouped(rows, "unit")
    header = ["unit", "parameters", "runs", "diverged"]
    for column in columns:
        header += [column.title, "published", "difference"] if comparable else [column.title]
    lines = []
    for name in columns[0].ours(rows):
        members = groups[name]
        diverged = sum(row.status == "diverged" for row in members)
        line = [name, f"{members[0].scores['parameters']:,.0f}", str(len(members)), str(diverged)]
        for column in columns:
            line += _cells(column, column.ours(members)[name], column.theirs().get(name), comparable)
        lines.append(line)
    return TextTable(title, header, lines)


def _cells(column: Column, ours: Sequence[float], theirs: float | None, comparable: bool) -> list[str]:
    mean = float(np.mean(ours))
    if not comparable:
        return [column.show(mean)]
    if theirs is None:
        return [column.show(mean), "–", "–"]
    return [column.show(mean), column.show(theirs), f"{mean - theirs:+.{column.digits}f}"]


def value_claims(column: Column, rows: Sequence[Row], unit_of: str) -> list[Claim]:
    """One verdict for each printed number."""
    found, theirs = column.ours(rows), column.theirs()
    claims = []
    for name, printed in theirs.items():
        sentence = f"{name}: {column.show(printed)} {unit_of} (our test: within {column.near:g})."
        if name not in found:
            claims.append(Claim(sentence, "not run.", None))
            continue
        mean = float(np.mean(found[name]))
        claims.append(Claim(sentence, f"{column.show(mean)}.", abs(mean - printed) <= column.near + 1e-9))
    return claims


def order_claim(column: Column, rows: Sequence[Row]) -> Claim:
    """Whether units are in the printed order, by Kendall's τ."""
    found, theirs = _means(column, rows), column.theirs()
    names = [name for name in theirs if name in found]
    sentence = "The units are in the printed order (our test: Kendall's τ, a permutation test at 5 %)."
    if len(names) < 2:
        return Claim(sentence, "fewer than two units were run.")
    agreement = rank_agreement([found[name] for name in names], [theirs[name] for name in names])
    tau = "" if agreement.tau is None else f", τ = {agreement.tau:.2f}"
    holds = {"same order": True, "other order": False}.get(agreement.word)
    return Claim(sentence, f"{agreement.word}{tau}, {len(names)} units.", holds)


def first_claim(column: Column, rows: Sequence[Row], names: Sequence[str], sentence: str, best: str = "high") -> Claim:
    """Whether these units are the best of those printed, in this order; all of them must have been run."""
    found = {name: value for name, value in _means(column, rows).items() if name in column.theirs()}
    ranking = sorted(found, key=lambda name: -found[name] if best == "high" else found[name])
    ours = ", ".join(f"{name} {column.show(found[name])}" for name in ranking[: len(names) + 1]) or "no runs"
    complete = set(column.theirs()) <= set(found)
    wrong = any(name in found for name in names) and ranking[: len(names)] != [n for n in names if n in found]
    holds = ranking[: len(names)] == list(names) if complete else False if wrong and set(names) <= set(found) else None
    return Claim(sentence, f"{ours}.", holds)


def _means(column: Column, rows: Sequence[Row]) -> Mapping[str, float]:
    return {name: float(np.mean(values)) for name, values in column.ours(rows).items()}


def is_published_size(options: Options) -> bool:
    return options.size == "paper"
