"""What an experiment is: which configurations to train at each size, and what to show of the finished runs."""

import importlib
import itertools
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, cast

import numerate.units
from numerate import published
from numerate.published import printed_name, show_range
from numerate.results import Key, Row
from numerate.tasks.task import Range
from numerate.train import Adam, Penalty, Restart, Training
from numerate.train.identity import describe
from numerate.train.specification import Factory

SIZES = ("smoke", "quick", "paper")
Size = Literal["smoke", "quick", "paper"]
MOST_SEEDS = 100_000


@dataclass(frozen=True)
class Options:
    """What a user may change about an experiment; ``None`` leaves it as the experiment has it."""

    size: Size = "quick"
    seeds: int | None = None
    units: tuple[str | Factory, ...] | None = None
    ranges: tuple[Range, ...] | None = None

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ValueError(f"size must be one of {', '.join(SIZES)}, got {self.size!r}")
        if self.seeds is not None and not 1 <= self.seeds <= MOST_SEEDS:
            raise ValueError(f"seeds must be at least 1 and at most {MOST_SEEDS:,}, got {self.seeds}")
        for name in ("units", "ranges"):
            if getattr(self, name) is not None and not getattr(self, name):
                raise ValueError(f"no {name} are named; leave --{name} out for all")

    def seed_range(self, **counts: int) -> tuple[int, ...]:
        """Seeds 0, 1, ...: as many as the user says, else as this size has (``smoke=2, quick=10, paper=25``)."""
        return tuple(range(self.seeds or counts[self.size]))

    def training_ranges(self, known: Collection[Range], smoke: tuple[Range, ...]) -> tuple[Range, ...]:
        """The user's ranges, which must be ``known``; else ``smoke`` at that size, all at others."""
        if self.ranges is None:
            return smoke if self.size == "smoke" else tuple(known)
        for span in self.ranges:
            if span not in known:
                allowed = ", ".join(map(show_range, known))
                raise ValueError(f"range {show_range(span)} is not part of this experiment; allowed are {allowed}")
        return tuple(dict.fromkeys(self.ranges))

    @property
    def own_units(self) -> bool:
        """Whether a unit of the user's own takes part."""
        return any(not isinstance(unit, str) or ":" in unit for unit in self.units or ())


@dataclass(frozen=True)
class Recipe:
    """A model and how it is trained."""

    model: Factory
    optimiser: Adam = Adam()  # noqa: RUF009 (frozen)
    penalties: tuple[Penalty, ...] = ()
    restart: Restart | None = None

    def training(self, **settings: Any) -> Training:
        return Training(
            self.model, optimiser=self.optimiser, penalties=self.penalties, restart=self.restart, **settings
        )


@dataclass(frozen=True)
class Shown:
    """What an experiment wrote: the page to open, a summary for the terminal (a rich renderable), one of its runs."""

    page: Path
    summary: Any = None
    run: Key | None = None


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper: what to run, and what to show of the finished runs."""

    id: str
    title: str
    trainings: Callable[[Options], list[Training]]
    """What to run; nothing, for a figure that follows from the definitions alone."""
    show: Callable[["Experiment", list[Row], Options, Path], Shown]
    """Write the report into a folder, from finished runs alone."""
    about: str = ""
    """One sentence under the title: what was asked, and how."""
    reasons: tuple[str, ...] = ()
    """Known reasons why numbers may differ from the published ones."""
    quick_reasons: tuple[str, ...] = ()
    """Those that quick runs alone have."""
    takes: tuple[str, ...] = ("units",)
    """Which of the options ``units`` and ``ranges`` it heeds; the others are refused."""
    own: str = "the whole model"
    """What a unit of the user's own is in this experiment."""

    def work(self, options: Options) -> list[Training]:
        """What to run with these options, none of which is ignored."""
        for name in ("units", "ranges"):
            if getattr(options, name) is not None and name not in self.takes:
                raise ValueError(f"{self.id} has no choice of {name}; leave --{name} out")
        trainings = self.trainings(options)
        if options.seeds is not None and not trainings:
            raise ValueError(f"{self.id} trains nothing; leave --seeds out")
        return trainings

    def rows_of(self, rows: Sequence[Row], options: Options) -> list[Row]:
        """The rows that belong to these options, labelled as this experiment labels them; some may serve twice."""
        found = {row.key: row for row in rows}
        return [
            found[key].relabelled(self.id, training.labels)
            for training in self.work(options)
            for key in training.run_keys()
            if key in found
        ]


def import_unit(path: str) -> Factory:
    """A user's own unit by import path, ``package.module:Name``; the current folder is searched last."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f"a unit of your own is given as package.module:Name, got {path!r}")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise ValueError(f"cannot import {module!r} for the unit {path!r}: {type(error).__name__}: {error}") from error
    if not hasattr(imported, name):
        raise ValueError(f"module {module!r} has no {name!r}")
    found = getattr(imported, name)
    if not callable(found) or not (hasattr(found, "__qualname__") or isinstance(found, partial)):
        raise ValueError(f"{path!r} is not a class or function that makes a model of (inputs, outputs)")
    return cast(Factory, found)


def choose_recipes(
    units: Sequence[str | Factory] | None,
    known: dict[str, Recipe],
    elsewhere: Collection[str] = (),
    placed: Callable[[Recipe], Recipe] = lambda recipe: recipe,
) -> dict[str, Recipe]:
    """Recipes by name: all known ones, those named, or a user's own class (which may carry a ``recipe``).

    A user's unit is never shown under a name of ours, and no two under one. ``placed`` makes the model of this
    experiment of it, as ours have one; by default the unit is the model. Units that only other parts of the experiment
    have, ``elsewhere``, are left out here.
    """
    if units is None:
        return known
    chosen: dict[str, Recipe] = {}
    own_names = set()
    simple = {_simple(name): name for name in known}
    for unit in units:
        spellings = [_simple(unit), _simple(printed_name(unit))] if isinstance(unit, str) else []
        if name := next((simple[spelling] for spelling in spellings if spelling in simple), ""):
            chosen[name] = known[name]
        elif set(spellings).intersection(map(_simple, elsewhere)):
            continue
        elif isinstance(unit, str) and ":" not in unit:
            names = ", ".join(dict.fromkeys([*known, *elsewhere]))
            raise ValueError(
                f"unit {unit!r} is not part of this experiment; allowed are {names}, or package.module:Name"
            )
        else:
            factory = import_unit(unit) if isinstance(unit, str) else unit
            recipe = _own_recipe(factory)
            if recipe not in chosen.values():
                name = _own_name(unit, recipe, chosen, _taken_names() | simple.keys())
                own_names.add(name)
                chosen[name] = recipe
    return {name: placed(recipe) if name in own_names else recipe for name, recipe in chosen.items()}


def _own_recipe(factory: Factory) -> Recipe:
    """The ``recipe`` that a user's unit carries, or the usual one. Raises ValueError if it carries something else."""
    recipe = getattr(factory, "recipe", None)
    if not isinstance(recipe, Recipe | None):
        raise ValueError(f"the recipe of {unit_path(factory)} must be a numerate.experiments.Recipe, got {recipe!r}")
    return recipe or Recipe(factory)


def unit_path(unit: str | Factory) -> str:
    """``package.module:Name`` of a user's own unit; a partial goes by the class or function inside."""
    if isinstance(unit, str):
        return unit
    return unit_path(unit.func) if isinstance(unit, partial) else f"{unit.__module__}:{unit.__qualname__}"


def _own_name(unit: str | Factory, recipe: Recipe, chosen: dict[str, Recipe], taken: Collection[str]) -> str:
    """The last part of its path, or the whole where that is ``taken`` or another's."""
    path = unit_path(unit)
    if any(describe(recipe) == describe(other) for other in chosen.values()):
        raise ValueError(f"two units {path} have the same source and cannot be told apart; give each a name of its own")
    name = re.split(r"[:.]", path)[-1]
    names = [name] if _simple(name) not in taken else []
    numbered = (f"{path} ({i})" for i in itertools.count(2))
    return next(each for each in itertools.chain(names, [path], numbered) if each not in chosen)


@cache
def _taken_names() -> frozenset[str]:
    """Our units and every model of a published number, without signs; they belong to nobody else."""
    return frozenset(map(_simple, [*numerate.units.__all__, *(cell.model for cell in published.cells())]))


def _simple(name: str) -> str:
    """Printed names without signs: ``NAC•`` is also nac*, ``Real NPU`` realnpu, ``G-NALU`` gnalu."""
    return name.lower().replace("•", "*").replace(" ", "").replace("-", "").replace("_", "")


@cache
def experiments(paper: str = "") -> dict[str, Experiment]:
    """Experiments by id, found in the packages below this one; a new file is a new experiment.

    ``paper``: those of one folder (or file) alone, the name of which is the first part of their ids.
    """
    import numerate.experiments as package

    found: dict[str, Experiment] = {}
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if paper in ("", info.name.split(".")[2]):
            module = importlib.import_module(info.name)
            for experiment in getattr(module, "EXPERIMENTS", ()):
                found[experiment.id] = experiment
    return dict(sorted(found.items(), key=lambda item: _natural(item[0])))


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def select(ids: Sequence[str]) -> list[Experiment]:
    """Experiments by id; the name of a paper that is no experiment itself stands for all of its experiments."""
    chosen: list[Experiment] = []
    for name in ids:
        known = experiments(name.split("/")[0])
        found = [known[name]] if name in known else [e for id_, e in known.items() if id_.startswith(f"{name}/")]
        if not found:
            papers = sorted({id_.split("/")[0] for id_ in experiments()})
            raise ValueError(
                f"there is no experiment {name!r}; see 'numerate list experiments' ({', '.join(papers)}, ...)"
            )
        chosen += [e for e in found if e not in chosen]
    return chosen
