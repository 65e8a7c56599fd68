"""What an attack is: a function that tries to break something a number of times and returns what gave way.

A file ``torture_*.py`` in this folder lists its attacks in ``ATTACKS``, name -> function. The test suite runs each at
size ``small``; ``make torture`` runs them at size ``full`` and prints the counts.
"""

import importlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
Size = Literal["small", "full"]


@dataclass(frozen=True)
class Setting:
    """What an attack is given.

    Args:
        folder: an empty folder of its own.
        draw: its random numbers; one seed gives one sequence of attempts.
        size: ``small`` for the suite (seconds), ``full`` for the nightly run (minutes).
    """

    folder: Path
    draw: random.Random
    size: Size = "small"

    def times(self, small: int, full: int) -> int:
        return small if self.size == "small" else full


@dataclass(frozen=True)
class Result:
    """How often something was tried, what came of it by kind, and a sentence for each time that something gave way."""

    tried: int
    counts: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[str, ...] = ()

    def __str__(self) -> str:
        kinds = "".join(f", {count} {kind}" for kind, count in self.counts.items())
        return f"{self.tried} tried{kinds}, {len(self.failures)} gave way"


Attack = Callable[[Setting], Result]


def attacks() -> dict[str, Attack]:
    """All attacks of this folder by name."""
    found: dict[str, Attack] = {}
    for path in sorted(HERE.glob("torture_*.py")):
        if path.stem != "torture_frame":
            found |= importlib.import_module(path.stem).ATTACKS
    return found


def environment(**changes: str) -> dict[str, str]:
    """The environment of a command under attack: this source tree, one thread."""
    paths = [str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "COLUMNS": "120"} | changes


def command(*words: str, cwd: Path, timeout: float = 300, **changes: str) -> subprocess.CompletedProcess[bytes]:
    """``numerate WORDS`` as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "numerate", *words],
        capture_output=True,
        cwd=cwd,
        env=environment(**changes),
        timeout=timeout,
        check=False,
    )
