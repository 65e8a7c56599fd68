"""What driver and workers send each other: a JSON header and a block of bytes; nothing in it is executed."""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from numerate import __version__
from numerate.processes import joined, parted
from numerate.results import Checkpoint
from numerate.results.checkpoint import packed, unpacked

PACKAGE = Path(__file__).parents[1]
SUFFIXES = (".py", ".cpp", ".hpp", ".cuh", ".toml", ".json", ".csv")

Kind = Literal["rows", "paused", "refused", "failed"]
"""All rows; the state of a group whose time was up; wrong versions; an error in training."""


@cache
def versions() -> dict[str, str]:
    """What must be equal on driver and worker. Builds of torch (``+cpu``, ``+cu130``) may differ."""
    return {
        "numerate": __version__,
        "its code": _code_digest(),
        "torch": version("torch").partition("+")[0],
        "numpy": version("numpy"),
    }


def _code_digest() -> str:
    """A digest of all files of the package: two unreleased states may have one version."""
    digest = hashlib.sha256()
    for path in sorted(path for path in PACKAGE.rglob("*") if path.suffix in SUFFIXES):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def version_conflict(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str | None:
    """Why a worker (``ours``) cannot work for a driver (``theirs``), or None."""
    unlike = [name for name in theirs if theirs[name] != ours.get(name)]
    if not unlike:
        return None
    told = " and ".join(f"{name} {ours.get(name, 'none')} where the driver has {theirs[name]}" for name in unlike)
    return f"{told}; install the same versions there"


@dataclass(frozen=True)
class Order:
    """Runs of one form for a worker.

    Args:
        experiment: that trains them.
        trainings: configurations, as :func:`numerate.train.plain.to_text` has them.
        runs: which configuration, and which seed.
        backend, device, threads: as for :func:`numerate.train.train`.
        seconds: after which the worker sends back the state of the group and ends.
        path: folder to search for a user's own units, after all others.
        versions: of the driver.
        checkpoint: state to continue from, by the name of the group.
    """

    experiment: str
    trainings: Sequence[str]
    runs: Sequence[tuple[int, int]]
    backend: str
    device: str
    threads: int
    seconds: float
    path: str = ""
    versions: Mapping[str, str] = field(default_factory=versions)
    checkpoint: tuple[str, Checkpoint] | None = None

    def to_bytes(self) -> bytes:
        header = {name: value for name, value in vars(self).items() if name != "checkpoint"}
        return joined(header, _checkpoint_bytes(self.checkpoint))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Order":
        header, body = parted(data)
        return cls(**header, checkpoint=_checkpoint_of(body))


def versions_of(order: bytes) -> dict[str, str]:
    """The driver's versions; the rest of an order may be as only those versions know it."""
    return parted(order)[0]["versions"]


@dataclass(frozen=True)
class Reply:
    """What became of an order.

    Args:
        kind: see :data:`Kind`.
        where: the machine and process, in words.
        node: what the engine calls the machine.
        seconds: of training.
        overhead: seconds of everything else: imports, tracing, compiling, packing.
        sentence: why it was refused or failed.
        notices: what the worker had to say.
        body: rows, or the state of the group.
    """

    kind: Kind
    where: str = field(default_factory=lambda: platform.node() or "a worker")
    node: str = ""
    seconds: float = 0.0
    overhead: float = 0.0
    sentence: str = ""
    notices: Sequence[str] = ()
    body: bytes = b""

    def to_bytes(self) -> bytes:
        header = asdict(self)
        return joined(header, header.pop("body"))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Reply":
        header, body = parted(data)
        return cls(**header, body=body)

    @property
    def checkpoint(self) -> tuple[str, Checkpoint] | None:
        """The name and the state of the group. Raises ValueError if they are not as they were sent."""
        return _checkpoint_of(self.body)


def paused(name: str, checkpoint: Checkpoint, **facts: Any) -> Reply:
    """The reply of a worker whose time was up."""
    return Reply("paused", body=_checkpoint_bytes((name, checkpoint)), **facts)


def _checkpoint_bytes(named: tuple[str, Checkpoint] | None) -> bytes:
    if named is None:
        return b""
    name, checkpoint = named
    block, meta = packed(name, checkpoint.arrays, checkpoint.meta)
    return joined({"name": name, "meta": meta}, block)


def _checkpoint_of(body: bytes) -> tuple[str, Checkpoint] | None:
    if not body:
        return None
    header, block = parted(body)
    checkpoint = unpacked(header["name"], block, header["meta"].encode())
    if checkpoint is None:
        raise ValueError("the state of a group is not as it was sent")
    return header["name"], checkpoint
