"""A configuration as plain data, which is what its runs are known by.

Code is named by its import path. A user's own also carries a digest of its source, and what no source tells: variables
of the function it was made in, the object a method belongs to, numbers that it takes from its module.
"""

import functools
import hashlib
import inspect
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from types import CodeType
from typing import Any

import numpy as np
import torch

_LIBRARIES = ("numerate.", "torch.")


def describe(value: Any, within: tuple[Any, ...] = ()) -> Any:
    """``value`` as JSON data that names classes and functions by import path; ``within``: those being described."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic | Enum):
        return describe(value.item() if isinstance(value, np.generic) else f"{type(value).__qualname__}.{value.name}")
    if isinstance(value, torch.dtype | torch.device | PurePath):
        return str(value)
    if isinstance(value, np.ndarray | torch.Tensor):
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        return {"shape": list(array.shape), "numbers": _digest(array.dtype.str, array.tobytes())}
    if isinstance(value, functools.partial):
        arguments = {"arguments": [describe(a, within) for a in value.args]} if value.args else {}
        return {
            "call": describe(value.func, within),
            **arguments,
            **{k: describe(v, within) for k, v in sorted(value.keywords.items())},
        }
    if is_dataclass(value) and not isinstance(value, type):
        return {"call": _named(type(value), within), **described_fields(value, within)}
    if isinstance(value, Mapping):
        return {str(k): describe(v, within) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((describe(v, within) for v in value), key=repr)
    if isinstance(value, tuple | list | range):
        return [describe(v, within) for v in value]
    if callable(value):
        return _named(value, within)
    raise TypeError(
        f"{value!r} cannot be written into a configuration; use numbers, text, classes, functions and dataclasses"
    )


ADDED: dict[str, Any] = {"added": True}
"""Metadata of a field that came later: it is described only where it is not at its default, so keys do not change."""


def described_fields(value: Any, within: tuple[Any, ...] = (), without: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass as JSON data; an added one at its default is left out."""
    return {
        f.name: describe(getattr(value, f.name), within)
        for f in fields(value)
        if f.name not in without and not ("added" in f.metadata and getattr(value, f.name) == f.default)
    }


def is_described(kind: Any, names: Collection[str]) -> bool:
    """Whether :func:`described_fields` of a dataclass has these names: all fields, but maybe not the added ones."""
    every = {f.name: "added" in f.metadata for f in fields(kind)}
    return all(name in every for name in names) and all(name in names or added for name, added in every.items())


def only_ours(described: Any) -> bool:
    """Whether a description names nothing but this package's and torch's own classes and functions."""
    if isinstance(described, dict):
        return "source" not in described and all(map(only_ours, described.values()))
    if isinstance(described, list):
        return all(map(only_ours, described))
    if not isinstance(described, str) or ":" not in described:
        return True
    return described.startswith(_LIBRARIES) and "<" not in described


def _named(value: Any, within: tuple[Any, ...]) -> Any:
    if not hasattr(value, "__qualname__"):
        raise TypeError(f"{value!r} has no name to store; hand in a class, a function or a functools.partial")
    path = stored_path(value)
    if any(value is outer for outer in within):
        return path  # it refers to itself
    source = {} if _is_ours(value) else {"source": _source(getattr(value, "__func__", value))}
    kept = {}
    for name, part in _kept(value):
        try:
            kept[name] = describe(part, (*within, value))
        except TypeError as error:
            raise TypeError(f"{path} uses {name}, but {error}") from None
    return {"path": path, **source, **({"with": kept} if kept else {})} if source or kept else path


FORMER_MODULES: dict[str, str] = {}
"""Module -> the name it has in configurations, where that is a former one. Code of ours may move; keys never change."""


def stored_path(value: Any) -> str:
    """``package.module:Name``, as configurations have it."""
    return f"{FORMER_MODULES.get(value.__module__, value.__module__)}:{value.__qualname__}"


def _is_ours(value: Any) -> bool:
    return (path := stored_path(value)).startswith(_LIBRARIES) and "<" not in path


# ------------------------------------------------------------ what no source tells


def _kept(value: Any) -> Iterator[tuple[str, Any]]:
    """What a user's code has taken from where it was made or named, with a name for each."""
    if inspect.ismethod(value):
        owner = value.__self__
        if not inspect.isclass(owner) or value.__qualname__ != f"{owner.__qualname__}.{value.__name__}":
            yield "self", owner
        yield from _kept(value.__func__)
    elif _is_ours(value):
        return
    elif inspect.isclass(value):
        if "<" in value.__qualname__:
            yield "bases", [stored_path(base) for base in value.__bases__]
        for base in reversed(_own_bases(value)):
            for name, part in vars(base).items():
                if "<" in base.__qualname__ and not name.startswith("__") and _is_plain(part):
                    yield name, part
                if isinstance(part, functools.partialmethod):
                    yield name, [part.args, part.keywords]
                for function in _functions(part):
                    yield from ((f"{name}.{k}", v) for k, v in _kept(function) if v is not value)
    elif hasattr(value, "__wrapped__"):
        yield "wrapped", value.__wrapped__
        yield from _kept_by_function(value)
    else:
        yield from _kept_by_function(value)


def _kept_by_function(value: Any) -> Iterator[tuple[str, Any]]:
    if not inspect.isfunction(value):
        return
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
        try:
            content = cell.cell_contents
        except ValueError:  # not there yet
            continue
        known = (value, getattr(value, "__wrapped__", None))
        if name != "__class__" and not inspect.ismodule(content) and not any(content is each for each in known):
            yield name, content
    if "<" in value.__qualname__:
        yield from ((k, p.default) for k, p in inspect.signature(value).parameters.items() if p.default is not p.empty)
    yield from ((k, v) for k, v in vars(value).items() if _is_plain(v))
    if "<" not in value.__qualname__ and value.__module__ != "__main__" and _text(value) is not None:
        return  # the digest of its file tells the numbers in it
    for name in sorted(_names(value.__code__)):
        found = value.__globals__.get(name)
        code = inspect.isfunction(found) or inspect.isclass(found)
        by_hand = code and not _is_library(found) and (found.__module__ == "__main__" or _text(found) is None)
        if by_hand or (found is not None and _is_plain(found)):
            yield name, found


def _functions(part: Any) -> list[Any]:
    """The functions behind an attribute of a class."""
    if isinstance(part, property):
        return [function for function in (part.fget, part.fset) if function]
    part = getattr(part, "__func__", getattr(part, "func", part))  # of a static, class or partial method; cached
    return [part] if inspect.isfunction(part) else []


def _names(code: CodeType) -> set[str]:
    """Names that a function takes from its module, those of functions inside it too."""
    return set(code.co_names).union(*(_names(part) for part in code.co_consts if inspect.iscode(part)))


def _is_plain(value: Any) -> bool:
    """A number, text, or a tuple of such: what does not change by itself."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | np.generic)


# ------------------------------------------------------------ source


@functools.cache
def _source(value: Any) -> str:
    """Digest of a user's own class or function, of its whole file and of those of its base classes, as first seen.

    What was typed in by hand has no file; its compiled code then stands for it.
    """
    text = _text(value)
    return _digest(repr([_compiled(base) for base in _own_bases(value)]) if text is None else text)


@functools.cache
def _text(value: Any) -> str | None:
    """The source of a class or function and the files of all that it is made of; None if it was typed in by hand."""
    try:
        files = {"".join(inspect.findsource(base)[0]): None for base in _own_bases(value)}
        return "".join([inspect.getsource(value), *files])
    except (OSError, TypeError):
        return None


def _compiled(value: Any) -> Any:
    """The instructions of a function, or of all functions of a class, and the numbers and names they use."""
    if inspect.isclass(value):
        return [(name, _compiled(part)) for name, part in sorted(vars(value).items())]
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    if functions := _functions(value):
        return [(_compiled(inspect.unwrap(f).__code__), _defaults(f)) for f in functions]
    if inspect.iscode(value):
        return value.co_code.hex(), [_compiled(part) for part in value.co_consts], value.co_names
    return repr(value) if _is_plain(value) else type(value).__qualname__


def _defaults(function: Any) -> list[Any]:
    return [_compiled(part) for part in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())]


def _own_bases(value: Any) -> list[Any]:
    """A user's class and those it is derived from, but no library's; a function itself."""
    if not inspect.isclass(value):
        return [inspect.unwrap(value)]
    return [base for base in inspect.getmro(value) if base is value or not _is_library(base)]


def _is_library(value: Any) -> bool:
    module = value.__module__ or ""
    return module.startswith(_LIBRARIES) or module.partition(".")[0] in sys.stdlib_module_names


def _digest(*parts: str | bytes) -> str:
    return hashlib.sha256(b"".join(p.encode() if isinstance(p, str) else p for p in parts)).hexdigest()[:12]
