"""What the page shows: one or more results folders, the experiments, and what an address asks about them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from numerate.experiments import experiments
from numerate.experiments.experiment import SIZES
from numerate.page.checking import Checking
from numerate.page.computing import Computing
from numerate.page.index import ALL, Filter, Index, Member
from numerate.page.sizes import Sizes, best_size

FILTER = "is."
"""Before the name of a label in an address: ``is.unit=NMU&is.range=[1,2]``."""


class NotFound(ValueError):
    """An address that leads nowhere, said in one sentence."""


@dataclass(frozen=True)
class Query:
    """The part of an address behind the question mark."""

    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Query":
        try:
            return cls(tuple(parse_qsl(text, max_num_fields=500)))
        except ValueError:
            raise NotFound("this address holds more than 500 choices") from None

    def get(self, name: str, default: str = "") -> str:
        return dict(self.pairs).get(name, default)

    def number(self, name: str, default: int = 0) -> int:
        text = self.get(name)
        return int(text) if text.isdecimal() and len(text) < 10 else default

    @property
    def filters(self) -> tuple[Filter, ...]:
        wanted: dict[str, list[str]] = {}
        for name, value in self.pairs:
            if name.startswith(FILTER):
                wanted.setdefault(name.removeprefix(FILTER), []).append(value)
        return tuple(Filter(name, tuple(values)) for name, values in sorted(wanted.items()))

    def __str__(self) -> str:
        return urlencode(self.pairs)


@dataclass
class Source:
    """A results folder that is shown."""

    folder: Path

    def __post_init__(self) -> None:
        path = self.folder / "results.sqlite"
        self.index, self.checking = Index(path), Checking(path)

    @property
    def out(self) -> str:
        """What a command needs to find this folder."""
        return "" if str(self.folder) == "results" else f" --out {shlex.quote(str(self.folder))}"


@cache
def _every_size() -> tuple[Sizes, list[Member]]:
    sizes = Sizes(experiments())
    return sizes, list(sizes.members())


@dataclass
class Site:
    """Everything that views ask; used by one thread, which also made it."""

    sources: list[Source]
    sizes: Sizes
    computing: Computing = field(default_factory=Computing)
    _progress: dict[str, tuple[int, dict[str, dict[str, tuple[int, int]]]]] = field(default_factory=dict)

    @classmethod
    def of(cls, folders: Sequence[Path]) -> "Site":
        sizes, members = _every_size()
        site = cls([Source(folder) for folder in folders], sizes)
        for source in site.sources:
            source.index.add_members(members)
        site.refresh()
        return site

    def refresh(self) -> str:
        """Take in what was stored meanwhile; a text that differs when anything has changed."""
        for source in self.sources:
            index = source.index
            if index.refresh():
                self.sizes.adopt(index)
            self._check(source)
        return f"{'.'.join(str(source.index.version) for source in self.sources)}-{self.computing.version}"

    def _check(self, source: Source) -> None:
        """Leave out what is not as it was written; looked for when there is nothing else to compute."""
        name, index = ("checked", str(source.index.path)), source.index
        if self.computing.idle:
            self.computing.get(name, index.version, source.checking.damaged)
        if (checked := self.computing.latest(name)) and checked.value:
            index.leave_out(checked.value)

    def close(self) -> None:
        self.computing.close()
        for source in self.sources:
            source.index.close()

    def source(self, query: Query) -> Source:
        number = query.number("source")
        if number >= len(self.sources):
            raise NotFound(f"there is no results folder {number}; there are {len(self.sources)}")
        return self.sources[number]

    def progress(self, index: Index) -> Mapping[str, Mapping[str, tuple[int, int]]]:
        """Experiment -> size -> (finished, total), of sizes with finished runs.

        Everything stored under its name is the size ``all``, where that is more than the other sizes have.
        """
        version, known = self._progress.get(str(index.path), (-1, {}))
        if version != index.version:
            known = self._counted(index)
            self._progress[str(index.path)] = index.version, known
        return known

    def _counted(self, index: Index) -> dict[str, dict[str, tuple[int, int]]]:
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for (id, size), finished in index.finished().items():
            found.setdefault(id, {})[size] = finished, self.sizes.totals[id, size]
        for id, stored in index.experiments().items():
            if stored > max((finished for finished, _ in found.get(id, {}).values()), default=0):
                found.setdefault(id, {})[ALL] = stored, stored
        return found

    def sizes_of(self, index: Index, experiment: str) -> list[dict[str, str | int]]:
        """The sizes of an experiment that have finished runs, as the page gets them."""
        sizes = sorted(self.progress(index).get(experiment, {}).items(), key=lambda item: (*SIZES, ALL).index(item[0]))
        return [{"name": name, "finished": finished, "total": total} for name, (finished, total) in sizes]

    def size(self, index: Index, experiment: str, asked: str) -> str:
        """The size asked for, else the best there is. Raises NotFound for an experiment or a size without runs."""
        known = self.progress(index).get(experiment, {})
        if asked and asked not in (*SIZES, ALL):
            raise NotFound(f"there is no size {asked!r}; there are {', '.join(SIZES)} and {ALL}")
        size = asked or best_size(known) or next(iter(known), "")
        if not size and experiment not in self.sizes.experiments:
            raise NotFound(f"there are no runs of {experiment!r} in {index.path}")
        return size or "quick"
