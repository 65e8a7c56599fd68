"""Differential equations from trajectories of known systems: ODEBench's 63 and Strogatz's seven.

python -m benchmarks.formula_odes                          both sets without noise
python -m benchmarks.formula_odes --noise 0.01             noise of 1 % of each state's standard deviation
python -m benchmarks.formula_odes odebench --every 4       each fourth system
python -m benchmarks.formula_odes --only vdp 12            some systems, by name

An equation counts as found if it is right at the points of the trajectories: to 0.1 % without noise, to 5 % with it.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import sympy as sp

from benchmarks.formula_problems import HERE, STROGATZ, parse
from numerate.discover import equations
from numerate.discover.export import text

POINTS, END = 150, 10.0
STARTS = {
    "bacres": [(9.0, 12.8), (1.5, 9.2), (5.0, 4.0), (14.0, 6.0)],
    "barmag": [(4.3, 4.8), (0.4, 2.9), (5.5, 1.2), (2.2, 3.6)],
    "glider": [(5.6, 1.9), (8.0, 0.5), (2.5, -0.6), (6.0, -1.5)],
    "lv": [(6.7, 7.8), (0.6, 2.5), (4.0, 0.3), (1.2, 1.0)],
    "predprey": [(7.0, 9.0), (3.0, 1.0), (0.5, 5.0), (5.0, 3.0)],
    "shearflow": [(-0.9, 1.2), (2.1, 0.4), (1.0, -0.8), (-2.3, -1.3)],
    "vdp": [(1.2, 0.4), (-1.6, 1.3), (0.3, -0.9), (2.0, -1.5)],
}


@dataclass(frozen=True)
class System:
    """Right-hand sides in x0, x1, ... and the starts of its trajectories."""

    name: str
    sides: list[sp.Expr]
    starts: list[tuple[float, ...]]

    def trajectories(self, points: int = POINTS) -> list[tuple[np.ndarray, np.ndarray]]:
        """(times, states) from each start; a solution that ends early is left out."""
        from scipy.integrate import solve_ivp

        right, t = self.right(), np.linspace(0, END, points)
        with np.errstate(all="ignore"):
            runs = [
                solve_ivp(lambda _, x: right(*x), (0, END), start, t_eval=t, rtol=1e-10, atol=1e-12).y.T
                for start in self.starts
            ]
        return [(t, x) for x in runs if len(x) == points]

    def right(self):
        return sp.lambdify(sp.symbols(f"x0:{len(self.sides)}"), self.sides, "numpy")


def odebench() -> Iterator[System]:
    for system in json.loads((HERE / "odebench" / "odebench_equations.json").read_text()):
        names = [f"x_{i}" for i in range(system["dim"])]
        sides = [parse(each, names) for each in system["substituted"][0]]
        yield System(str(system["id"]), sides, [tuple(map(float, each)) for each in system["init"]])


def strogatz() -> Iterator[System]:
    for name, starts in STARTS.items():
        yield System(name, [parse(STROGATZ[f"{name}{i}"], ["x", "y"]) for i in (1, 2)], starts)


SETS = {"odebench": odebench, "strogatz": strogatz}


def main() -> None:
    options = _options()
    for suite in options.sets:
        chosen = list(SETS[suite]())[options.offset :: options.every]
        rows = [solve(each, options) for each in chosen if not options.only or each.name in options.only]
        errors = np.array([error for misses, _ in rows for error in misses])
        limit = 0.05 if options.noise else 1e-3
        systems = sum(max(misses) < limit for misses, _ in rows)
        took = np.median([seconds for _, seconds in rows])
        print(
            f"{suite}, noise {options.noise:g}: {np.sum(errors < limit)} of {len(errors)} equations, {systems} of "
            f"{len(rows)} systems; median {took:.1f} s for a system"
        )


def solve(system: System, options: argparse.Namespace) -> tuple[list[float], float]:
    """The relative error of each equation at the states of the trajectories, and the seconds it took."""
    runs = system.trajectories()
    random, names = np.random.default_rng((options.seed, 7)), [f"x{i}" for i in range(len(system.sides))]
    states = np.concatenate([x for _, x in runs])
    noise = options.noise * states.std(0)
    noisy = [x + noise * random.standard_normal(x.shape) for _, x in runs]
    began = time.perf_counter()
    found = equations([t for t, _ in runs], noisy, names=names, seconds=options.seconds, seed=options.seed)
    took = time.perf_counter() - began
    with np.errstate(all="ignore"):
        misses = [_miss(ours, truth, names, states) for ours, truth in zip(found.formulas, system.sides)]
    for name, ours, miss in zip(names, found.formulas, misses):
        if not options.quiet:
            print(f"{system.name:>10} {name}' = {text(ours)}   # off by {miss:.0e}", flush=True)
    return misses, took


def _miss(ours: sp.Expr, truth: sp.Expr, names: list[str], states: np.ndarray) -> float:
    ours, truth = (sp.lambdify(sp.symbols(names), each, "numpy")(*states.T) for each in (ours, truth))
    miss = np.sqrt(np.mean((ours - truth) ** 2) / np.mean(np.square(truth)))
    return float(miss) if np.isfinite(miss) else np.inf


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS), help=f"of {', '.join(SETS)}; all unless named")
    parser.add_argument("--noise", type=float, default=0.0, help="times each state's standard deviation")
    parser.add_argument("--seconds", type=float, default=3.0, help="of CPU time for each equation")
    parser.add_argument("--seed", type=int, default=0, help="of the search and of the noise")
    parser.add_argument("--every", type=int, default=1, help="only each so-manyth system")
    parser.add_argument("--offset", type=int, default=0, help="where to start with --every")
    parser.add_argument("--only", nargs="+", help="names of systems")
    parser.add_argument("--quiet", action="store_true", help="the totals alone")
    return parser.parse_args()


if __name__ == "__main__":
    main()
