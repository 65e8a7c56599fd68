"""Two result folders, or two versions of numerate, cell by cell."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from numerate.page.cells import Data, Placing, counted_cells, estimate, rate
from numerate.page.index import VERSION, Filter, decoded_labels
from numerate.page.site import NotFound, Query, Site
from numerate.report.metrics import SUCCESS
from numerate.report.text import p_value
from numerate.stats import verdicts


@dataclass(frozen=True)
class Side:
    """One of the two that are compared: a folder, and a version of numerate or any."""

    source: int
    version: str = ""

    @classmethod
    def parse(cls, text: str, site: Site) -> "Side":
        number, _, version = text.partition("@")
        if not number.isdecimal() or int(number) >= len(site.sources):
            raise NotFound(f"a side is the number of a results folder, such as 0 or 0@0.1.0; got {text!r}")
        return cls(int(number), version)

    @property
    def filters(self) -> tuple[Filter, ...]:
        return (Filter(VERSION, (self.version,)),) if self.version else ()

    def __str__(self) -> str:
        return f"{self.source}@{self.version}" if self.version else str(self.source)


def compare(site: Site, query: Query, wait: bool = False) -> Data:
    """The rates of success of two sides beside each other, with Boschloo's test."""
    del wait
    sides = _sides(site)
    names = [str(side) for side in sides]
    first, second = (Side.parse(query.get(name) or names[min(i, len(names) - 1)], site) for i, name in enumerate("ab"))
    index = site.sources[first.source].index
    offered = _offered(site, first, second)
    id = query.get("experiment") or next(iter(offered), "")
    base = {
        "title": "Compare",
        "sides": [{"name": str(side), "title": _title(site, side)} for side in sides],
        "second": f"numerate page --out {shlex.quote(str(site.sources[0].folder))} --with OTHER",
        "a": str(first),
        "b": str(second),
        "titles_of": {"a": _title(site, first), "b": _title(site, second)},
        "offered": offered,
        "id": id,
    }
    if not id:
        return base | {"cells": [], "size": "", "sizes": [], "counts": {}}
    size = site.size(index, id, query.get("size"))
    both = [
        site.sources[side.source].index.groups(id, size, (*side.filters, *query.filters)) for side in (first, second)
    ]
    placing = Placing.of(decoded_labels(group.labels) for groups in both for group in groups)
    cells = _cells([counted_cells(groups, placing) for groups in both]) if first != second else []
    words = [cell["verdict"] for cell in cells]
    return base | {
        "size": size,
        "sizes": site.sizes_of(index, id),
        "cells": cells,
        "counts": {word: words.count(word) for word in dict.fromkeys(words)},
    }


def _sides(site: Site) -> list[Side]:
    """Every folder, then every version of each that has several."""
    found = [Side(number) for number in range(len(site.sources))]
    for number, source in enumerate(site.sources):
        if len(versions := source.index.versions()) > 1:
            found += [Side(number, version) for version in versions]
    if len(site.sources) == 1 and len(found) > 2:
        return [*found[1:], found[0]]  # two versions say more than a folder beside itself
    return found


def _title(site: Site, side: Side) -> str:
    folder = str(site.sources[side.source].folder)
    return f"{folder}, numerate {side.version}" if side.version else folder


def _offered(site: Site, first: Side, second: Side) -> list[str]:
    """Experiments with runs on either side."""
    ids: dict[str, None] = {}
    for side in (first, second):
        ids |= dict.fromkeys(site.progress(site.sources[side.source].index))
    return list(ids)


def _cells(both: Sequence[Data]) -> list[Data]:
    places = [{(c["panel"], c["series"], c["x"]): c for c in data["cells"] if c["criterion"]} for data in both]
    ranks = [{name: i for i, name in enumerate(_joined(both, key))} for key in ("panels", "series", "xs")]
    order = sorted({*places[0], *places[1]}, key=lambda place: [rank[name] for rank, name in zip(ranks, place)])
    counts = [tuple(_counts(found.get(place)) for found in places) for place in order]
    found = verdicts([(a, b if b[1] else None) for a, b in counts])
    words = {"not published": "one side only", "too few runs": "too few runs"}
    return [
        {
            "panel": place[0], "series": place[1], "x": place[2],
            "a": _shown(a), "b": _shown(b), "difference": (a[0] / a[1] - b[0] / b[1]) if a[1] and b[1] else None,
            "verdict": words.get(verdict.word, verdict.word) if a[1] and b[1] else "one side only",
            "q": p_value(verdict.q), "where": (places[0].get(place) or places[1][place])["where"],
        }
        for place, (a, b), verdict in zip(order, counts, found)
    ]  # fmt: skip


def _joined(both: Sequence[Data], key: str) -> list[str]:
    """Names of both sides in the order of the first, then those of the second alone."""
    return list(dict.fromkeys(name for data in both for name in data[key]))


def _counts(cell: Data | None) -> tuple[int, int]:
    return (cell["solved"], cell["judged"]) if cell else (0, 0)


def _shown(counts: tuple[int, int]) -> Data | None:
    return {"solved": counts[0], "runs": counts[1], "rate": estimate(rate(*counts), SUCCESS)} if counts[1] else None
