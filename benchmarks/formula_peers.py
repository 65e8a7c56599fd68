"""Other programs on the same problems with the same time: pyoperon, gplearn, and PySR where Julia is at hand."""

import time

import numpy as np
import sympy as sp

_RATIO = [1.0]  # wall seconds per CPU second on this machine: pyoperon's limit is wall time


def operon(X: np.ndarray, y: np.ndarray, seconds: float, seed: int) -> list[sp.Expr]:
    """Every model of the final Pareto front; credited if any of them is right."""
    from pyoperon.sklearn import SymbolicRegressor

    cpu, wall = time.process_time(), time.time()
    model = SymbolicRegressor(
        allowed_symbols="add,sub,mul,div,sqrt,log,exp,sin,cos,tanh,square,constant,variable",
        optimizer="lm", optimizer_iterations=5, max_length=50, max_depth=10, population_size=1000, pool_size=1000,
        tournament_size=5, generations=100000, max_evaluations=10**9, max_time=int(np.ceil(seconds * _RATIO[0])),
        n_threads=1, objectives=["r2", "length"], epsilon=1e-5, random_state=seed,
        model_selection_criterion="minimum_description_length",
    )  # fmt: skip
    model.fit(X, y)
    _RATIO[0] = float(np.clip((time.time() - wall) / max(time.process_time() - cpu, 0.1), 1.0, 4.0))
    names = {f"X{i + 1}": sp.Symbol(f"x{i}") for i in range(X.shape[1])} | {"square": lambda a: a**2}
    texts = [model.get_model_string(model.model_, 17)]
    texts += [model.get_model_string(e["tree"], 17) for e in model.pareto_front_]
    return [sp.sympify(t, locals=names) for t in dict.fromkeys(texts)]


def gplearn(X: np.ndarray, y: np.ndarray, seconds: float, seed: int) -> list[sp.Expr]:
    from gplearn.genetic import SymbolicRegressor

    start = time.process_time()
    model = SymbolicRegressor(
        population_size=1000, generations=1, warm_start=True, parsimony_coefficient=0.001, random_state=seed,
        function_set=("add", "sub", "mul", "div", "sqrt", "log", "sin", "cos"), stopping_criteria=1e-9, metric="mse",
    )  # fmt: skip
    generation = 0
    while time.process_time() - start < seconds:
        generation += 1
        model.set_params(generations=generation).fit(X, y)
        if model._program.raw_fitness_ < 1e-9 * np.std(y):
            break
    names = {f"X{i}": sp.Symbol(f"x{i}") for i in range(X.shape[1])} | {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
        "sqrt": lambda a: sp.sqrt(sp.Abs(a)), "log": lambda a: sp.log(sp.Abs(a)), "sin": sp.sin, "cos": sp.cos,
    }  # fmt: skip
    return [sp.sympify(str(model._program), locals=names)]


def pysr(X: np.ndarray, y: np.ndarray, seconds: float, seed: int) -> list[sp.Expr]:
    """Needs PySR and Julia; every formula of its hall of fame counts."""
    from pysr import PySRRegressor  # type: ignore[import-not-found]

    model = PySRRegressor(
        niterations=10**6, timeout_in_seconds=seconds, random_state=seed, deterministic=True, parallelism="serial",
        progress=False, verbosity=0, binary_operators=["+", "-", "*", "/"],
        unary_operators=["sqrt", "log", "exp", "sin", "cos", "tanh"],
    )  # fmt: skip
    model.fit(X, y, variable_names=[f"x{i}" for i in range(X.shape[1])])
    return list(model.equations_["sympy_format"])


PEERS = {"pyoperon": operon, "gplearn": gplearn, "pysr": pysr}
