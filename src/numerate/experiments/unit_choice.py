"""Which units an experiment trains: ours by their printed names, and the user's own."""

import importlib
import itertools
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import cast

import numerate.units
from numerate import published
from numerate.experiments.recipe import Recipe
from numerate.published import printed_name
from numerate.train.identity import describe
from numerate.train.specification import Factory

Unit = str | Factory
"""A printed name, ``package.module:Name``, or the class or function itself."""


def is_own(unit: Unit) -> bool:
    """Whether a unit is the user's own, given by import path or as it is."""
    return not isinstance(unit, str) or ":" in unit


def resolve_units(units: Sequence[Unit], names: Collection[str]) -> tuple[Unit, ...]:
    """The units that a user asks for, ours by the name in ``names``. Raises ValueError for any other name.

    A text may hold several, separated by commas or semicolons. Some names hold a comma (``NAC•,NMU``): a comma that is
    part of one of ``names`` does not separate.
    """
    spellings = {_simple(name): name for name in names}
    resolved: list[Unit] = []
    for unit in units:
        for part in split_names(unit, lambda text: _find(text, spellings)) if isinstance(unit, str) else [unit]:
            name = _find(part, spellings) if isinstance(part, str) else None
            if name is None and not is_own(part):
                allowed = listed(names)
                raise ValueError(
                    f"unit {part!r} is not part of this experiment; allowed are {allowed}, or package.module:Name"
                )
            if (chosen := name or part) not in resolved:
                resolved.append(chosen)
    return tuple(resolved)


def listed(names: Collection[str]) -> str:
    """Names for people, separated by commas, or by semicolons where one of them holds a comma."""
    return ("; " if any("," in name for name in names) else ", ").join(names)


def join_units(units: Sequence[Unit], names: Collection[str]) -> str:
    """The text that :func:`resolve_units` makes ``units`` of; with commas where they suffice."""
    paths = tuple(map(unit_path, units))
    joined = ",".join(paths)
    return joined if resolve_units([joined], names) == paths else ";".join(paths)


def split_names(text: str, is_name: Callable[[str], object]) -> list[str]:
    """The names in ``text``, separated by commas or semicolons; from the left, each as long as ``is_name`` allows."""
    names = []
    for group in text.split(";"):
        words = group.split(",")
        while words:
            lengths = (n for n in range(len(words), 1, -1) if is_name(",".join(words[:n])))
            count = next(lengths, 1)
            names.append(",".join(words[:count]).strip())
            words = words[count:]
    return [name for name in names if name]


def _find(text: str, spellings: Mapping[str, str]) -> str | None:
    """Our name for what was typed: as printed, or the name of the class."""
    return spellings.get(_simple(text)) or spellings.get(_simple(printed_name(text.strip())))


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
    factory = getattr(imported, name)
    if not callable(factory) or not (hasattr(factory, "__qualname__") or isinstance(factory, partial)):
        raise ValueError(f"{path!r} is not a class or function that makes a model of (inputs, outputs)")
    return cast(Factory, factory)


def own_recipe(unit: Unit) -> Recipe:
    """How a user's own unit is trained: as its attribute ``recipe`` says, else with the usual Adam."""
    factory = import_unit(unit) if isinstance(unit, str) else unit
    recipe = getattr(factory, "recipe", None)
    if recipe is None:
        return Recipe(factory)
    if not isinstance(recipe, Recipe):
        raise ValueError(
            f"the recipe of {unit_path(unit)} must be a numerate.experiments.Recipe, such as Recipe(MyUnit, "
            f"Adam(5e-3)), got {recipe!r}"
        )
    return recipe


def choose_recipes(
    units: Sequence[Unit] | None,
    known: Mapping[str, Recipe],
    *,
    default: Collection[str] | None = None,
    placed: Callable[[Recipe], Recipe] = lambda recipe: recipe,
) -> dict[str, Recipe]:
    """Recipes by the name that a report shows.

    Args:
        units: as :func:`resolve_units` gives them; one that only other parts of the experiment have is left out here.
            None: all.
        known: our names -> recipes.
        default: those of ``known`` that are meant by None, if not all.
        placed: makes the model of this experiment from a user's own unit; without it the unit is the model.
    """
    if units is None:
        return {name: known[name] for name in (known if default is None else default)}
    chosen: dict[str, Recipe] = {}
    own: set[str] = set()
    for unit in units:
        if isinstance(unit, str) and unit in known:
            chosen[unit] = known[unit]
        elif is_own(unit) and (recipe := own_recipe(unit)) not in chosen.values():
            name = _own_name(unit, recipe, chosen, _taken_names().union(map(_simple, known)))
            own.add(name)
            chosen[name] = recipe
    return {name: placed(recipe) if name in own else recipe for name, recipe in chosen.items()}


def unit_path(unit: Unit) -> str:
    """``package.module:Name`` of a user's own unit; a partial goes by the class or function inside."""
    if isinstance(unit, str):
        return unit
    return unit_path(unit.func) if isinstance(unit, partial) else f"{unit.__module__}:{unit.__qualname__}"


def short_name(unit: Unit) -> str:
    """Our name as it is; the last part of the path of a user's own."""
    path = unit_path(unit)
    return re.split(r"[:.]", path)[-1] if is_own(unit) else path


def _own_name(unit: Unit, recipe: Recipe, chosen: Mapping[str, Recipe], taken: Collection[str]) -> str:
    """A user's unit is never shown under a name of ours, and no two under one: then its whole path is the name."""
    path = unit_path(unit)
    if any(describe(recipe) == describe(other) for other in chosen.values()):
        raise ValueError(f"two units {path} have the same source and cannot be told apart; give each its own name")
    name = short_name(unit)
    names = [name] if _simple(name) not in taken else []
    numbered = (f"{path} ({i})" for i in itertools.count(2))
    return next(name for name in itertools.chain(names, [path], numbered) if name not in chosen)


@cache
def _taken_names() -> frozenset[str]:
    """Our units and every model of a published number, in simple spelling."""
    return frozenset(map(_simple, [*numerate.units.__all__, *(cell.model for cell in published.cells())]))


def _simple(name: str) -> str:
    """Printed names without signs: ``NAC•`` is also nac*, ``Real NPU`` realnpu, ``G-NALU`` gnalu."""
    return name.lower().replace("•", "*").replace(" ", "").replace("-", "").replace("_", "")
