"""A formula as text, read without executing anything: numbers, names, + - * / ** ( ) and the usual functions."""

import ast
import re

import sympy

FUNCTIONS = {
    name: getattr(sympy, name)
    for name in [
        "sqrt",
        "exp",
        "log",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "sign",
        "cbrt",
    ]
} | {
    "abs": sympy.Abs,
    "Abs": sympy.Abs,
    "ln": sympy.log,
    "arctan": sympy.atan,
    "arcsin": sympy.asin,
    "arccos": sympy.acos,
}
OPERATIONS = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}


def parse_formula(text: str) -> sympy.Expr:
    """``"b1*(1 - exp(-b2*x))"`` -> a sympy expression. Raises ValueError at anything that is no formula."""
    try:
        tree = ast.parse(text.strip().replace("^", "**"), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no formula: {error.msg}") from error
    return _read(tree, text)


def _read(node: ast.AST, text: str) -> sympy.Expr:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        written = ast.get_source_segment(text.strip().replace("^", "**"), node) or repr(node.value)
        return sympy.Rational(written) if re.fullmatch(r"[\d.]+", written) else sympy.Float(written)
    if isinstance(node, ast.Name):
        return {"pi": sympy.pi, "E": sympy.E}.get(node.id, sympy.Symbol(node.id))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](_read(node.left, text), _read(node.right, text))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _read(node.operand, text)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
        if node.func.id not in FUNCTIONS:
            raise ValueError(f"{text!r}: the function {node.func.id!r} is not known; there are {', '.join(FUNCTIONS)}")
        return FUNCTIONS[node.func.id](_read(node.args[0], text))
    raise ValueError(f"{text!r} is no formula; write names, numbers, + - * / ** ( ) and functions such as exp(x)")
