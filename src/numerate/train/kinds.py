"""Objects from a stored configuration: only kinds on a list are made, from data, and no import path is followed.

A configuration comes from a results file, and a results file may come from anybody. What it names is looked up in a
list of our own classes and functions; anything else raises :class:`NotListed`. A user's own unit is imported only
through :class:`Importing`, which says beforehand what would be run.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from numerate import recurrent, tasks, units
from numerate.recurrent import Cell
from numerate.train.identity import describe, stored_path
from numerate.train.schedules import Cosine, Linear, Steps, Warmup
from numerate.train.specification import Adam, Penalty, Plateau, Restart, Settings

Described = Mapping[str, Any] | list[Any] | str | int | float | bool | None
"""What :func:`numerate.train.identity.describe` gives, and JSON brings back."""
Made = Any
Kinds = Mapping[str, Callable[..., Any]]
"""The name that a configuration has for a class or function of ours -> the class or function."""

LARGEST = 1_000_000
"""Whole numbers beyond are not used to make anything: a size that large is no size of ours."""
LONGEST = 200
"""Characters of an option such as ``activation="relu"``, and parts of a list."""


class NotListed(ValueError):
    """A configuration names something that is not on the list of kinds."""


def listed(objects: Iterable[Any]) -> dict[str, Callable[..., Any]]:
    """Classes and functions by the name that a configuration has for them."""
    return {stored_path(value): value for value in objects}


@cache
def kinds() -> Kinds:
    """Our units, cells, tasks, optimisers, penalties and schedules."""

    def public(module: Any, *bases: type) -> Iterator[Any]:
        values = (getattr(module, name) for name in module.__all__)
        return (value for value in values if inspect.isclass(value) and issubclass(value, bases))

    made_tasks = (getattr(tasks, name) for name in tasks.__all__)
    return listed(
        [
            *public(units, nn.Module),
            *public(recurrent, Cell, nn.Module),
            *(value for value in made_tasks if hasattr(value, "__dataclass_fields__")),
            *(Adam, Penalty, Plateau, Restart, Settings),
            *(Cosine, Linear, Steps, Warmup),
            *(units.penalty, units.l1, units.r_z_sum, units.r_z_product),
            *(units.After, units.Constant, units.Growth, units.Ramp, units.Saturating),
        ]
    )


class Maker:
    """Makes models and tasks of descriptions.

    Args:
        allowed: the kinds that may be made.
    """

    def __init__(self, allowed: Kinds) -> None:
        self.allowed = allowed

    def named(self, described: Described) -> Callable[..., Any]:
        """The class or function that a description names. Raises NotListed if it is not among the allowed ones."""
        if isinstance(described, str) and described in self.allowed:
            return self.allowed[described]
        raise NotListed(f"{path_of(described)} is not a unit, cell or task of numerate's own")

    def factory(self, described: Described) -> Callable[..., Any]:
        """A class or function, or a ``functools.partial`` of one with the described arguments."""
        if not isinstance(described, Mapping) or "call" not in described:
            return self.named(described)
        places, names = _arguments(described)
        return partial(
            self.named(described["call"]),
            *map(self._argument, places),
            **{name: self._argument(value) for name, value in names.items()},
        )

    def instance(self, described: Described) -> Made:
        """What a description calls, called: a task, say. Plain values are themselves, lists are tuples."""
        if isinstance(described, list):
            return tuple(map(self.instance, _short(described)))
        if not isinstance(described, Mapping):
            return _plain(described)
        places, names = _arguments(described)
        parts = {name: self.instance(value) for name, value in names.items()}
        return self.named(described.get("call"))(*map(self.instance, places), **parts)

    def _argument(self, described: Described) -> Made:
        if isinstance(described, Mapping) or (isinstance(described, str) and ":" in described):
            return self.factory(described)
        if isinstance(described, list):
            return tuple(map(self._argument, _short(described)))
        return _plain(described)


class Importing(Maker):
    """Makes users' own models too, by importing what a configuration names; :meth:`says` is to be shown first."""

    def named(self, described: Described) -> Callable[..., Any]:
        try:
            return super().named(described)
        except NotListed:
            found = _imported(path_of(described))
        if describe(found) != described:
            raise ValueError(f"{path_of(described)} is not, or no longer, the code that this run was trained with")
        return found

    def says(self, described: Described) -> str:
        """What would be run to make a model of this description."""
        paths = list(dict.fromkeys(foreign(described, self.allowed)))
        return ", ".join(f"import {path.replace(':', ' and call ')}" for path in paths)


def foreign(described: Described, allowed: Kinds) -> Iterator[str]:
    """The paths in a description that are not on the list."""
    if isinstance(described, str):
        if ":" in described and described not in allowed:
            yield described
    elif isinstance(described, list):
        for part in described:
            yield from foreign(part, allowed)
    elif isinstance(described, Mapping):
        if "path" in described:
            yield path_of(described)
        else:
            for part in described.values():
                yield from foreign(part, allowed)


def path_of(described: Described) -> str:
    """``package.module:Name`` of a described class or function."""
    if isinstance(described, Mapping) and ("path" in described or "call" in described):
        return path_of(described.get("path", described.get("call")))
    return described if isinstance(described, str) else "something without a name"


def make_model(maker: Maker, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> nn.Module:
    """The model of a configuration, whose parameters have these ``shapes``.

    It is first made without memory: a file cannot ask for a larger one than the numbers it brings. Raises ValueError,
    TypeError or RuntimeError if it cannot be made.
    """
    if not shapes:
        raise ValueError("no weights are stored with it")
    task, factory = maker.instance(config.get("task")), maker.factory(config.get("model"))
    sizes = getattr(task, "inputs", None), getattr(task, "outputs", None)
    if not all(isinstance(size, int) and 0 < size <= LARGEST for size in sizes):
        raise ValueError(f"its task has {sizes[0]} inputs and {sizes[1]} outputs")
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        outline = factory(*sizes)
    if not isinstance(outline, nn.Module):
        raise ValueError(f"{path_of(config.get('model'))} makes no model")
    found = {name: tuple(value.shape) for name, value in outline.state_dict().items()}
    if found != dict(shapes):
        raise ValueError("the stored weights are not those of its model")
    with torch.random.fork_rng(devices=[]):
        return factory(*sizes)


def _arguments(described: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """By place and by name. Raises ValueError for what no configuration of ours has."""
    places = described.get("arguments", [])
    names = {name: value for name, value in described.items() if name not in ("call", "arguments")}
    if not isinstance(places, list) or any(name in ("device", "dtype", "generator") for name in names):
        raise ValueError(f"the arguments of {path_of(described)} are not those of a configuration")
    return _short(places), names


def _short(values: list[Any]) -> list[Any]:
    if len(values) > LONGEST:
        raise ValueError(f"a list of {len(values):,} values is none of a configuration of ours")
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise ValueError(f"a number as large as {value:.3g} is none of a configuration of ours")
    if isinstance(value, str) and len(value) > LONGEST:
        raise ValueError(f"a text of {len(value):,} characters is none of a configuration of ours")
    return value


def _imported(path: str) -> Callable[..., Any]:
    """A class or function of the user's own by its path. Raises ValueError for any other."""
    module, _, name = path.partition(":")
    if "<" in name or not module or not name:
        raise ValueError(f"{path} was made inside a function or by hand and cannot be imported")
    if module.partition(".")[0] in {*sys.stdlib_module_names, "numerate"}:
        raise ValueError(f"{path} is no unit of your own: it is not imported")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        raise ValueError(f"cannot import {path}: {type(error).__name__}: {error}") from error
    if not (inspect.isclass(found) and issubclass(found, nn.Module)) and not inspect.isfunction(found):
        raise ValueError(f"{path} is not a class or function that makes a model")
    return found
