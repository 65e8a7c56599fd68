"""Expressions as tapes, the form in which :mod:`numerate.loops.least_squares.tape` fits many at once."""

from collections.abc import Mapping
from fractions import Fraction

from numerate.discover import expressions as ex
from numerate.loops.least_squares.tape import Tape


def to_tape(tree: ex.Tree, held: Mapping[int, float] | None = None) -> Tape:
    """The tree's constants in order of appearance, those in ``held`` (by position) as numbers."""
    return _Writer(held or {}).write(tree)


class _Writer:
    def __init__(self, held: Mapping[int, float]) -> None:
        self.tape, self.held, self.position = Tape(), held, -1

    def write(self, tree: ex.Tree) -> Tape:
        self.place(tree)
        return self.tape

    def place(self, tree: ex.Tree) -> int:
        """Append the tree; where its value is."""
        kind, tape = tree[0], self.tape
        if kind == "x":
            return tape.input(tree[1])
        if kind == "k":
            return tape.number(tree[1])
        if kind == "c":
            self.position += 1
            held = self.held.get(self.position)
            return tape.constant(tree[1]) if held is None else tape.number(held)
        if kind == "pow":
            return self.power(self.place(tree[1]), tree[2])
        if kind == "power":
            return tape.call("pow", self.place(tree[1]), self.place(tree[2]))
        if kind in ex.UNARY:
            return tape.call(kind, self.place(tree[1]))
        place = self.place(tree[1])
        for other in tree[2:]:
            place = tape.call(kind, place, self.place(other))
        return place

    def power(self, base: int, q: Fraction) -> int:
        """base ** q by products and roots where that is possible; odd roots of negative numbers are real."""
        tape = self.tape
        if q < 0:
            below = self.power(base, -q)
            return tape.call("div", tape.number(1.0), below)
        if q.denominator == 1 and q <= 16:
            return self.whole(base, int(q))
        if q.denominator == 2 and q <= 8:
            return self.whole(tape.call("sqrt", base), q.numerator)
        if q.denominator % 2 == 0:
            return tape.call("pow", base, tape.number(float(q)))
        size = tape.call("pow", tape.call("abs", base), tape.number(float(q)))
        return tape.call("mul", self.whole(tape.call("sign", base), q.numerator % 2 or 2), size)

    def whole(self, base: int, n: int) -> int:
        if n == 1:
            return base
        half = self.tape.call("square", self.whole(base, n // 2))
        return self.tape.call("mul", half, base) if n % 2 else half
