"""What the shell completes: experiments, units, sizes and backends, without the seconds that importing them takes.

The names are kept in the cache folder until a file of the experiments changes. ``numerate --install-completion`` tells
the shell to ask.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from numerate import __version__
from numerate.loops.toolchain import cache_folder

FILE = "names.json"
SIZES = ("smoke", "quick", "paper")
BACKENDS = ("auto", "emitted", "stacked", "compiled", "eager")
Names = Mapping[str, Sequence[str]]


def experiment_ids(incomplete: str) -> list[str]:
    return [id for id in _names()["experiments"] if id.startswith(incomplete)]


def unit_names(incomplete: str) -> list[str]:
    """The last of several names that are separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _names()["units"] if name.lower().startswith(last.lower())]


def sizes(incomplete: str) -> list[str]:
    return [size for size in SIZES if size.startswith(incomplete)]


def backends(incomplete: str) -> list[str]:
    return [backend for backend in BACKENDS if backend.startswith(incomplete)]


def kinds(incomplete: str) -> list[str]:
    """What ``numerate list`` lists."""
    return [kind for kind in ("experiments", "units", "tasks") if kind.startswith(incomplete)]


def _names() -> Names:
    """From the cache folder; else asked of the experiments, and kept."""
    key = _key()
    try:
        return json.loads(cache_folder.current().read(key, FILE) or "")
    except (OSError, ValueError):
        names = _ask()
        with suppress(OSError):  # then they are asked again
            cache_folder.current().add(key, lambda folder: _write(folder / FILE, names))
        return names


def _write(path: Path, names: Names) -> None:
    path.write_text(json.dumps(names), encoding="utf-8")


def _ask() -> Names:
    from numerate.experiments import experiments

    found = experiments()
    units = dict.fromkeys(unit for experiment in found.values() for unit in experiment.units)
    return {"experiments": list(found), "units": list(units)}


def _key() -> str:
    """Of the files that hold the experiments, as they are now."""
    files = sorted((Path(__file__).parent / "experiments").rglob("*.py"))
    stamps = [f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files]
    return hashlib.sha256("\n".join([__version__, *stamps]).encode()).hexdigest()[:32]
