"""What the kernels that train and evaluate have in common: a source, and what its examples cost."""

import math
from dataclasses import dataclass
from pathlib import Path

from numerate.loops.cuda.emitter import Emitter
from numerate.loops.form.ir import Map, Statement
from numerate.loops.passes.nests import CHEAP, Nest

BLOCK = 64
"""Threads of a block whose members need no shared memory; several members share one."""
LIGHT, MIDDLING, HEAVY = 50, 100, 200
"""Instructions of one example, roughly: up to which several examples are computed side by side, to hide latencies."""
COSTLY = 8
"""Instructions of a division, root or elementary function, roughly."""


@dataclass(frozen=True)
class Source:
    """A kernel before compilation, and how it wants to be launched."""

    name: str
    text: str
    threads: int
    """Of one member."""
    block: int
    """Threads of one block."""
    shared: int
    """Bytes of shared memory of one block."""
    rows: int = 1
    """Examples that a thread takes at once."""
    tiled: bool = False
    """Whether sums over the batch go through shared memory."""
    side_by_side: int = 1
    """Members that a thread takes at once."""

    @property
    def members(self) -> int:
        """Of one block."""
        return self.block // self.threads * self.side_by_side


def prelude() -> str:
    """The CUDA C++ that all sources start with."""
    return Path(__file__).with_name("prelude.cuh").read_text()


def source_of(name: str, emitter: Emitter, rows: int = 1, side_by_side: int = 1) -> Source:
    block = emitter.threads if emitter.floats else max(emitter.threads, BLOCK)
    head = [f"#define THREADS {emitter.threads}", f"#define BLOCK {block}", prelude()]
    shared = 4 * emitter.floats * (block // emitter.threads)
    text = "\n".join([*head, *emitter.lines, ""])
    return Source(name, text, emitter.threads, block, shared, rows, bool(emitter.tiled), side_by_side)


def work(nests: list[Nest]) -> int:
    """Instructions of one example, roughly."""
    return sum(
        math.prod(nest.loops) * len(list(placed.written_out())) * _cost(placed.statement)
        for nest in nests
        for placed in nest.statements
    )


def _cost(statement: Statement) -> int:
    cheap = not isinstance(statement, Map) or (
        statement.function in CHEAP and statement.function not in ("div", "sqrt")
    )
    return 1 if cheap else COSTLY
