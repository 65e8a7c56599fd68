"""One finished run: what was asked, what came out, and its provenance, which never enters a comparison."""

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from numerate.results.arrays import Array, pack
from numerate.results.encoding import canonical, digest_of, encode_scores, hash_text
from numerate.results.provenance import Provenance

Status = Literal["finished", "diverged"]
StoredResult = tuple[str, str, int | None, str, bytes, str, bytes]
"""config, status, stopped_at, reason, curves, scores, weights, as a file holds them."""


class Key(NamedTuple):
    """What identifies a run, in every file and on every machine: the hash of its configuration, and its seed.

    Two runs are the same if and only if their keys are equal. Experiment, labels, backend, device and group take no
    part. The configuration is :meth:`numerate.train.Training.description`; :attr:`name` is the key as people type it.
    """

    config: str
    seed: int

    @property
    def name(self) -> str:
        """How ``numerate show`` knows the run: the first digits of the hash, '-' and the seed."""
        return f"{self.config!s:.10}-{self.seed}"


@dataclass(frozen=True, eq=False)
class Row:
    """One finished run. Two rows are equal if their results and names are, bit for bit; provenance does not count.

    Args:
        experiment: the experiment that trained it.
        config: everything that decides the result beside the seed, as plain JSON values.
        seed: of the run.
        labels: what tables and pictures group by: ``{"unit": "NMU", "operation": "mul", "range": [1, 2]}``.
        status: ``finished`` or ``diverged``; a run that diverged says at which step and why.
        stopped_at: the step at which a run diverged.
        reason: why it diverged.
        curves: one array each over the evaluation points: ``steps``, ``validation``, ``test``, ``sparsity``.
        scores: single numbers: ``threshold``, and after rounding the weights ``snapped_test`` and so on.
        weights: moment (``final``, ``best``) -> name -> array.
        provenance: how, where and when it was done.
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
    provenance: Provenance = field(default_factory=Provenance)

    def __post_init__(self) -> None:
        for name, mapping in (("config", self.config), ("labels", self.labels)):
            if not isinstance(mapping, Mapping):
                raise TypeError(f"{name} must map names to values, got {mapping!r}")
        for name, text in (("experiment", self.experiment), ("reason", self.reason)):
            if not isinstance(text, str):
                raise TypeError(f"{name} must be text, got {text!r}")
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
        return Key(hash_text(self.config_text), operator.index(self.seed))

    @cached_property
    def config_text(self) -> str:
        """The configuration as it is stored."""
        return canonical(self.config)

    @cached_property
    def result(self) -> StoredResult:
        """The result as it is stored."""
        flat = {f"{moment}/{name}": w for moment, named in self.weights.items() for name, w in named.items()}
        stopped = None if self.stopped_at is None else operator.index(self.stopped_at)
        scores = encode_scores(self.scores)
        return self.config_text, self.status, stopped, self.reason, pack(self.curves), scores, pack(flat)

    @cached_property
    def digest(self) -> str:
        """A hash of key and result, whatever the run is called; equal digests mean equal results."""
        return digest_of((*self.key, *self.result))

    def stored_weights(self, moment: str) -> Mapping[str, Array]:
        """Name -> array, ``best`` or ``final``. Raises ValueError if the run was stored without them."""
        if moment not in self.weights:
            raise ValueError(
                f"the run {self.key.name} was stored without its {moment} weights, which are needed here; "
                "import a file that has them, or train it into another folder (--out)"
            )
        return self.weights[moment]

    def points(self) -> Iterator[tuple[int, dict[str, float]]]:
        """(step, curve -> value) at each evaluation, for a tracker of experiments; what is not finite is left out."""
        curves = {name: np.atleast_1d(values) for name, values in self.curves.items() if name != "steps"}
        for place, step in enumerate(np.atleast_1d(self.curves.get("steps", ()))):
            values = {name: float(curve[place]) for name, curve in curves.items()}
            yield int(step), {name: value for name, value in values.items() if np.isfinite(value)}

    @property
    def circumstances(self) -> Provenance:
        """The former name of :attr:`provenance`."""
        return self.provenance

    def spelled(self, config_text: str) -> Self:
        """This row, whose configuration is known to be stored as ``config_text``; spelling it again takes long."""
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
        """The test error below which the run counts as solved. Raises ValueError if it has none."""
        if "threshold" not in self.scores:
            raise ValueError(f"this run of {self.experiment} has no threshold among its scores: {sorted(self.scores)}")
        return self.scores["threshold"]


def _whole(name: str, value: object) -> None:
    """Raise unless an SQLite file holds ``value`` as a whole number."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{name} must be a whole number of at most 64 bits, got {number}")
