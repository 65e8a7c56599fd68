"""One finished run: what was asked, what came out, and the circumstances, which never enter a comparison."""

import hashlib
import json
import math
import operator
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from numerate import __version__
from numerate.results.arrays import Array, pack, unpack

Status = Literal["finished", "diverged"]


class Key(NamedTuple):
    """What identifies a run: the hash of its configuration, and its seed."""

    config: str
    seed: int

    @property
    def name(self) -> str:
        """How ``numerate show`` knows the run: the first digits of the hash, '-' and the seed."""
        return f"{self.config[:10]}-{self.seed}"


def canonical(value: Any) -> str:
    """JSON in one spelling: sorted names, no spaces, whole numbers without a point, tuples as lists; no NaN."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def config_hash(config: Mapping[str, Any]) -> str:
    """32 hexadecimal digits that stand for a configuration; ``1`` and ``1.0``, tuple and list count as the same."""
    return _hash(canonical(config))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in (str, int, bool):  # the most frequent first: a table has thousands of rows
        return value
    if kind is float:
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if kind in (list, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise TypeError(f"names in a configuration must be strings, got {list(value)!r}")
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(part) for part in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"a configuration holds text, numbers, lists and mappings, got {value!r} ({type(value).__name__})")


@dataclass(frozen=True)
class Circumstances:
    """How, where and when a run was done. Kept apart from its result: a resumed run may differ in all of this."""

    backend: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, float] = field(default_factory=dict)
    created: str = ""

    @property
    def seconds(self) -> float:
        """Time of this run alone: its own, or its share of the group it was trained in; 0 if nobody measured."""
        own = self.timing.get("seconds", 0.0)
        return own or self.timing.get("group_seconds", 0.0) / max(1.0, self.timing.get("group_runs", 1.0))

    @cached_property
    def stored(self) -> tuple[str, str, str, str, str]:
        """As they are stored; the runs of a group share them."""
        texts = (canonical(self.versions), canonical(self.hardware), canonical(self.timing))
        return self.backend, *texts, self.created

    @classmethod
    def here(cls, backend: str = "", timing: Mapping[str, float] | None = None, device: str = "cpu") -> "Circumstances":
        """This process, this machine, now; torch is asked only if it is already imported."""
        versions = {"numerate": __version__, "python": platform.python_version(), "numpy": np.__version__}
        hardware: dict[str, Any] = {"machine": platform.machine(), "cores": os.cpu_count(), "device": device}
        hardware["system"] = platform.system()
        if torch := sys.modules.get("torch"):
            versions["torch"] = str(torch.__version__)
            if device.startswith("cuda"):
                hardware["accelerator"] = torch.cuda.get_device_name(device)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(backend, versions, hardware, dict(timing or {}), created)


@dataclass(frozen=True, eq=False)
class Row:
    """One finished run.

    ``config`` holds everything that decides the result (beside the seed), as plain JSON values; ``labels`` is what
    tables and pictures group by, such as ``{"unit": "NMU", "operation": "mul", "range": [1, 2]}``.
    ``curves`` maps names to one array each over the evaluation points: ``steps``, ``validation``, ``test``,
    ``sparsity``. ``scores`` holds single numbers: ``threshold``, and after rounding the weights ``snapped_test`` and so
    on. ``weights`` maps a moment (``final``, ``best``, ``snapped``) to named arrays. A run that diverged says at which
    step and why. Two rows are equal if their results are, bit for bit; circumstances do not count.
    """

    experiment: str
    config: Mapping[str, Any]
    seed: int
    labels: Mapping[str, Any] = field(default_factory=dict)
    status: Status = "finished"
    stopped_at: int | None = None
    reason: str = ""
    curves: Mapping[str, Array] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)
    circumstances: Circumstances = field(default_factory=Circumstances)

    def __post_init__(self) -> None:
        for name, mapping in (("config", self.config), ("labels", self.labels)):
            if not isinstance(mapping, Mapping):
                raise TypeError(f"{name} must map names to values, got {mapping!r}")
        _whole("seed", self.seed)
        if self.stopped_at is not None:
            _whole("stopped_at", self.stopped_at)
        if self.status not in ("finished", "diverged"):
            raise ValueError(f"status must be 'finished' or 'diverged', got {self.status!r}")
        if self.status == "diverged" and (self.stopped_at is None or not self.reason):
            raise ValueError("a run that diverged must say at which step (stopped_at) and why (reason)")
        if any("/" in moment for moment in self.weights):
            raise ValueError(f"the moments of weights must be plain names, got {sorted(self.weights)}")
        lengths = {name: len(np.atleast_1d(values)) for name, values in self.curves.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the curves of one run must have one length, got {lengths}")

    @cached_property
    def key(self) -> Key:
        return Key(_hash(self.config_text), operator.index(self.seed))

    @cached_property
    def config_text(self) -> str:
        """The configuration as it is stored."""
        return canonical(self.config)

    @cached_property
    def result(self) -> tuple[Any, ...]:
        """The result as it is stored: config, status, stopped_at, reason, curves, scores, weights."""
        flat = {f"{moment}/{name}": w for moment, named in self.weights.items() for name, w in named.items()}
        stopped = None if self.stopped_at is None else operator.index(self.stopped_at)
        scores = encode_scores(self.scores)
        return self.config_text, self.status, stopped, self.reason, pack(self.curves), scores, pack(flat)

    @cached_property
    def digest(self) -> str:
        """A hash of the result; equal digests mean equal results."""
        return digest_of((*self.key, *self.result))

    def spelled(self, config_text: str) -> "Row":
        """This row, whose configuration is known to be stored as ``config_text``; to spell it anew takes long."""
        vars(self)["config_text"] = config_text
        return self

    def relabelled(self, experiment: str, labels: Mapping[str, Any]) -> "Row":
        """The same run under other names."""
        row = replace(self, experiment=experiment, labels=labels)
        known = {"key", "config_text", "result", "digest"}  # names take no part in them
        vars(row).update({name: value for name, value in vars(self).items() if name in known})
        return row

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        mine, theirs = canonical(self.labels), canonical(other.labels)
        return (self.experiment, mine, self.digest) == (other.experiment, theirs, other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def threshold(self) -> float:
        """The test error below which the run counts as solved."""
        if "threshold" not in self.scores:
            raise ValueError(f"this run of {self.experiment} has no threshold among its scores: {sorted(self.scores)}")
        return self.scores["threshold"]


def _whole(name: str, value: Any) -> None:
    """Refuse what an SQLite file does not hold as a whole number."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{name} must be a whole number of at most 64 bits, got {number}")


def digest_of(stored: Iterable[Any]) -> str:
    """The digest of a run as it is stored: key, config, status, stopped_at, reason, curves, scores, weights."""
    parts = [part if isinstance(part, bytes) else repr(part).encode() for part in stored]
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).hexdigest()


def encode_scores(scores: Mapping[str, float]) -> str:
    """JSON text; what JSON cannot say is written as the strings "nan", "inf", "-inf"."""
    numbers = {name: float(value) for name, value in scores.items()}
    return canonical({name: value if math.isfinite(value) else str(value) for name, value in numbers.items()})


def decode_scores(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in decode_mapping(text).items()}


def decode_mapping(text: str | bytes) -> dict[str, Any]:
    """The mapping that JSON text stands for; anything else is a ``ValueError``."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"it should map names to values, and is {value!r}")
    return value


def decode_weights(data: bytes) -> dict[str, dict[str, Array]]:
    weights: dict[str, dict[str, Array]] = {}
    for path, value in unpack(data).items():
        moment, name = path.split("/", 1)
        weights.setdefault(moment, {})[name] = value
    return weights
