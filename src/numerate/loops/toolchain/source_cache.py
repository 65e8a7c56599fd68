"""Keep what was emitted under the name of the step, so that a later process need not trace it again."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from numerate.loops.toolchain import cache_folder

PACKAGE = Path(__file__).parents[2]
UNRELATED = ("numerate.results", "numerate.published", "numerate.stats", "numerate.report", "numerate.cli")
"""Packages that store, count or show what was trained: no step is made of their code, whoever imports them."""

_IMPORT = re.compile(r"^\s*(?:from|import) (numerate[\w.]*)(?: import (?:\(([^)]*)\)|(.*)))?", re.MULTILINE)
_MODULE = re.compile(r"numerate(?:\.\w+)+(?=:)")


def kept(name: str | None, purpose: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """``make()`` (JSON data), or what an earlier call with the same name and purpose made; without a name, anew.

    The name tells all that ``make`` depends on, code by its import path (``numerate.units.nmu:NMU``). An entry is made
    anew when that code, what it imports, the code of the loops or torch's version has changed.
    """
    if name is None:
        return make()
    identity = [name, purpose, torch.__version__, _version(tuple(sorted(set(_MODULE.findall(name)))))]
    key = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:32]
    try:
        folder = cache_folder.current()
        return json.loads(folder.read(key, "emitted.json") or "")
    except (OSError, ValueError):
        made = make()
        _keep(key, json.dumps(made))
        return made


def _keep(key: str, text: str) -> None:
    def write(folder: Path) -> None:
        (folder / "emitted.json").write_text(text)

    try:
        cache_folder.current().add(key, write)
    except OSError as error:
        cache_folder.notice(f"cannot write to the cache folder ({error.strerror}); every process traces again")


@cache
def _version(named: tuple[str, ...]) -> str:
    """Digest of the files that a step made of the ``named`` modules depends on."""
    digest = hashlib.sha256()
    texts = (path for path in (PACKAGE / "loops").rglob("*") if re.fullmatch(r"\.([ch]pp|cuh)", path.suffix))
    for path in sorted((*texts, *map(_file, dependencies(named)))):
        digest.update(f"{path.relative_to(PACKAGE)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def dependencies(named: Iterable[str]) -> set[str]:
    """The ``named`` modules, those of the loops, and all modules of this package that they import, directly or not."""
    found: set[str] = set()
    waiting = {*named, *_loops()}
    while waiting:
        module = waiting.pop()
        if module not in found and _file(module).is_file() and not module.startswith(UNRELATED):
            found.add(module)
            waiting |= _imports(module)
    return found


def _loops() -> Iterator[str]:
    for path in (PACKAGE / "loops").rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(("numerate", *(part for part in parts if part != "__init__")))


def _file(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _imports(module: str) -> set[str]:
    """Modules of this package that a module names in its import statements, wherever they stand."""
    found = set()
    for source, listed, named in _IMPORT.findall(_file(module).read_text()):
        found |= {source, *(f"{source}.{name}" for name in re.findall(r"\w+", listed or named))}
    return found
