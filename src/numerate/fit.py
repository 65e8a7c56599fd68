"""What ``numerate fit`` does: read a table, find the formula, say how good it is, write the page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from numerate.discover import Formula, Found, export
from numerate.discover.noise import WIDE, smooth_error
from numerate.discover.physical_units import Unit
from numerate.discover.robust import FAR, far
from numerate.discover.run import SEEN, ConstantNote, explain_constants, find, smaller, values
from numerate.discover.table import Table
from numerate.report.formula import (
    Candidate,
    FormulaPage,
    Law,
    Picture,
    Slice,
    fit_figure,
    is_wide,
    slices_figure,
    write_formula_page,
)
from numerate.report.text import number, percent

NO_LAW = "no exact law found; best approximation"
RUNNERS_UP = 3
UNEXPLAINED = 3.0
"""Times what a free polynomial leaves: a formula that leaves more has missed something."""
PANELS = 6
Progress = Callable[[Formula, float], None]


@dataclass(frozen=True)
class FormulaFit:
    """A formula found from a table, with what is to be said about it."""

    table: Table
    found: Found
    units: Mapping[str, Unit] | None
    constants: Sequence[ConstantNote]
    robust: bool = False

    @property
    def verdict(self) -> str:
        best = self.found.best
        rows = "every row but the outliers" if self.found.outliers else "every row"
        if self.found.exact:
            return f"an exact law: it agrees with {rows} to the last digits"
        if best.relative_error < SEEN:
            return f"{NO_LAW}, which agrees with {rows}: they are too few, or its constants too many, for a law"
        error = best.relative_error if self.found.relative else best.error
        if self.found.noise and error < 1.2 * self.found.noise:
            return f"{NO_LAW}, which leaves no more than the noise"
        return NO_LAW

    @property
    def residuals(self) -> np.ndarray:
        """Target minus formula, (n,)"""
        return self.table.y - values(self.found.best, self.table.X, self.table.names)

    @property
    def hints(self) -> list[str]:
        """Options that may serve this table better."""
        if self.found.exact or self.found.best.relative_error < SEEN:
            return []
        y, hints = self.table.y, []
        if self.units is not None and self.found.best.error > UNEXPLAINED * smooth_error(self.table.X, y):
            hints.append(
                "the inputs explain far more than any formula found that agrees with the units; check the units"
            )
        left = self.residuals / np.abs(y) if self.found.relative else self.residuals
        off = int(far(left, np.ones(len(y), bool)).sum())
        if off and not self.robust:
            hints.append(f"{off:,} rows lie more than {FAR:g} standard deviations off; --robust leaves such rows out")
        if not self.found.relative and y.all() and np.ptp(np.sign(y)) == 0 and np.abs(y).max() > WIDE * np.abs(y).min():
            orders = np.log10(np.abs(y).max() / np.abs(y).min())
            hints.append(
                f"{self.table.target} spans {orders:.1f} orders of magnitude; --relative weighs small values as large"
            )
        return hints

    @property
    def facts(self) -> list[tuple[str, str]]:
        best, noise = self.found.best, self.found.noise
        kept = ~np.isin(np.arange(len(self.table.y)), self.found.outliers)
        size = float(np.sqrt(np.mean(self.residuals[kept] ** 2)))
        error = f"{number(size)}, {percent(best.relative_error if size else 0.0)} of the target"
        relative = self.found.relative
        level = percent(noise) + " of the target" if relative else f"{number(noise)} (standard deviation)"
        return [
            ("root mean square error", error + ("'s, row by row" if relative else "'s")),
            (
                "estimated noise",
                level
                if noise
                else "none that can be seen"
                if best.exact or best.relative_error < SEEN
                else "not known",
            ),
            ("size", f"{best.size} operations, names and numbers"),
            *([("left out as outliers", self.outliers)] if self.found.outliers else []),
            *(("hint", hint) for hint in self.hints),
        ]

    @property
    def outliers(self) -> str:
        """How many rows were left out, and which."""
        rows = [str(i + 1) for i in self.found.outliers]
        return f"{len(rows)} of {len(self.table.y)} rows: {', '.join(rows[:10])}{', …' if len(rows) > 10 else ''}"

    @property
    def groups(self) -> list[str]:
        """Dimensionless groups as text: rho*v*d/mu; an input that stands alone is none."""
        return [_product(group) for group in self.found.groups if len(group) > 1]

    @property
    def runners_up(self) -> list[Formula]:
        """The formulas of the front that come closest in error, beside the chosen one."""
        best = self.found.best
        others = [each for each in self.found.front if each is not best and each.size > 1]
        return sorted(others, key=lambda each: abs(np.log((each.error + 1e-300) / (best.error + 1e-300))))[:RUNNERS_UP]


def _product(powers: Mapping[str, object]) -> str:
    import sympy

    return str(sympy.Mul(*(sympy.Symbol(name) ** sympy.Rational(str(power)) for name, power in powers.items())))


def fit_table(
    table: Table,
    *,
    seconds: float = 10.0,
    functions: Sequence[str] | None = None,
    units: Mapping[str, Unit] | None = None,
    size: int | None = None,
    relative: bool | None = None,
    robust: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> FormulaFit:
    """Find the formula of a table.

    Args:
        table: Inputs and target.
        seconds: Processor time.
        functions: Functions a formula may contain; None for the default set.
        units: Column -> unit.
        size: The largest formula wanted.
        relative: Whether errors count relative to the target, row by row; None: where the data say so.
        robust: Whether gross outliers are left out.
        seed: Of the search.
        progress: Called with the best formula so far and the seconds gone by.
    """
    found = find(
        table.X,
        table.y,
        names=table.names,
        target=table.target,
        seconds=seconds,
        functions=functions,
        units=units,
        relative=relative,
        robust=robust,
        seed=seed,
        progress=progress,
    )
    found = found if size is None else smaller(found, size)
    return FormulaFit(table, found, units, explain_constants(found.best, units, table.target), robust)


def candidates(found: Found, target: str) -> list[Candidate]:
    """The front, ready to be shown."""
    sign = {True: "=", False: "≈"}
    return [
        Candidate(
            export.text(each.expression),
            export.mathml(target, each.expression, sign[each.exact]),
            each.size,
            each.error,
            each.relative_error,
            each is found.best or each == found.best,
        )
        for each in found.front
    ]


def law(fit: FormulaFit) -> Law:
    """What a page shows of a formula."""
    table, best = fit.table, fit.found.best
    predicted = values(best, table.X, table.names)
    front = candidates(fit.found, table.target)
    band = "; the band is twice the estimated noise" if fit.found.noise and not fit.found.relative else ""
    pictures = [
        Picture(
            "fit",
            fit_figure(table.y, predicted, 0.0 if fit.found.relative else fit.found.noise, front, fit.found.relative),
            f"Left: every row. Middle: what the formula leaves{band}. Right: all formulas that are better than every "
            "smaller one; the chosen one is filled.",
        )
    ]
    cuts = slices(fit)
    if cuts:
        pictures.append(Picture("outside", slices_figure(cuts, table.target), OUTSIDE))
    return Law(
        table.target,
        export.mathml(table.target, best.expression, "=" if best.exact else "≈"),
        fit.verdict,
        best.exact,
        fit.facts,
        front,
        [str(each) for each in fit.constants],
        fit.groups,
        {title: export.code(best.expression, table.names, language) for title, language in LANGUAGES.items()},
        pictures,
    )


OUTSIDE = (
    "Along each input, the others at their median. Shaded: outside the data. Dashed: the runners-up; where they part "
    "from the formula, the data do not decide. Dots: the data, the effect of the other inputs taken off."
)
LANGUAGES = {"Python": "python", "PyTorch": "torch", "C": "c"}


def slices(fit: FormulaFit) -> list[Slice]:
    """The formula and its runners-up along each input that it contains, the others at their median."""
    table, best = fit.table, fit.found.best
    middle = np.median(table.X, axis=0)
    rest = table.y - values(best, table.X, table.names)
    used = {str(symbol) for symbol in best.expression.free_symbols}
    cuts = []
    for i, name in enumerate(table.names):
        if name not in used or len(cuts) == PANELS:
            continue
        column = table.X[:, i]
        grid = outside(column)
        along = np.tile(middle, (len(grid), 1))
        along[:, i] = grid
        at_rows = np.tile(middle, (len(column), 1))
        at_rows[:, i] = column
        shown = [best, *fit.runners_up]
        curves = {_short(each): values(each, along, table.names) for each in shown}
        points = column, values(best, at_rows, table.names) + rest
        cuts.append(Slice(name, grid, curves, points, float(column.min()), float(column.max())))
    return cuts


def _short(formula: Formula, most: int = 60) -> str:
    shown = export.text(formula.expression)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def outside(column: np.ndarray, count: int = 400) -> np.ndarray:
    """Places from half a range below the data to half a range above; positive inputs stay positive."""
    low, high = float(column.min()), float(column.max())
    if is_wide(column):
        return np.geomspace(low / 4, high * 4, count)
    span = high - low
    start = low - span / 2
    return np.linspace(max(start, low / 2) if low >= 0 else start, high + span / 2, count)


def usage(path: Path, fit: FormulaFit, seconds: float) -> str:
    """How to get the same formula in Python."""
    table = fit.table
    units = "" if fit.units is None else f", units={', '.join(each.text for each in fit.units.values())!r}"
    options = f", relative={fit.found.relative}" + (", robust=True" if fit.robust else "")
    return (
        "from numerate import FormulaRegressor\n"
        "from numerate.discover import read_frame\n\n"
        f"data = read_frame({str(path)!r})   # of polars\n"
        f"model = FormulaRegressor(seconds={seconds:g}{units}{options})\n"
        f"model.fit(data[{list(table.names)!r}], data[{table.target!r}])\n"
        f"model.formula_      # {export.text(fit.found.best.expression)}\n"
        f"model.predict(data[{list(table.names)!r}])\n"
        "model.to_module()   # an nn.Module whose constants train\n"
    )


def write_report(
    fit: FormulaFit, path: Path, folder: Path, *, seconds: float, settings: Mapping[str, str], command: str
) -> Path:
    """The page of one formula; path: the data, folder: where the page goes."""
    table = fit.table
    page = FormulaPage(
        f"{table.target} from {', '.join(table.names)}",
        f"{path.name}: {len(table):,} rows",
        [law(fit)],
        usage=usage(path, fit, seconds),
        settings=settings,
        command=command,
    )
    return write_formula_page(page, folder)
