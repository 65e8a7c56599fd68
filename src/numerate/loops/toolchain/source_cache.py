"""Keep what was emitted under the name of the step, so that a later process need not trace it again."""

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from numerate.loops.toolchain.native import cache_folder, write_whole


@cache
def _version() -> str:
    """Digest of this package's code, and torch's version: either may change what is emitted."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        digest.update(path.read_bytes())
    for path in sorted(Path(__file__).parents[1].rglob("*.[ch]*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def kept(name: str | None, purpose: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """``make()`` (JSON data), or what an earlier call with the same name and purpose made; without a name, anew."""
    if name is None:
        return make()
    digest = hashlib.sha256("\0".join([name, purpose, _version()]).encode()).hexdigest()[:32]
    path = cache_folder() / f"{digest}.json"
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        made = make()
        write_whole(json.dumps(made).encode(), path)
        return made
