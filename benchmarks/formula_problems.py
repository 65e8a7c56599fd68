"""Problems of the formula benchmark: a known formula, data drawn from it, points outside the range.

The tables of Feynman's equations, ODEBench and the classic sets lie in ``data`` beside this file with their licences;
Strogatz's tables (PMLB, ``strogatz_*``) are looked for in the folder that NUMERATE_DATA names.
"""

import csv
import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import sympy as sp

from benchmarks import formula_laws, formula_textbook, formula_unseen

HERE = Path(__file__).parent / "data"
FUNCTIONS = {
    "ln": sp.log, "arcsin": sp.asin, "arccos": sp.acos, "arctan": sp.atan, "pow": sp.Pow, "pi": sp.pi,
    "div": lambda a, b: a / b, "mul": lambda a, b: a * b, "add": lambda a, b: a + b, "sub": lambda a, b: a - b,
    "sqrt": sp.sqrt, "exp": sp.exp, "log": sp.log, "sin": sp.sin, "cos": sp.cos, "tan": sp.tan, "tanh": sp.tanh,
    "asin": sp.asin, "acos": sp.acos, "cot": sp.cot, "Abs": sp.Abs,
}  # fmt: skip


@dataclass
class Problem:
    """truth in symbols x0, x1, ...; X, y without noise; outside: points from a range stretched by 30 %."""

    name: str
    suite: str
    truth: sp.Expr
    X: np.ndarray
    y: np.ndarray
    outside: np.ndarray

    def noisy(self, gamma: float, seed: int) -> np.ndarray:
        """y with noise of gamma times its root mean square."""
        noise = np.random.default_rng((seed, 77)).standard_normal(len(self.y))
        return self.y + gamma * np.sqrt(np.mean(self.y**2)) * noise


def values(truth: sp.Expr, X: np.ndarray) -> np.ndarray:
    f = sp.lambdify(sp.symbols(f"x0:{X.shape[1]}"), truth, "numpy")
    with np.errstate(all="ignore"):
        v = np.broadcast_to(np.asarray(f(*X.T), complex), X.shape[:1])
    return np.where(np.abs(v.imag) < 1e-12 * (1 + np.abs(v.real)), v.real, np.nan)


def parse(text: str, names: list[str]) -> sp.Expr:
    """The formula with its inputs as x0, x1, ...; a name of the inputs hides a function of the same name."""
    return sp.sympify(text, locals=FUNCTIONS | {n: sp.Symbol(f"x{i}") for i, n in enumerate(names)})


def drawn(name: str, suite: str, text: str, ranges: dict[str, tuple[float, float]], seed, n: int) -> Problem:
    """Uniform draws from the ranges; rows where the formula is not real, or beyond 1e100, are left out."""
    truth = parse(text, list(ranges))
    low, high = np.array(list(ranges.values()), float).T
    rng = np.random.default_rng(seed)
    X = rng.uniform(low, high, (4 * n, len(low)))
    y = values(truth, X)
    outside = rng.uniform(low, high + 0.3 * (high - low), (2000, len(low)))
    ok = np.abs(y) < 1e100  # false for what is not a number
    return Problem(name, suite, truth, X[ok][:n], y[ok][:n], outside[np.isfinite(values(truth, outside))][:500])


def feynman(seed: int, n: int = 2000) -> Iterator[Problem]:
    yield from _feynman("FeynmanEquations.csv", "feynman", seed, n)


def bonus(seed: int, n: int = 2000) -> Iterator[Problem]:
    yield from _feynman("BonusEquations.csv", "bonus", seed, n)


def _feynman(file: str, suite: str, seed: int, n: int) -> Iterator[Problem]:
    with (HERE / "feynman" / file).open(encoding="utf-8-sig") as lines:
        for k, row in enumerate(r for r in csv.DictReader(lines) if r["Filename"]):
            inputs = [i for i in range(1, 11) if row.get(f"v{i}_name")]
            ranges = {row[f"v{i}_name"]: (float(row[f"v{i}_low"]), float(row[f"v{i}_high"])) for i in inputs}
            yield drawn(row["Filename"], suite, row["Formula"], ranges, (seed, k), n)


def idle(count: int, seed: int, n: int = 500) -> Iterator[Problem]:
    """Feynman's equations with ``count`` more inputs that have nothing to do with the target."""
    for k, problem in enumerate(feynman(seed, n)):
        span = problem.X.min(), problem.X.max()
        more = [
            np.random.default_rng((seed, k, 5)).uniform(*span, (len(X), count)) for X in (problem.X, problem.outside)
        ]
        X, outside = np.concatenate([problem.X, more[0]], 1), np.concatenate([problem.outside, more[1]], 1)
        yield replace(problem, suite=f"feynman, {count} idle inputs", X=X, outside=outside)


def few(seed: int, n: int = 50) -> Iterator[Problem]:
    """Feynman's equations with 50 rows."""
    return (replace(problem, suite=f"feynman, {n} rows") for problem in feynman(seed, n))


FORMS = (
    "a + b*x0", "a*x0 + b*x1", "a + b*x0*x1", "a*x0 + b*x0**2", "a*x0**b", "a*exp(-b*x0)", "a*exp(-b/x0)",
    "a + b*log(x0)", "a*sin(b*x0)", "a*x0/(b + x0)", "a*x0*x1/(b + x1)", "sqrt(a + b*x0**2)",
)  # fmt: skip


def constants(seed: int, n: int = 300) -> Iterator[Problem]:
    """Forms of everyday laws whose two constants are drawn, log-uniformly from 0.3 to 3: no simple numbers."""
    for k, form in enumerate(FORMS):
        a, b = np.exp(np.random.default_rng((seed, k, 6)).uniform(np.log(0.3), np.log(3), 2))
        text = form.replace("a", f"({a})", 1).replace("b", f"({b})", 1)
        yield drawn(form, "drawn constants", text, {"x0": (1, 5), "x1": (1, 5)}, (seed, k), n)


CLASSIC = (
    "Nguyen",
    "Keijzer",
    "Vladislavleva",
    "Jin",
    "R",
    "Livermore",
    "Koza",
    "Meier",
    "Pagie",
    "Korns",
    "Neat",
    "Constant",
)


def _sets(families: tuple[str, ...], suite: str, seed: int, n: int) -> Iterator[Problem]:
    with (HERE / "sr_formulas" / "dso_benchmarks.csv").open() as lines:
        for k, row in enumerate(csv.DictReader(lines)):
            if row["name"].split("-")[0] not in families or row["name"] == "Neat-6":  # harmonic numbers
                continue
            spec = json.loads(row["train_spec"])
            names = [f"x{i + 1}" for i in range(int(row["variables"]))]
            ranges = {v: tuple(next(iter((spec.get(v) or spec["all"]).values()))[:2]) for v in names}
            problem = drawn(row["name"], suite, row["expression"], ranges, (seed, k), n)
            if len(problem.y) >= 50:
                yield problem


def classic(seed: int, n: int = 400) -> Iterator[Problem]:
    yield from _sets(CLASSIC, "classic", seed, n)


def livermore2(seed: int, n: int = 1000) -> Iterator[Problem]:
    """1,000 rows, as published."""
    yield from _sets(("Livermore2",), "livermore2", seed, n)


STROGATZ = {
    "bacres1": "20-x-x*y/(1+0.5*x**2)", "bacres2": "10-x*y/(1+0.5*x**2)", "barmag1": "0.5*sin(x-y)-sin(x)",
    "barmag2": "0.5*sin(y-x)-sin(y)", "glider1": "-0.05*x**2-sin(y)", "glider2": "x-cos(y)/x",
    "lv1": "3*x-2*x*y-x**2", "lv2": "2*y-x*y-y**2", "predprey1": "x*(4-x-y/(1+x))",
    "predprey2": "y*(x/(1+x)-0.075*y)", "shearflow1": "cot(y)*cos(x)",
    "shearflow2": "(cos(y)**2+0.1*sin(y)**2)*sin(x)", "vdp1": "10*(y-(x**3-x)/3)", "vdp2": "-x/10",
}  # fmt: skip


def strogatz(seed: int) -> Iterator[Problem]:
    """The published tables; the seed changes the noise only."""
    folder = Path(os.environ.get("NUMERATE_DATA", HERE)) / "strogatz"
    if not folder.is_dir():
        warnings.warn("no folder strogatz under NUMERATE_DATA: suite left out", stacklevel=2)
        return
    for name, text in STROGATZ.items():
        table = np.loadtxt(folder / f"d_{name}.txt", delimiter=",", skiprows=1)
        yield _tabled(name, "strogatz", parse(text, ["x", "y"]), table[:, 1:], table[:, 0])


def _tabled(name: str, suite: str, truth: sp.Expr, X: np.ndarray, y: np.ndarray) -> Problem:
    low, high = X.min(0), X.max(0)
    outside = np.random.default_rng(3).uniform(low, high + 0.3 * (high - low + 1e-9), (1500, X.shape[1]))
    return Problem(name, suite, truth, X, y, outside[np.isfinite(values(truth, outside))][:500])


def odebench(seed: int) -> Iterator[Problem]:
    """Right-hand sides at the points of the two integrated trajectories; the seed changes the noise only."""
    for system in json.loads((HERE / "odebench" / "odebench_equations.json").read_text()):
        names = [f"x_{i}" for i in range(system["dim"])]
        sides = [parse(text, names) for text in system["substituted"][0]]
        X = _trajectories(sides, system["init"])
        for j, side in enumerate(sides):
            y = values(side, X)
            ok = np.isfinite(y)
            yield _tabled(f"ode{system['id']}.{j}", "odebench", side, X[ok], y[ok])


def _trajectories(sides: list[sp.Expr], starts: list[list[float]]) -> np.ndarray:
    from scipy.integrate import solve_ivp

    f = sp.lambdify(sp.symbols(f"x0:{len(sides)}"), sides, "numpy")
    out = []
    for start in starts:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            times = np.linspace(0, 10, 200)
            run = solve_ivp(lambda t, z: [float(v) for v in f(*z)], (0, 10), start, t_eval=times, rtol=1e-8, atol=1e-10)
        out.append(run.y.T)
    return np.concatenate(out)


def unseen(seed: int, n: int = 1000) -> Iterator[Problem]:
    return _written(formula_unseen.LAWS, "unseen laws", seed, n)


def random(seed: int, n: int = 1000) -> Iterator[Problem]:
    return _written(formula_unseen.random_formulas(), "unseen random", seed, n)


def laws(seed: int, n: int = 1000) -> Iterator[Problem]:
    return _written(formula_laws.LAWS, "laws", seed, n)


def laws_a(seed: int, n: int = 1000) -> Iterator[Problem]:
    return _written(dict(list(formula_laws.MORE.items())[0::2]), "laws A", seed, n)


def laws_b(seed: int, n: int = 1000) -> Iterator[Problem]:
    return _written(dict(list(formula_laws.MORE.items())[1::2]), "laws B", seed, n)


def laws_c(seed: int, n: int = 400) -> Iterator[Problem]:
    return _written(formula_textbook.LAWS, "laws C", seed, n)


def _written(formulas: dict[str, tuple[str, formula_laws.Ranges]], suite: str, seed: int, n: int) -> Iterator[Problem]:
    for k, (name, (text, ranges)) in enumerate(formulas.items()):
        yield drawn(name, suite, text, ranges, (seed, k), n)


SUITES: dict[str, Callable[[int], Iterator[Problem]]] = {
    "feynman": feynman,
    "bonus": bonus,
    "idle5": partial(idle, 5),
    "idle20": partial(idle, 20),
    "few": few,
    "constants": constants,
    "strogatz": strogatz,
    "odebench": odebench,
    "livermore2": livermore2,
    "classic": classic,
    "unseen": unseen,
    "random": random,
    "laws": laws,
    "laws-a": laws_a,
    "laws-b": laws_b,
    "laws-c": laws_c,
}
