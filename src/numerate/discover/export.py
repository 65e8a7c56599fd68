"""A formula as text, as program code and as a module: LaTeX, MathML, Python, C, torch."""

import html
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
from sympy.printing.mathml import MathMLPresentationPrinter
from sympy.printing.numpy import NumPyPrinter
from sympy.printing.pytorch import TorchPrinter

DIGITS = 6
"""Digits of a free constant where a formula is shown; code has all of them."""

LANGUAGES = ("python", "c", "torch")
RESERVED = {
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
    "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
    "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "sin", "cos",
    "tan", "exp", "log", "sqrt", "pow", "fabs", "asin", "acos", "atan", "sinh", "cosh", "tanh", "formula", "np",
    "numpy", "torch", "math", "M_PI", "M_E",
}  # fmt: skip


def replaced(expression: sympy.Expr, by: Mapping[Any, Any]) -> Any:
    """The expression with parts replaced by others."""
    return expression.xreplace(by)


def rounded(expression: sympy.Expr, digits: int = DIGITS) -> sympy.Expr:
    """The formula as it is shown: free constants to ``digits`` digits, exact ones as they are."""
    short = {each: sympy.Float(str(each.evalf(digits)), digits) for each in expression.atoms(sympy.Float)}
    return replaced(expression, short)


def text(expression: sympy.Expr, digits: int = DIGITS) -> str:
    """One line, as Python writes it."""
    return str(rounded(expression, digits))


def latex(expression: sympy.Expr, digits: int = 17) -> str:
    """LaTeX in which names of more than one letter are upright words."""
    names = {symbol: _latex_name(symbol.name) for symbol in _symbols(expression)}
    return sympy.latex(rounded(expression, digits), symbol_names=names)


def _symbols(expression: sympy.Expr) -> list[sympy.Symbol]:
    return sorted(expression.atoms(sympy.Symbol), key=lambda symbol: symbol.name)


def _latex_name(name: str) -> str:
    if len(name) == 1:
        return name
    if match := re.fullmatch(r"([A-Za-z])_?(\d+)", name):
        return f"{match[1]}_{{{match[2]}}}"
    escaped = re.sub(r"([_%&#$])", r"\\\1", name).replace("^", r"\text{\^{}}")
    return rf"\mathrm{{{escaped}}}".replace(" ", r"\ ")


class _MathML(MathMLPresentationPrinter):
    """Names stay words; x1 has an index."""

    def _print_Symbol(self, sym: Any, style: str = "plain") -> Any:
        index = re.fullmatch(r"([A-Za-z])_?(\d+)", sym.name)
        if not index:
            return self._leaf("mi", sym.name)
        both = self.dom.createElement("msub")
        both.appendChild(self._leaf("mi", index[1]))
        both.appendChild(self._leaf("mn", index[2]))
        return both

    def _leaf(self, kind: str, content: str) -> Any:
        leaf = self.dom.createElement(kind)
        leaf.appendChild(self.dom.createTextNode(html.escape(content)))  # sympy prints text as it is
        return leaf

    _print_Dummy = _print_Symbol


def mathml(target: str, expression: sympy.Expr, relation: str = "=", digits: int = DIGITS) -> str:
    """``target = expression`` for a page: every browser typesets it, nothing is fetched."""
    left, right = (_plain(_MathML().doprint(each)) for each in (sympy.Symbol(target), rounded(expression, digits)))
    label = html.escape(f"{target} {relation} {text(expression, digits)}")
    equals = f"<mo>{relation}</mo>"
    return f'<math displaystyle="true" aria-label="{label}"><mrow>{left}{equals}{right}</mrow></math>'


def _plain(source: str) -> str:
    """An ordinary e, and a thin space between factors, which may be words."""
    return source.replace("&ExponentialE;", "e").replace("<mo>&InvisibleTimes;</mo>", '<mspace width="0.17em"/>')


def identifiers(names: Sequence[str]) -> dict[str, str]:
    """Column name -> a name that Python and C take, all different."""
    taken: dict[str, str] = {}
    for name in names:
        word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "x"
        word = f"x_{word}" if word[0].isdigit() else word
        word = f"{word}_" if keyword.iskeyword(word) or word in RESERVED else word
        while word in taken.values():
            word += "_"
        taken[name] = word
    return taken


def code(expression: sympy.Expr, names: Sequence[str], language: str = "python", function: str = "formula") -> str:
    """A function of the inputs in order, in Python (NumPy), C or torch.

    Args:
        expression: The formula; its symbols are among ``names``.
        names: The inputs. Names that are no identifiers are changed into some.
        language: python, c or torch.
        function: What the function is called.
    """
    if language not in LANGUAGES:
        raise ValueError(f"code is written in {', '.join(LANGUAGES)}, not in {language!r}")
    words = identifiers(names)
    named = replaced(expression, {sympy.Symbol(name): sympy.Symbol(word) for name, word in words.items()})
    renamed = [f"{word}: {_harmless(name)}" for name, word in words.items() if word != name]
    return {"python": _python, "c": _c, "torch": _torch}[language](named, list(words.values()), function, renamed)


def _harmless(name: str) -> str:
    """A column's name that cannot end the comment it stands in."""
    return re.sub(r"[^\w .,()\[\]+-]", "?", name)


def _python(expression: sympy.Expr, words: Sequence[str], function: str, renamed: Sequence[str]) -> str:
    body = str(NumPyPrinter({"fully_qualified_modules": False, "allow_unknown_functions": True}).doprint(expression))
    used = sorted(set(re.findall(r"[A-Za-z_]\w*", body)) & _NUMPY)
    imports = f"from numpy import {', '.join(used)}\n\n\n" if used else ""
    note = f'    """{"; ".join(renamed)}"""\n' if renamed else ""
    return f"{imports}def {function}({', '.join(words)}):\n{note}    return {body}\n"


_NUMPY = {
    "sin", "cos", "tan", "exp", "log", "sqrt", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh",
    "arccosh", "arctanh", "pi", "e", "sign", "cbrt", "maximum", "minimum",
}  # fmt: skip


def _torch(expression: sympy.Expr, words: Sequence[str], function: str, renamed: Sequence[str]) -> str:
    body = TorchPrinter().doprint(folded(expression))
    note = f'    """{"; ".join(renamed)}"""\n' if renamed else ""
    return f"import torch\n\n\ndef {function}({', '.join(words)}):\n{note}    return {body}\n"


def _c(expression: sympy.Expr, words: Sequence[str], function: str, renamed: Sequence[str]) -> str:
    note = f"/* {'; '.join(renamed)} */\n" if renamed else ""
    arguments = ", ".join(f"double {word}" for word in words) or "void"
    return f"#include <math.h>\n\n{note}double {function}({arguments}) {{\n    return {sympy.ccode(expression)};\n}}\n"


def folded(expression: Any) -> Any:
    """Every part without symbols that is not rational becomes one number: sqrt(2)*pi*x -> 4.44...*x"""
    if not expression.free_symbols:
        return expression if expression.is_Rational else expression.evalf(17)
    if not expression.args:
        return expression
    if isinstance(expression, sympy.Add | sympy.Mul):
        number, rest = expression.as_independent(*expression.free_symbols, as_Add=expression.is_Add)
        number = number if number.is_Rational else number.evalf(17)
        rest = expression.func(*[folded(each) for each in expression.func.make_args(rest)])
        return expression.func(number, rest)
    return expression.func(*[folded(each) for each in expression.args])


def with_parameters(expression: sympy.Expr) -> tuple[sympy.Expr, dict[sympy.Symbol, float]]:
    """Coefficients, offsets and free exponents as symbols, with their values.

    Ones, signs and exact exponents are the structure of the formula and stay.
    """
    values: dict[sympy.Symbol, float] = {}

    def number(value: sympy.Expr) -> sympy.Expr:
        if value in (sympy.S.One, sympy.S.NegativeOne, sympy.S.Zero) and value.is_Integer:
            return value
        symbol = sympy.Dummy(f"c{len(values)}")
        values[symbol] = float(value)
        return symbol

    def walk(part: Any) -> Any:
        if not part.free_symbols:
            return number(part)
        if not part.args:
            return part
        if isinstance(part, sympy.Add | sympy.Mul):
            constant, rest = part.as_independent(*part.free_symbols, as_Add=part.is_Add)
            constant = part.identity if constant == part.identity else number(constant)
            return part.func(constant, *[walk(each) for each in part.func.make_args(rest)])
        if isinstance(part, sympy.Pow) and part.exp.is_Rational:
            return sympy.Pow(walk(part.base), part.exp)
        return part.func(*[walk(each) for each in part.args])

    return walk(expression), values


def compiled(expression: sympy.Expr, symbols: Sequence[sympy.Symbol], module: str = "numpy") -> Callable[..., Any]:
    """A function of arrays or tensors, one for each symbol."""
    safe = [sympy.Symbol(f"_v{i}") for i in range(len(symbols))]  # a column may be called sin
    return sympy.lambdify(safe, folded(replaced(expression, dict(zip(symbols, safe)))), modules=module)
