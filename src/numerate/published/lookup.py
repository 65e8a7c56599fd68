"""Finding a printed number; a name that does not exist is answered with those that do."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import cache
from importlib import resources
from typing import Any, TypeVar

from numerate.published import records
from numerate.published.names import OPERATIONS, printed_name
from numerate.published.records import Published, Range, Setting, Threshold

FILES = {
    "nalu2018": ("nalu2018_results", "nalu2018_main_text_secondary"),
    "nau2020": ("nau2020_results", "nau2020_figures"),
    "primer2022": ("primer2022_results",),
    "nru2019": ("nru2019_table1_topk", "nru2019_table2_ptb_char", "nru2019_table3_psmnist"),
    "ur2020": ("ur2020_table5_gate_ablation", "ur2020_main_body_secondary"),
    "npu2020": ("npu2020_large_scale",),
    "inalu2020": ("inalu2020_simple_function",),
}
SETTINGS = {"nau2020": "nau2020_settings", "primer2022": "primer2022_settings"}
KINDS = ("exact", "used", "script", "correct")  # which threshold is meant if none is named: the one behind the tables

T = TypeVar("T", Published, Threshold, Setting)


class NotPublished(ValueError):
    """Nothing meets the criteria; the sentence says what there is."""


def papers() -> tuple[str, ...]:
    """The papers whose numbers are here."""
    return tuple(FILES)


def tables(paper: str) -> tuple[str, ...]:
    """The tables (and figures) of a paper whose numbers are here."""
    return tuple(dict.fromkeys(cell.table for cell in _cells(paper)))


def cells(*, paper: str | None = None, **criteria: Any) -> list[Published]:
    """Printed numbers that meet every criterion, in the order of print.

    Criteria are fields of :class:`Published`; a list means any of its values; ``model`` may be the name of our class;
    ``range`` a pair, a list of pairs for a union, or text. A ``ValueError`` tells what there is instead.
    """
    known = papers() if paper is None else (paper,)
    everything = [cell for name in known for cell in _cells(name)]
    return _select(everything, Published, criteria, paper or "the papers")


def one(**criteria: Any) -> Published:
    """The printed number that meets every criterion; ``ValueError`` if there is none, or more than one."""
    matching = cells(**criteria)
    if len(matching) != 1:
        raise ValueError(
            f"{len(matching)} published numbers fit {_spell(criteria)}; name more of {_field_names(Published)}"
        )
    return matching[0]


def get(**criteria: Any) -> Published | None:
    """As :func:`one`, but None where nothing is published, as for a unit of one's own."""
    try:
        return one(**criteria)
    except NotPublished:
        return None


def thresholds(**criteria: Any) -> list[Threshold]:
    """Success thresholds that meet every criterion (fields of :class:`Threshold`)."""
    return _select(_thresholds(), Threshold, criteria, "the thresholds")


def threshold(op: str, range: Range, *, task: str = "single module", kind: str | None = None) -> Threshold:
    """The threshold of one cell; without ``kind`` the one that the published tables were made with."""
    matching = thresholds(task=task, op=op, range=range, **({} if kind is None else {"kind": kind}))
    return min(matching, key=lambda threshold: KINDS.index(threshold.kind))  # the first of several


def settings(paper: str, **criteria: Any) -> list[Setting]:
    """Settings a paper states, as printed (fields of :class:`Setting`)."""
    if paper not in SETTINGS:
        raise ValueError(f"settings are here for {', '.join(SETTINGS)}, not for {paper!r}")
    return _select(list(map(records.setting, raw(SETTINGS[paper]))), Setting, criteria, paper)


def raw(name: str) -> list[dict[str, str]]:
    """The lines of one data file as text, such as ``raw("nau2020_recomputed")``."""
    folder = resources.files("numerate.published") / "data"
    known = sorted(entry.name.removesuffix(".csv") for entry in folder.iterdir() if entry.name.endswith(".csv"))
    if name not in known:
        raise ValueError(f"there is no data file {name!r}; there are {', '.join(known)}")
    text = (folder / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


@cache
def _cells(paper: str) -> tuple[Published, ...]:
    if paper not in FILES:
        raise ValueError(f"there are no numbers of a paper {paper!r}; there are {', '.join(FILES)}")
    return tuple(records.published(line) for file in FILES[paper] for line in raw(file))


@cache
def _thresholds() -> tuple[Threshold, ...]:
    return tuple(map(records.threshold, raw("thresholds")))


def _select(everything: Sequence[T], kind: type[T], criteria: dict[str, Any], where: str) -> list[T]:
    names = [field.name for field in fields(kind)]
    if unknown := criteria.keys() - set(names):
        raise ValueError(f"{kind.__name__} has no {', '.join(sorted(unknown))}; choose by {', '.join(names)}")
    matching = list(everything)
    for name in sorted(criteria, key=names.index):
        accept = _acceptor(name, criteria[name])
        kept = [record for record in matching if accept(getattr(record, name))]
        if not kept:
            values = dict.fromkeys(_show(getattr(record, name)) for record in matching)
            raise NotPublished(f"{where}: no {name} {_show(criteria[name])} here; there are {_shorten(values)}")
        matching = kept
    return matching


def _acceptor(name: str, wanted: Any) -> Callable[[Any], bool]:
    if name in ("range", "extrapolation"):
        if wanted is None:
            return lambda value: value is None
        span = records.plain_range(wanted)
        return lambda value: value == span
    options = list(wanted) if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
    if name == "model":
        options += [printed_name(option) for option in options]
    if name == "op":
        options = [OPERATIONS.get(option, option) for option in options]
    if name == "table":
        options = [str(option) for option in options]
    return lambda value: value in options


def _show(value: Any) -> str:
    return str(value) if not isinstance(value, tuple) else records.show_range(value)


def _shorten(values: Iterable[str], most: int = 20) -> str:
    values = [value or "(none)" for value in values]
    return ", ".join(values[:most]) + (f" and {len(values) - most} more" if len(values) > most else "")


def _spell(criteria: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_show(value)}" for name, value in criteria.items()) or "nothing"


def _field_names(kind: type[Any]) -> str:
    return ", ".join(field.name for field in fields(kind))
