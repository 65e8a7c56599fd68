"""What is noted of every update: means for the curves, and the update at which a run is solved."""

from collections.abc import Mapping

import numpy as np

from numerate.results.arrays import Array


class Log:
    """Of S runs, between two evaluations; it goes into a checkpoint as arrays.

    Args:
        runs: how many.
        window: updates whose mean loss is compared with the thresholds.
        thresholds: (S,), mean loss below which a run is solved; NaN: never by its training loss.
    """

    def __init__(self, runs: int, window: int, thresholds: np.ndarray) -> None:
        self.window, self.thresholds = window, thresholds
        self.tail = np.full((runs, window), np.inf)  # the last losses; fewer than a window of them solve nothing
        self.solved = np.full(runs, np.nan)
        self.last_norm = np.full(runs, np.nan)
        self._clear()

    def _clear(self) -> None:
        runs = len(self.solved)
        self.losses, self.norms = np.zeros((runs, 0), np.float32), np.zeros((runs, 0), np.float32)
        self.count = np.zeros(runs, np.int64)

    def add(self, start: int, losses: np.ndarray, norms: np.ndarray, until: np.ndarray) -> None:
        """Note updates from ``start`` on.

        Args:
            start: number of the first.
            losses, norms: (updates, S).
            until: (S,), the first update that a run does not take any more.
        """
        self.losses = np.concatenate((self.losses, losses.T), 1)
        self.norms = np.concatenate((self.norms, norms.T), 1)
        taken = np.clip(until - start, 0, len(losses)).astype(np.int64)
        self.count += taken
        for s in map(int, np.flatnonzero(taken)):
            self._look(s, start, losses[: taken[s], s].astype(float))
            self.last_norm[s] = norms[taken[s] - 1, s]

    def _look(self, s: int, start: int, losses: np.ndarray) -> None:
        """Whether a run is solved by these losses and those before."""
        line = np.concatenate((self.tail[s], losses))
        self.tail[s] = line[-self.window :]
        if np.isfinite(self.solved[s]) or np.isnan(self.thresholds[s]):
            return
        with np.errstate(invalid="ignore"):
            means = np.lib.stride_tricks.sliding_window_view(line, self.window)[1:].mean(-1)
        below = np.flatnonzero(means < self.thresholds[s])
        if len(below):
            self.solved[s] = start + below[0] + 1

    def read(self) -> dict[str, np.ndarray]:
        """Means since the last call: ``train``, ``gradient_norm``, and the largest norm, ``gradient_peak``; (S,).

        They are taken of all updates at once, so that they do not depend on where training paused in between.
        """
        pairs = [(self.losses[s, :n].astype(float), self.norms[s, :n].astype(float)) for s, n in enumerate(self.count)]
        with np.errstate(over="ignore", invalid="ignore"):
            means = np.array([(a.mean(), b.mean(), b.max()) if len(a) else (np.nan,) * 3 for a, b in pairs])
        self._clear()
        return dict(zip(("train", "gradient_norm", "gradient_peak"), means.T.astype(np.float32)))

    _KEPT = ("tail", "solved", "last_norm", "losses", "norms", "count")

    def arrays(self) -> dict[str, Array]:
        """All that a later process needs to go on."""
        return {f"log/{name}": getattr(self, name) for name in self._KEPT}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        for name in self._KEPT:
            setattr(self, name, np.array(arrays[f"log/{name}"]))
