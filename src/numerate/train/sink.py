"""Where training puts its runs: a results file, or memory where the runs are sent elsewhere."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from numerate.results import Checkpoint, Key, Row
from numerate.results.arrays import Array


class RunSink(Protocol):
    """What :func:`numerate.train.train` asks of a :class:`numerate.results.Store`; see there."""

    def transaction(self) -> AbstractContextManager[None]: ...

    def add(self, rows: Iterable[Row], /) -> Any: ...

    def share(self, experiment: str, labels: Mapping[Key, Mapping[str, Any]], /) -> None: ...

    def drop_damaged(self, keys: Iterable[Key], /) -> list[Key]: ...

    def missing(self, keys: Iterable[Key], /) -> list[Key]: ...

    def checkpoint(self, name: str, arrays: Mapping[str, Array], meta: Mapping[str, Any] | None = None, /) -> None: ...

    def load_checkpoint(self, name: str, /) -> Checkpoint | None: ...

    def drop_checkpoint(self, name: str, /) -> None: ...

    def checkpoints(self) -> list[str]: ...


def fits(saved: Mapping[str, Array], expected: Mapping[str, Any]) -> bool:
    """Whether a saved state has all that is expected: names with the shape of the value, or with any if it is None."""
    return all(
        name in saved and (value is None or tuple(saved[name].shape) == tuple(value.shape))
        for name, value in expected.items()
    )


class InMemory:
    """A sink for the time of one call.

    Args:
        saved: states of groups to continue from, by name.
    """

    def __init__(self, saved: Mapping[str, Checkpoint] | None = None) -> None:
        self.rows: list[Row] = []
        self.saved = dict(saved or {})

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    def add(self, rows: Iterable[Row]) -> None:
        self.rows += rows

    def share(self, experiment: str, labels: Mapping[Key, Mapping[str, Any]]) -> None:
        """Nothing: no run is here before it is trained."""

    def drop_damaged(self, keys: Iterable[Key]) -> list[Key]:
        return []

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        present = {row.key for row in self.rows}
        return [key for key in keys if key not in present]

    def checkpoint(self, name: str, arrays: Mapping[str, Array], meta: Mapping[str, Any] | None = None) -> None:
        self.saved[name] = Checkpoint({key: value.copy() for key, value in arrays.items()}, dict(meta or {}))

    def load_checkpoint(self, name: str) -> Checkpoint | None:
        return self.saved.get(name)

    def drop_checkpoint(self, name: str) -> None:
        self.saved.pop(name, None)

    def checkpoints(self) -> list[str]:
        return list(self.saved)
