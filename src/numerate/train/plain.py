"""A configuration as plain data that a worker makes the same configuration of.

What is sent is :meth:`Training.description`, the data that a run is known by. The driver sends nothing that it has not
itself made anew, and a worker trains nothing whose description is not the one it was sent.
"""

import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

from numerate.results import config_hash
from numerate.train.identity import FORMER_MODULES, is_described
from numerate.train.networks.specification import NetworkTraining
from numerate.train.specification import Training
from numerate.train.stack import shown_name

_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_NEWER_MODULES = {former: module for module, former in FORMER_MODULES.items()}


def to_text(training: Training | NetworkTraining) -> str:
    """A configuration without its seeds. Raises ValueError if a worker could not make it of that."""
    described, name = training.description(), shown_name(training)
    try:
        stored = {"keeps_weights": training.keeps_weights} if isinstance(training, NetworkTraining) else {}
        text = json.dumps({"description": described, "labels": dict(training.labels), "stored": stored})
        rebuilt = from_text(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be sent to workers: {error}") from error
    if not _same(_settings(training), _settings(rebuilt)):
        raise ValueError(
            f"{name} cannot be sent to workers: they make it of names, numbers and text alone; define it at the top "
            "of a module that they can import, and hand it no other arguments"
        )
    return text


def from_text(text: str, seeds: tuple[int, ...] = ()) -> Training | NetworkTraining:
    """The configuration of :func:`to_text`. Raises ValueError if the code here is not that of the sender."""
    sent = json.loads(text)
    described = sent["description"]
    settings = {name: _made(value) for name, value in described.items() if name != "model"}
    kind = Training if "batch" in described else NetworkTraining
    training = kind(_factory(described["model"]), seeds=seeds, labels=sent["labels"], **settings, **sent["stored"])
    if config_hash(training.description()) != config_hash(described):
        raise ValueError(f"the code of {shown_name(training)} here is not that of the driver")
    return training


def _made(described: Any) -> Any:
    """What a description stands for: an object of ours or of the user's, a function, or a plain value."""
    if isinstance(described, list):
        return tuple(map(_made, described))
    if isinstance(described, Mapping) and "call" in described:
        made = _factory(described)
        whole = is_dataclass(made.func) and is_described(made.func, made.keywords.keys())
        return made() if whole else made
    if isinstance(described, Mapping) or (isinstance(described, str) and _PATH.fullmatch(described)):
        return _factory(described)
    return described


def _factory(described: Any) -> Any:
    """A class or function by its path, or a ``functools.partial`` of one."""
    if isinstance(described, Mapping) and "call" in described:
        named = {name: _made(value) for name, value in described.items() if name not in ("call", "arguments")}
        return partial(_factory(described["call"]), *map(_made, described.get("arguments", [])), **named)
    path = described.get("path") if isinstance(described, Mapping) else described
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise ValueError(f"{path or 'an array'} cannot be imported by name")
    return _imported(path)


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    if module == "__main__":
        raise ValueError(f"{path} is defined in the script that was started; move it to a module of its own")
    try:
        found: Any = importlib.import_module(_NEWER_MODULES.get(module, module))
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot import {path}: {error}") from error
    return found


def _settings(training: Training | NetworkTraining) -> dict[str, Any]:
    """All that takes part in a result, beside the seed."""
    return {f.name: getattr(training, f.name) for f in fields(training) if f.name not in ("seeds", "labels")}


def _same(a: Any, b: Any) -> bool:
    """Whether two settings are made of the same parts; a list and a tuple of the same parts count as the same."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, partial):
        return a.func is b.func and _same(a.args, b.args) and _same(a.keywords, b.keywords)
    if is_dataclass(a) and not isinstance(a, type):
        return all(_same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    return a is b or bool(a == b)
