"""Which runs go together: pieces of one form, as large as their measured cost allows; what is lost is tried again.

A piece that is lost twice is cut into smaller ones, and those again, until the run that kills its workers is alone.
Lost three times alone, it has failed; its neighbours are finished by then.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from numerate.results import Checkpoint, Key
from numerate.train.networks.specification import NetworkRun
from numerate.train.stack import Run

TRIES = 3
"""How often a run may lose its worker, alone."""
WHOLE_TRIES = 2
"""How often a piece of several runs may, before it is cut."""
PARTS = 4
BLAMELESS_TRIES = 20
"""Machines that may be lost with a piece before that counts against it."""
GROWTH = 4
"""A piece has at most so many times the runs of the largest that was measured."""


@dataclass
class Piece:
    """Runs that one worker trains as one stack."""

    form: "Form"
    runs: dict[Key, Run | NetworkRun]
    lost: int = 0
    blameless: int = 0
    checkpoint: tuple[str, Checkpoint] | None = None
    reasons: list[str] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Of all runs, together."""
        return sum(run.training.steps for run in self.runs.values())

    @property
    def steps_done(self) -> int:
        return self.checkpoint[1].meta["step"] * len(self.runs) if self.checkpoint else 0


@dataclass
class Form:
    """The runs of one form that wait.

    Args:
        waiting: runs in no piece yet.
        most: how many a piece may have, for memory.
        fewest: below this a piece takes as long as with this many.
    """

    waiting: dict[Key, Run | NetworkRun]
    most: int
    fewest: int
    step_seconds: float | None = None
    """Measured cost of one step of one run, in a piece of ``measured`` runs."""
    measured: int = 0

    @property
    def work(self) -> int:
        return sum(run.training.steps for run in self.waiting.values())

    def learn(self, piece: Piece, steps: int, seconds: float) -> None:
        """Note what a worker needed for ``steps`` steps of all runs together; the last measurements count most."""
        if steps <= 0 or seconds <= 0:
            return
        cost, runs = seconds / steps, len(piece.runs)
        if self.step_seconds is None or runs > self.measured:  # a larger piece tells more
            self.step_seconds, self.measured = cost, runs
        elif runs == self.measured:
            self.step_seconds = 0.7 * self.step_seconds + 0.3 * cost

    def size(self, seconds: float, slots: int) -> int:
        """Runs of the next piece: for about ``seconds``, or fewer so that every worker gets some."""
        example = next(iter(self.waiting.values())).training
        if self.step_seconds is None:
            size = self.fewest
        else:
            wanted = seconds / (self.step_seconds * example.steps)
            size = int(min(wanted, GROWTH * self.measured))
        share = -(-len(self.waiting) // max(1, slots))
        return max(1, min(max(self.fewest, min(size, share)), self.most, len(self.waiting)))

    def expected_seconds(self, piece: Piece) -> float | None:
        return None if self.step_seconds is None else self.step_seconds * (piece.steps - piece.steps_done)


class Pieces:
    """All that is to be trained.

    Args:
        forms: runs of each form, and how many of them memory allows in one piece.
        fewest: see :class:`Form`.
        seconds: how long a piece should take.
    """

    def __init__(
        self, forms: Iterable[tuple[Mapping[Key, Run | NetworkRun], int]], fewest: int, seconds: float
    ) -> None:
        self.forms = [Form(dict(runs), most, min(fewest, most)) for runs, most in forms if runs]
        self.forms.sort(key=lambda form: -form.work)  # the longest first: the last piece is then a short one
        self.seconds = seconds
        self.again: deque[Piece] = deque()

    def take(self, keys: Collection[Key]) -> Piece | None:
        """A piece of these runs; None if they are not all waiting."""
        for form in self.forms:
            if keys and all(key in form.waiting for key in keys):
                return Piece(form, {key: form.waiting.pop(key) for key in keys})
        return None

    def resume(self, name: str, checkpoint: Checkpoint, keys: Collection[Key]) -> None:
        """Make a piece of runs whose state an earlier driver kept, if they all wait."""
        if piece := self.take(keys):
            self.paused(piece, name, checkpoint)

    def next(self, slots: int) -> Piece | None:
        """The next piece, if any run waits."""
        if self.again:
            return self.again.popleft()
        form = next((form for form in self.forms if form.waiting), None)
        if form is None:
            return None
        keys = list(islice(form.waiting, form.size(self.seconds, slots)))
        return Piece(form, {key: form.waiting.pop(key) for key in keys})

    def put_back(self, piece: Piece) -> None:
        self.again.append(piece)

    def lose(self, piece: Piece, reason: str, blameless: bool = False) -> dict[Key, str]:
        """Take a piece back whose reply never came, or that failed; the runs that are given up, and why."""
        piece.reasons.append(reason)
        if blameless and piece.blameless < BLAMELESS_TRIES:
            piece.blameless += 1
            self.again.append(piece)
            return {}
        piece.lost += 1
        if piece.lost < (TRIES if len(piece.runs) == 1 else WHOLE_TRIES):
            self.again.append(piece)
            return {}
        if len(piece.runs) == 1:
            (key,) = piece.runs
            return {key: f"given up after {TRIES} tries: {reason}"}
        self.again.extend(self._parts(piece))
        return {}

    def _parts(self, piece: Piece) -> Iterable[Piece]:
        """Smaller pieces; each is under suspicion, so that it is cut again when it is lost once more."""
        items = list(piece.runs.items())
        size = -(-len(items) // PARTS)
        for start in range(0, len(items), size):
            part = dict(items[start : start + size])
            yield Piece(piece.form, part, lost=0 if len(part) == 1 else WHOLE_TRIES - 1)

    def paused(self, piece: Piece, name: str, checkpoint: Checkpoint) -> None:
        """Take a piece back whose time was up, to go on with its state."""
        piece.checkpoint, piece.lost, piece.blameless = (name, checkpoint), 0, 0
        self.again.append(piece)
