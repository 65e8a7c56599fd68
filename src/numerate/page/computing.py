"""What takes longer than a page may: comparisons and pictures, each kind one after the other in a thread of its own.

A view gets what was computed last, and asks for it anew if the runs have changed since; :attr:`Computing.version` tells
the browser that something is ready.
"""

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from numerate.experiments import Work
from numerate.experiments.pages import ComparisonPage, PicturePage
from numerate.page.cells import Data, compared_cells
from numerate.page.index import Records, decoded_labels, light_rows, value_text
from numerate.report import Claim, figures
from numerate.report.comparison import series_name
from numerate.results import Key, Row, Store

log = logging.getLogger("numerate")


@dataclass
class Computed:
    """A result, the version of the runs it belongs to, and the error in its place."""

    version: object
    value: Any = None
    error: str = ""


Name = tuple[str, *tuple[Hashable, ...]]
"""Of a result: its kind, then what it is of."""


class Computing:
    """Results by name; those of a kind are computed in the order in which they are asked for."""

    def __init__(self) -> None:
        self.version = 0
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._done: dict[Name, Computed] = {}
        self._asked: dict[Name, Future[None]] = {}

    def is_current(self, name: Name, version: object) -> bool:
        """Whether a result of this version is there, or one is under way: it need not be asked for now."""
        done, running = self._done.get(name), self._asked.get(name)
        return (done is not None and done.version == version) or (running is not None and not running.done())

    @property
    def idle(self) -> bool:
        return all(running.done() for running in self._asked.values())

    def latest(self, name: Name) -> Computed | None:
        return self._done.get(name)

    def get(self, name: Name, version: object, work: Callable[[], Any], *, wait: bool = False) -> Computed | None:
        """The latest result, which may be of an earlier version; None if there is none yet."""
        if not self.is_current(name, version):
            pool = self._pools.setdefault(name[0], ThreadPoolExecutor(1, f"numerate-page-{name[0]}"))
            self._asked[name] = pool.submit(self._compute, name, version, work)
        if wait and (running := self._asked.get(name)):
            running.result()
        return self.latest(name)

    def _compute(self, name: Name, version: object, work: Callable[[], Any]) -> None:
        try:
            self._done[name] = Computed(version, work())
        except Exception as error:  # an experiment's own code, on whatever runs there are
            log.debug("cannot compute %s", name, exc_info=True)
            self._done[name] = Computed(version, error=sentence(error))
        self.version += 1

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)


def sentence(error: Exception) -> str:
    """What went wrong: errors of these kinds are sentences by themselves, others need the name of their kind."""
    told = type(error) in (ValueError, RuntimeError) and str(error)
    return told or f"{type(error).__name__}: {error}"


def complete(path: Path, rows: Sequence[Row]) -> list[Row]:
    """Rows with their curves and weights, under the names they have here."""
    with Store(path, readonly=True) as store:
        whole = {row.key: row for row in store.rows(keys=[row.key for row in rows], lenient=True)}
    return [whole[row.key].relabelled(row.experiment, row.labels) for row in rows if row.key in whole]


def compare(work: Work, records: Records, path: Path) -> Data:
    """The cells of the report of these runs; with curves and weights only where the comparison looks at them."""
    show = work.experiment.show
    assert isinstance(show, ComparisonPage)
    rows = light_rows(work.experiment.id, records)
    own = {row.key for row, own in zip(rows, records.column("own")) if own}
    try:
        compared = show.compared(work, rows if show.prepare is None else complete(path, rows))
    except (LookupError, AttributeError, ValueError):
        if show.prepare is not None:
            raise
        compared = show.compared(work, complete(path, rows))
    series = compared.layout.series
    mine = {series_name(row.labels[series]) for row in rows if row.key in own and series in row.labels}
    stored: dict[str, set[str]] = {}
    for labels in map(decoded_labels, set(records.column("labels"))):
        for name, value in labels.items():
            stored.setdefault(name, set()).add(value_text(value))
    return compared_cells(compared, stored, mine) | {"claims": _claims(show.claims_of(compared, work.options))}


def _claims(claims: Iterable[Claim]) -> list[Data]:
    return [{"said": claim.said, "test": claim.test, "ours": claim.ours, "word": claim.word} for claim in claims]


def draw(work: Work, keys: Sequence[Key], path: Path) -> Data:
    """Pictures (as SVG), their colours, tables and claims of an experiment that is no comparison."""
    show = work.experiment.show
    assert isinstance(show, PicturePage)
    rows: list[Row] = []
    if keys:
        with Store(path, readonly=True) as store:
            rows = work.rows_of(store.rows(keys=keys, lenient=True))
    page, claims = show.drawn(work, rows)
    return {
        "headline": page.headline,
        "pictures": [{"name": each.name, "caption": each.caption, "svg": themed(each.svg)} for each in page.pictures],
        "tables": [
            {
                "title": table.title,
                "header": list(table.header),
                "lines": [list(map(str, line)) for line in table.lines],
            }
            for table in page.tables
        ],
        "claims": _claims(claims),
        "colours": _colours(each.figure for each in page.pictures),
    }


def _colours(drawn: Iterable[Figure]) -> dict[str, str]:
    """Name -> colour, as the legends of the pictures have them; the first counts."""
    found: dict[str, str] = {}
    for figure in drawn:
        for legend in [*figure.legends, *filter(None, (ax.get_legend() for ax in figure.axes))]:
            for handle, label in zip(legend.legend_handles, legend.get_texts()):
                if isinstance(handle, Line2D) and handle.get_linestyle() != "None":
                    found.setdefault(label.get_text().split("\n")[0], to_hex(handle.get_color()))
    return found


LIGHT = {variable: colour for colour, variable in figures.PAGE.items()}
DARK = ("#e4e8ee", "#98a2b0", "#323943", "#1c2128", "#14171c")


def themed(svg: str) -> str:
    """A picture that is a file of its own, and follows the reader's theme."""
    light = "".join(f"{variable[4:-1]}: {colour};" for variable, colour in LIGHT.items())
    dark = "".join(f"{variable[4:-1]}: {colour};" for variable, colour in zip(LIGHT, DARK))
    style = f"<style>svg {{ {light} }} @media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>"
    head, rest = svg.split(">", 1)
    head = head if 'xmlns="' in head else head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{head}>{style}{rest}"
