"""Differential equations from trajectories of known systems: ODEBench's 63 and Strogatz's seven.

python -m benchmarks.formula_odes                          both sets without noise
python -m benchmarks.formula_odes --noise 0.01             noise of 1 % of each state's standard deviation
python -m benchmarks.formula_odes odebench --every 4       each fourth system
python -m benchmarks.formula_odes --points 60              fewer points on each trajectory
python -m benchmarks.formula_odes --only vdp 12            some systems, by name

An equation counts as found if it is right at the points of the trajectories: to 0.1 % without noise, to 5 % with it.
Approximations pass that. An equation holds outside as well if it is as right at states around the trajectories.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

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

    def trajectories(self, points: int) -> list[tuple[np.ndarray, np.ndarray]]:
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
        if rows:
            print(f"{suite}, noise {options.noise:g}, {options.points} points: {summary(rows, options.noise)}")


def summary(rows: list["Result"], noise: float) -> str:
    limit = 0.05 if noise else 1e-3
    inside, outside = ([[error < limit for error in errors] for errors in each] for each in list(zip(*rows))[:2])
    total, took = sum(map(len, inside)), np.median([each.seconds for each in rows])
    return (
        f"{sum(map(sum, inside))} of {total} equations, {sum(map(sum, outside))} also outside; "
        f"{sum(map(all, inside))} of {len(rows)} systems, {sum(map(all, outside))} also outside; "
        f"median {took:.1f} s for a system"
    )


class Result(NamedTuple):
    """Relative errors of the equations at the trajectories, the same or worse around them, and the seconds taken."""

    inside: list[float]
    outside: list[float]
    seconds: float


def solve(system: System, options: argparse.Namespace) -> Result:
    runs = system.trajectories(options.points)
    random, names = np.random.default_rng((options.seed, 7)), [f"x{i}" for i in range(len(system.sides))]
    states = np.concatenate([x for _, x in runs])
    noise = options.noise * states.std(0)
    noisy = [x + noise * random.standard_normal(x.shape) for _, x in runs]
    began = time.perf_counter()
    found = equations([t for t, _ in runs], noisy, names=names, seconds=options.seconds, seed=options.seed)
    took = time.perf_counter() - began
    pairs = [[sp.lambdify(sp.symbols(names), each) for each in pair] for pair in zip(found.formulas, system.sides)]
    inside = [_miss(ours, truth, states) for ours, truth in pairs]
    outside = [max(error, _miss_around(ours, truth, states)) for error, (ours, truth) in zip(inside, pairs)]
    for name, ours, error, beyond in zip(names, found.formulas, inside, outside):
        if not options.quiet:
            print(f"{system.name:>10} {name}' = {text(ours)}   # off by {error:.0e}, outside {beyond:.0e}", flush=True)
    return Result(inside, outside, took)


def _miss(ours: Callable, truth: Callable, states: np.ndarray) -> float:
    """Root mean square error as a part of the truth's root mean square."""
    goal = truth(*states.T)
    with np.errstate(all="ignore"):
        miss = np.sqrt(np.mean(np.square(ours(*states.T) - goal)) / np.mean(np.square(goal)))
    return float(miss) if np.isfinite(miss) else np.inf


def _miss_around(ours: Callable, truth: Callable, states: np.ndarray) -> float:
    """Error that nine in ten states around the trajectories stay below, as a part of the truth's median size.

    The states are in a box that is half as wide again on every side. Where the truth is not defined they are left out.
    """
    low, high = states.min(0), states.max(0)
    margin = (high - low) / 2
    around = np.random.default_rng(0).uniform(low - margin, high + margin, (2000, states.shape[1]))
    around = around[((around < low) | (around > high)).any(1)]
    with np.errstate(all="ignore"):
        goal = np.broadcast_to(truth(*around.T), len(around))
        errors = np.abs(ours(*around.T) - goal)[np.isfinite(goal)]
    return float(np.quantile(np.nan_to_num(errors, nan=np.inf), 0.9, method="lower") / np.nanmedian(np.abs(goal)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS), help=f"of {', '.join(SETS)}; all unless named")
    parser.add_argument("--points", type=int, default=POINTS, help="of each trajectory")
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
