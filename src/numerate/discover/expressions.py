"""Expressions as nested tuples: values and derivatives by numpy, formulas by sympy.

("x", i)            input i
("c", v)            a constant that may be refitted
("k", v)            a constant that belongs to the structure
("add", a, b, ...)  ("mul", a, b, ...)
("pow", a, q)       a fixed rational power, q a Fraction
("power", a, b)     a to the power of another expression, a > 0
("sin", a) ...      the functions of UNARY
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

from numerate.discover.clock import check_time

Tree = tuple[Any, ...]

UNARY = {
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "cosh": np.cosh,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "abs": np.abs,
}
DERIVATIVE = {  # of f at a, given a and f(a)
    "sin": lambda a, f: np.cos(a),
    "cos": lambda a, f: -np.sin(a),
    "tan": lambda a, f: 1 + f * f,
    "exp": lambda a, f: f,
    "log": lambda a, f: 1 / a,
    "tanh": lambda a, f: 1 - f * f,
    "cosh": lambda a, f: np.sinh(a),
    "sinh": lambda a, f: np.cosh(a),
    "sqrt": lambda a, f: 0.5 / f,
    "asin": lambda a, f: 1 / np.sqrt(1 - a * a),
    "acos": lambda a, f: -1 / np.sqrt(1 - a * a),
    "atan": lambda a, f: 1 / (1 + a * a),
    "abs": lambda a, f: np.sign(a),
}
_SYMPY = {name: getattr(sp, name) for name in UNARY if name != "abs"} | {"abs": sp.Abs}
ONE: Tree = ("k", 1.0)


def const(value: Any) -> Tree:
    return ("c", float(value))


def fixed(value: float) -> Tree:
    return ("k", float(value))


def var(i: int) -> Tree:
    return ("x", i)


def add(*terms: Tree) -> Tree:
    return ("add", *terms) if len(terms) != 1 else terms[0]


def mul(*factors: Tree) -> Tree:
    return ("mul", *factors) if len(factors) != 1 else factors[0]


def power(base: Tree, exponent: Fraction | int) -> Tree:
    return base if exponent == 1 else ("pow", base, Fraction(exponent))


def factors_outside(tree: Tree) -> Tree:
    """Positive constants that multiply what is under a root or a power stand before it: √(c x) is √c · √x.

    So that a constant, and its standard error, is the number that the formula shows.
    """
    tree = tuple(factors_outside(part) if isinstance(part, tuple) else part for part in tree)
    if tree[0] not in ("sqrt", "pow") or tree[1][0] != "mul":
        return tree
    constants = [part for part in tree[1][1:] if part[0] == "c"]
    others = [part for part in tree[1][1:] if part[0] != "c"]
    if len(constants) != 1 or not others or constants[0][1] <= 0:
        return tree
    exponent = 0.5 if tree[0] == "sqrt" else float(tree[2])
    return mul(const(constants[0][1] ** exponent), (tree[0], mul(*others), *tree[2:]))


def monomial(parts: Sequence[Tree], exponents: Iterable[Any]) -> Tree:
    """The product of parts[j] ** exponents[j]; 1 when all exponents are zero."""
    check_time()
    factors = [power(p, Fraction(e).limit_denominator(12)) for p, e in zip(parts, exponents) if e]
    return mul(*factors) if factors else ONE


def linear(coefficients: Iterable[float], terms: Iterable[Tree]) -> Tree:
    """The sum of c * term, each coefficient free."""
    return add(*[const(c) if is_one(t) else mul(const(c), t) for c, t in zip(coefficients, terms)])


def is_one(tree: Tree) -> bool:
    return tree[0] in ("c", "k") and tree[1] == 1.0


def raise_to(b: Any, q: Fraction) -> Any:
    """b ** q with real odd roots of negative numbers."""
    if q.denominator == 1:
        return b ** int(q) if q > 0 else 1.0 / b ** int(-q)
    if q == Fraction(1, 2):
        return np.sqrt(b)
    if q.denominator % 2:
        return np.sign(b) ** q.numerator * np.abs(b) ** float(q)
    return b ** float(q)


def value(tree: Tree, X: np.ndarray) -> Any:
    """Values of the tree at the rows of X: (n, d) -> (n,) or a number."""
    kind = tree[0]
    if kind == "x":
        return X[:, tree[1]]
    if kind in ("c", "k"):
        return np.float64(tree[1])  # a pole gives inf, where a Python number would raise
    if kind == "pow":
        return raise_to(value(tree[1], X), tree[2])
    if kind == "power":
        return value(tree[1], X) ** value(tree[2], X)
    if kind in UNARY:
        return UNARY[kind](value(tree[1], X))
    total = value(tree[1], X)
    for other in tree[2:]:
        total = total + value(other, X) if kind == "add" else total * value(other, X)
    return total


def column(tree: Tree, X: np.ndarray) -> np.ndarray:
    """As :func:`value`, always an array of length n."""
    check_time()
    return np.broadcast_to(np.asarray(value(tree, X), float), (len(X),))


def derivatives(tree: Tree, X: np.ndarray, free: Any) -> tuple[Any, dict[int, Any]]:
    """Value and derivative by each constant, with the constants taken from ``free`` in order of appearance."""
    position = -1

    def go(t: Tree) -> tuple[Any, dict[int, Any]]:
        nonlocal position
        kind = t[0]
        if kind == "x":
            return X[:, t[1]], {}
        if kind == "k":
            return np.float64(t[1]), {}
        if kind == "c":
            position += 1
            return np.float64(free[position]), {position: np.float64(1.0)}
        if kind == "pow":
            b, db = go(t[1])
            v = raise_to(b, t[2])
            slope = float(t[2]) * raise_to(b, t[2] - 1) if db else 0.0
            return v, {k: slope * d for k, d in db.items()}
        if kind == "power":
            b, db = go(t[1])
            e, de = go(t[2])
            v = b**e
            return v, {k: v * e / b * d for k, d in db.items()} | {k: v * np.log(b) * d for k, d in de.items()}
        if kind in UNARY:
            a, da = go(t[1])
            v = UNARY[kind](a)
            slope = DERIVATIVE[kind](a, v) if da else 0.0
            return v, {k: slope * d for k, d in da.items()}
        v, dv = go(t[1])
        for other in t[2:]:
            o, do = go(other)
            if kind == "add":
                v, dv = v + o, dv | do
            else:
                dv = {k: d * o for k, d in dv.items()} | {k: v * d for k, d in do.items()}
                v = v * o
        return v, dv

    return go(tree)


def constants(tree: Tree) -> list[float]:
    if tree[0] == "c":
        return [tree[1]]
    return [c for part in tree[1:] if isinstance(part, tuple) for c in constants(part)]


def with_constants(tree: Tree, values: Iterable[Any]) -> Tree:
    supply = iter(values)

    def go(t: Tree) -> Tree:
        return const(next(supply)) if t[0] == "c" else tuple(go(s) if isinstance(s, tuple) else s for s in t)

    return go(tree)


def shape(tree: Tree) -> Tree:
    """The tree without the values of its constants: equal for two fits of one form."""
    return with_constants(tree, [0.0] * len(constants(tree)))


def size(tree: Tree) -> int:
    """Number of nodes, sums and products counted as binary."""
    kind = tree[0]
    if kind in ("x", "c", "k"):
        return 1
    children = sum(size(s) for s in tree[1:] if isinstance(s, tuple))
    return children + (len(tree) - 2 if kind in ("add", "mul") else 1)


def inputs(tree: Tree) -> set[int]:
    if tree[0] == "x":
        return {tree[1]}
    return set().union(*[inputs(s) for s in tree[1:] if isinstance(s, tuple)])


def functions(tree: Tree) -> set[str]:
    own = {tree[0]} if tree[0] in UNARY else set()
    if tree[0] == "pow" and tree[2].denominator > 1:
        own = {"sqrt"}
    return own.union(*[functions(s) for s in tree[1:] if isinstance(s, tuple)])


def substitute(tree: Tree, parts: Sequence[Any]) -> Tree:
    """The inputs of the tree replaced by the trees in parts."""
    if tree[0] == "x":
        return parts[tree[1]]
    return tuple(substitute(s, parts) if isinstance(s, tuple) else s for s in tree)


def to_sympy(tree: Tree, symbols: Sequence[sp.Expr], numbers: Any = sp.Float) -> sp.Expr:
    """The formula; ``numbers`` turns a float into a sympy number."""
    kind = tree[0]
    if kind == "x":
        return symbols[tree[1]]
    if kind in ("c", "k"):
        return numbers(tree[1])
    if kind == "pow":
        return to_sympy(tree[1], symbols, numbers) ** sp.Rational(tree[2].numerator, tree[2].denominator)
    arguments = [to_sympy(s, symbols, numbers) for s in tree[1:]]
    if kind == "power":
        return sp.Pow(*arguments)
    if kind in UNARY:
        return _SYMPY[kind](arguments[0])
    return sp.Add(*arguments) if kind == "add" else sp.Mul(*arguments)
