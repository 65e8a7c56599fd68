"""Whether the formula search keeps its seconds: ``python -m benchmarks.formula_cap``.

Tables of many inputs and rows whose target no simple formula explains, with and without noise. Prints the CPU seconds
that ``FormulaRegressor.fit`` took, the more of the two.
"""

import argparse
import time
from itertools import product

import numpy as np

from numerate import FormulaRegressor


def table(inputs: int, rows: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """X: (rows, inputs), y: (rows,); five inputs matter."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, inputs))
    a, b, c, d, e = X[:, [0, 1, 2, 3, -1]].T
    y = np.sin(a * b) + 0.5 * c**2 * np.exp(-d) + e / (3 + a)
    return X, y + noise * rng.standard_normal(rows)


def used(inputs: int, rows: int, noise: float, seconds: float) -> float:
    """CPU seconds of one fit."""
    X, y = table(inputs, rows, noise)
    start = time.thread_time()
    FormulaRegressor(seconds=seconds).fit(X, y)
    return time.thread_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, nargs="+", default=[5, 30, 90])
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 5000, 100_000])
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 3.0])
    args = parser.parse_args()
    used(5, 100, 0.0, 1.0)  # compiles
    print(f"{'inputs':>6} {'rows':>7}" + "".join(f" {seconds:>6g} s" for seconds in args.seconds))
    for inputs, rows in product(args.inputs, args.rows):
        took = [max(used(inputs, rows, noise, seconds) for noise in (0.0, 0.1)) for seconds in args.seconds]
        print(f"{inputs:>6} {rows:>7}" + "".join(f" {each:>8.2f}" for each in took), flush=True)


if __name__ == "__main__":
    main()
