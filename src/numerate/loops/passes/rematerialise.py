"""Recompute a value where that is cheaper than keeping it.

A scan from the end of an array needs all of the array, though it was computed element by element. Where the array comes
from a few cheap operations on values that are in memory anyway, the scan's own loop repeats these.
"""

from collections.abc import Sequence, Set
from dataclasses import replace

from numerate.loops.form.ir import Buffer, Map, Operand, Scan, Statement, View, contiguous, sources
from numerate.loops.form.operations import is_cheap


def rematerialise(statements: Sequence[Statement], kept: Set[Buffer], depth: int) -> list[Statement]:
    """The statements of an example; those whose results only scans from the end would need in memory are repeated.

    ``kept``: values of an example that lie in memory in any case; ``depth``: operations computed again, one upon the
    other, at most.
    """
    writers: dict[Buffer, list[Statement]] = {}
    found: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Scan) and any(stride < 0 for stride in statement.arg.strides):
            again = _Rematerialiser(writers, kept, statement.out.buffer.name)
            if (arg := again.view(statement.arg, depth)) is not None and arg is not statement.arg:
                found += again.statements
                statement = replace(statement, arg=arg)
        found.append(statement)
        writers.setdefault(statement.out.buffer, []).append(statement)
    return found


class _Rematerialiser:
    """Repeats the statements that compute a view."""

    def __init__(self, writers: dict[Buffer, list[Statement]], kept: Set[Buffer], purpose: str) -> None:
        self.writers, self.kept, self.purpose = writers, kept, purpose
        self.statements: list[Statement] = []

    def view(self, view: View, depth: int) -> View | None:
        """A view of a new array that is computed in the order of ``view``, or of the old one if it need not be kept.

        None if that is not possible.
        """
        buffer = view.buffer
        if not buffer.batch or buffer in self.kept or not any(view.strides):
            return view
        writer = self.writers[buffer][0] if len(self.writers.get(buffer, [])) == 1 else None
        if depth == 0 or not isinstance(writer, Map) or not is_cheap(writer.function):
            return None
        if not any(b.batch for b in sources(writer)) or (turned := _turned(writer, view)) is None:
            return None
        args: list[Operand] = []
        for arg in turned.args:
            again = self.view(arg, depth - 1) if isinstance(arg, View) else arg
            if again is None:
                return None
            args.append(again)
        name = f"{buffer.name}_for_{self.purpose}_{len(self.statements)}"
        out = View.whole(Buffer(name, buffer.size, buffer.kind, buffer.level), turned.out.shape)
        self.statements.append(Map(out, writer.function, tuple(args)))
        dense = {abs(old): new for size, old, new in zip(out.shape, turned.out.strides, out.strides) if size > 1}
        return View(out.buffer, view.shape, tuple(dense.get(abs(stride), 0) for stride in view.strides))


def _turned(writer: Map, view: View) -> Map | None:
    """``writer`` with its axes run in the direction of ``view``, which must see all that is written, and it once."""
    out = writer.out
    if sorted(contiguous(out.shape)) != sorted(out.strides) or out.offset:
        return None
    for axis, (size, stride) in enumerate(zip(out.shape, out.strides)):
        if size > 1 and (size, -stride) in zip(view.shape, view.strides):
            args = tuple(a.backwards(axis) if isinstance(a, View) else a for a in writer.args)
            writer = Map(writer.out.backwards(axis), writer.function, args)

    def moves(v: View) -> list[tuple[int, int]]:
        return sorted((size, stride) for size, stride in zip(v.shape, v.strides) if size > 1)

    same = moves(writer.out) == moves(view) and writer.out.offset == view.offset
    return writer if same else None
