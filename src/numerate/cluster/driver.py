"""The driver: sends pieces of work to an engine, and alone writes the results file.

A run is known by its key, and a stored one is never overwritten: whatever is lost, sent twice or answered twice, each
run is stored once, and its result does not depend on who trained it beside which others.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from numerate.cluster.engine import Engine, Finished
from numerate.cluster.messages import Order, Reply
from numerate.cluster.pieces import Piece, Pieces
from numerate.devices import kind_of
from numerate.results import Key, Row, Store, unpack_rows
from numerate.results.outcome import judge
from numerate.train.backends import BACKENDS
from numerate.train.networks.specification import NetworkTraining
from numerate.train.plain import to_text
from numerate.train.progress import Progress
from numerate.train.specification import Training
from numerate.train.stack import shown_name
from numerate.train.trainer import alike, claim, drop_finished

log = logging.getLogger("numerate")
BATCH = 64
"""Replies that are written to the disk together."""
HEARTBEAT = 1.0
"""Seconds between two looks at how many workers there are."""
SLICE = 2.0
"""A worker sends back the state of a piece that takes so many times longer than it should."""


class Refused(ValueError):
    """No worker may train: they have other versions than the driver."""


@dataclass(frozen=True)
class How:
    """How workers train: see :func:`numerate.train.train`."""

    backend: str = "auto"
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {self.backend!r}")
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")
        kind_of(self.device)


def train_on(
    engine: Engine,
    trainings: Sequence[Training | NetworkTraining],
    store: Store,
    *,
    experiment: str = "",
    how: How | None = None,
    progress: Callable[[Progress], None] | None = None,
    seconds: float | None = None,
) -> dict[Key, str]:
    """Train every run that ``store`` does not hold yet on the workers of ``engine``; the rows are those of ``train``.

    Runs that could not be trained are returned with the reason, and noted in the store; the next call tries them again.
    After ``seconds`` no more is sent or waited for: what workers have under way is done again by the next call.
    """
    driver = _Driver(engine, trainings, store, experiment, how or How(), progress)
    driver.end = None if seconds is None else time.perf_counter() + seconds
    driver.run()
    drop_finished(store)
    return driver.failed


class _Driver:
    def __init__(
        self,
        engine: Engine,
        trainings: Sequence[Training | NetworkTraining],
        store: Store,
        experiment: str,
        how: How,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.engine, self.store, self.experiment, self.how, self.tell = engine, store, experiment, how, progress
        runs, missing = claim(trainings, store, experiment)
        left = alike({key: run for key, run in runs.items() if key in missing}, how.device)
        self.pieces = Pieces(left, kind_of(how.device).stacked_members[0], engine.seconds)
        waiting = {id(run.training): run.training for form in self.pieces.forms for run in form.waiting.values()}
        self.texts = {name: to_text(training) for name, training in waiting.items()}
        self.under_way: dict[int, tuple[Piece, float]] = {}
        self.failed: dict[Key, str] = {}
        self.refusal = ""
        self.end: float | None = None
        self.submitted = self.trained = self.solved = self.steps_done = 0
        self.total, self.before = len(runs), len(runs) - len(missing)
        self.steps = max(1, sum(form.work for form in self.pieces.forms))
        self.started, self.label, self.backend = time.perf_counter(), "", how.backend
        self._resume()

    def _resume(self) -> None:
        """Take in what was sent to a driver that was killed, and go on with the pieces whose state it kept."""
        for data in self.engine.leftovers():
            try:
                reply = Reply.from_bytes(data)
                piece = self.pieces.take({row.key for row in unpack_rows(reply.body)}) if reply.kind == "rows" else None
                if piece:
                    self._rows(piece, reply)
            except (ValueError, LookupError, TypeError):
                continue  # cut off, or of another version
        for name in self.store.checkpoints():
            if checkpoint := self.store.load_checkpoint(name):
                self.pieces.resume(name, checkpoint, [Key(*key) for key in checkpoint.meta.get("keys", ())])

    def run(self) -> None:
        while not self._time_is_up() and (self._submit() or self.under_way):
            if batch := list(islice(self.engine.as_completed(HEARTBEAT), BATCH)):
                with self.store.transaction():  # waiting for the disk takes longer than all the rest
                    for finished in batch:
                        self._take(finished)
            if self.refusal:  # what others sent is stored
                raise Refused(self.refusal)
            self._show()

    def _time_is_up(self) -> bool:
        return self.end is not None and time.perf_counter() >= self.end

    def _submit(self) -> bool:
        """Give every worker something to do; whether anything was sent."""
        slots, before = self.engine.slots(), self.submitted
        while len(self.under_way) < max(1, slots) and (piece := self.pieces.next(slots)):
            self.submitted += 1
            self.under_way[self.submitted] = piece, time.perf_counter()
            self.engine.submit(self.submitted, self._order(piece).to_bytes())
        return self.submitted > before

    def _order(self, piece: Piece) -> Order:
        texts: dict[str, int] = {}
        runs = [(texts.setdefault(self.texts[id(r.training)], len(texts)), r.seed) for r in piece.runs.values()]
        how, seconds = self.how, SLICE * self.engine.seconds
        return Order(
            self.experiment,
            list(texts),
            runs,
            how.backend,
            how.device,
            how.threads,
            seconds,
            os.getcwd(),
            checkpoint=piece.checkpoint,
        )

    # Replies

    def _take(self, finished: Finished) -> None:
        piece, _ = self.under_way.pop(finished.number, (None, 0.0))
        if piece is None:  # answered twice
            return
        if finished.data is None:
            self._lose(piece, finished.reason, finished.blameless)
            return
        try:
            reply = Reply.from_bytes(finished.data)
            for notice in reply.notices:
                _say(notice)
            {"rows": self._rows, "paused": self._paused, "refused": self._refused, "failed": self._failed}[reply.kind](
                piece, reply
            )
        except _Garbled as error:
            self._lose(piece, str(error))

    def _rows(self, piece: Piece, reply: Reply) -> None:
        rows = _unpacked(reply.body, piece)
        with self.store.transaction():
            self.store.add(rows)
            if piece.checkpoint:
                self.store.drop_checkpoint(piece.checkpoint[0])
        piece.form.learn(piece, piece.steps - piece.steps_done, reply.seconds)
        self.trained += len(rows)
        self.solved += sum(judge(row).solved for row in rows)
        self.steps_done += piece.steps
        example = rows[0]
        self.backend = example.provenance.backend
        self.label = " ".join(str(value) for name, value in example.labels.items() if name != "range")

    def _paused(self, piece: Piece, reply: Reply) -> None:
        try:
            name, checkpoint = reply.checkpoint or ("", None)
        except (ValueError, LookupError, AttributeError) as error:
            raise _Garbled(str(error)) from error
        if checkpoint is None:
            raise _Garbled("a worker sent no state")
        before = piece.steps_done
        self.store.checkpoint(name, checkpoint.arrays, checkpoint.meta)
        self.pieces.paused(piece, name, checkpoint)
        piece.form.learn(piece, piece.steps_done - before, reply.seconds)

    def _refused(self, piece: Piece, reply: Reply) -> None:
        """A worker of other versions gets no more work; without any other, nothing can be trained."""
        sentence = f"the worker on {reply.where} is not used: it has {reply.sentence}"
        if not self.engine.exclude(reply.node) or not self.engine.slots():
            self.refusal = sentence
        else:
            _say(sentence)
        self.pieces.put_back(piece)

    def _failed(self, piece: Piece, reply: Reply) -> None:
        self._lose(piece, f"{reply.sentence} (on {reply.where})")

    def _lose(self, piece: Piece, reason: str, blameless: bool = False) -> None:
        for key, why in self.pieces.lose(piece, reason, blameless).items():
            run = piece.runs[key]
            self.store.fail(key, self.experiment, run.training.labels, why)
            self.failed[key] = why
            self.steps_done += run.training.steps
            log.warning("the run %s (%s, seed %d) has failed: %s", key.name, shown_name(run.training), key.seed, why)

    # Progress

    def _show(self) -> None:
        if not self.tell:
            return
        now = time.perf_counter()
        fraction = min(1.0, (self.steps_done + sum(self._estimated(*p, now) for p in self._unfinished())) / self.steps)
        self.tell(
            Progress(
                self.before + self.trained,
                self.total,
                self.solved,
                self.trained,
                fraction,
                now - self.started,
                self.label,
                self.backend,
                max(self.engine.slots(), len(self.under_way)),
                len(self.under_way),
            )
        )

    def _unfinished(self) -> list[tuple[Piece, float | None]]:
        return [*self.under_way.values(), *((piece, None) for piece in self.pieces.again)]

    def _estimated(self, piece: Piece, since: float | None, now: float) -> float:
        """Steps that a piece has probably done."""
        expected = piece.form.expected_seconds(piece)
        if since is None or not expected:
            return piece.steps_done
        return piece.steps_done + min(0.95, (now - since) / expected) * (piece.steps - piece.steps_done)


class _Garbled(ValueError):
    """A reply that is not what a worker sends."""


def _unpacked(data: bytes, piece: Piece) -> list[Row]:
    """The rows of exactly the runs of a piece."""
    try:
        rows = unpack_rows(data)
    except ValueError as error:
        raise _Garbled(str(error)) from error
    if len(rows) != len(piece.runs) or {row.key for row in rows} != piece.runs.keys():
        raise _Garbled(f"a worker answered with {len(rows)} runs that are not the {len(piece.runs)} it was sent")
    return rows


_said: set[str] = set()


def _say(text: str) -> None:
    """Once per process."""
    if text not in _said:
        _said.add(text)
        log.warning(text)
