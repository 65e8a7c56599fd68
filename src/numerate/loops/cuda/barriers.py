"""Insert barriers into a kernel, where a thread reads what another has written, or overwrites what another may read."""

from collections.abc import Mapping

from numerate.loops.form.ir import Buffer, View, contiguous
from numerate.loops.kernel.form import Barrier, For, If, Reads, Scope, Statement, WillWrite, Wrote
from numerate.loops.passes.distribute import moves, sizes

Pattern = tuple[tuple[int, ...], tuple[int, ...], int]
"""A loop over elements, distributed among threads: its sizes, how far the view moves, and where it begins."""


def insert_barriers(body: list[Statement], memory: Mapping[Buffer, str]) -> list[Statement]:
    """The same statements with the marks (``Reads``, ``Wrote``, ``WillWrite``) replaced by barriers where needed.

    ``memory``: buffers in shared memory -> name of their array.
    """
    return _Barriers(memory).inserted(body)


class _Barriers:
    def __init__(self, memory: Mapping[Buffer, str]) -> None:
        self.memory = memory
        self.written: dict[Buffer, Pattern | None] = {}  # since the last barrier; None: by any thread
        self.read: set[str] = set()  # arrays read since then by threads that do not own the element

    def inserted(self, body: list[Statement]) -> list[Statement]:
        result: list[Statement] = []
        for statement in body:
            if isinstance(statement, Wrote):
                twice = statement.buffer in self.written
                self.written[statement.buffer] = None if twice else statement.pattern
            elif isinstance(statement, WillWrite):
                self.read.add(statement.array)
            elif isinstance(statement, Reads):
                result += self.before(statement)
            else:
                if isinstance(statement, Barrier):
                    self.reset()
                elif isinstance(statement, For | If | Scope):
                    statement.body = self.inserted(statement.body)
                result.append(statement)
        return result

    def reset(self) -> None:
        self.written, self.read = {}, set()

    def before(self, mark: Reads) -> list[Statement]:
        """A barrier, if another thread wrote what is read now, or may still read what is written now."""
        waits = any(self.memory.get(buffer) in self.read or buffer in self.written for buffer in mark.writes)
        read: set[str] = set()
        for view in mark.views:
            pattern = None if mark.out is None else (sizes(mark.out), moves(view, mark.out), view.offset)
            if view.buffer in self.written:
                waits |= pattern is None or pattern != self.written[view.buffer]
            if view.buffer in self.memory and pattern != _own_elements(mark.out):
                read.add(self.memory[view.buffer])
        if waits:
            self.reset()
        self.read |= read
        return [Barrier()] if waits else []


def _own_elements(out: View | None) -> Pattern:
    """A loop over an array as it lies in memory, from its beginning."""
    return ((), (), 0) if out is None else (sizes(out), contiguous(sizes(out)), 0)
