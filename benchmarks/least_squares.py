"""Least squares from many starts, native loop against NumPy: ``python -m benchmarks.least_squares``.

First 64 starts of an index model, three groups of five inputs, link of degree 5: the native fit, its reference in NumPy
vectorised over the starts, and the same reference start by start. Then 64 starts of a sum of two exponentials written
in torch: the emitted loop, its vectorised reference, and SciPy start by start. CPU seconds of one core, best of three
for what takes less than a second, and times the native loop's.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when numpy and torch are imported
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize
import torch

from numerate.loops.least_squares.index import fit_index_native, fit_index_numpy
from numerate.train import least_squares

STARTS, DEGREE = 64, 5


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """CPU time of the process, and the result."""
    times = []
    while True:
        start = time.process_time()
        result = run()
        times.append(time.process_time() - start)
        if len(times) == 3 or times[0] > 1:
            return min(times), result


def problem(rows: int) -> tuple[np.ndarray, ...]:
    """Five inputs that enter as three groups, and random starts."""
    generator = np.random.default_rng(0)
    X = generator.uniform(1, 3, (rows, 5))
    u, v, w = X[:, 0] / X[:, 3], X[:, 1] * X[:, 4] ** 0.5, X[:, 2] / X[:, 3] / X[:, 4]
    y = X[:, 3] ** 0.5 * (1 + u * np.exp(-v / 2) + np.sin(w))
    Z = np.log(X)
    return Z - Z.mean(0), y, generator.normal(size=(STARTS, 5)), generator.normal(size=(STARTS, 3, 5))


def index_line(rows: int) -> str:
    Z, y, a, B = problem(rows)
    native, ours = seconds(lambda: fit_index_native(Z, y, a, B, DEGREE, threads=1))
    stacked, plain = seconds(lambda: fit_index_numpy(Z, y, a, B, DEGREE))
    single, _ = seconds(lambda: [fit_index_numpy(Z, y, a[i : i + 1], B[i : i + 1], DEGREE) for i in range(STARTS)])
    assert ours.evaluations.tolist() == plain.evaluations.tolist()
    np.testing.assert_allclose(ours.error, plain.error, rtol=1e-4)
    times = f"{native:.3f} | {stacked:.2f} ({stacked / native:.0f}×) | {single:.2f} ({single / native:.0f}×)"
    return f"| {rows:,} | {ours.evaluations.sum()} | {times} | {ours.error.min():.1e} |"


def decay(p: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return p[0] * torch.exp(-p[1] * x) + p[2] * torch.exp(-p[3] * x) - y


def traced_line(rows: int) -> str:
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(0, 3, rows, dtype=torch.float64)
    y = decay(torch.tensor([1.0, 0.5, 2.0, 3.0]), x, torch.zeros(rows))
    y = y + 0.01 * torch.randn(rows, dtype=torch.float64, generator=generator)
    starts = torch.empty(STARTS, 4, dtype=torch.float64).uniform_(0.2, 4, generator=generator)
    start = time.perf_counter()
    least_squares(decay, starts, (x, y), backend="emitted", threads=1)
    first = time.perf_counter() - start
    native, ours = seconds(lambda: least_squares(decay, starts, (x, y), backend="emitted", threads=1))
    stacked, plain = seconds(lambda: least_squares(decay, starts, (x, y), backend="plain"))
    data = x.numpy(), y.numpy()

    def theirs(p: np.ndarray) -> np.ndarray:
        return p[0] * np.exp(-p[1] * data[0]) + p[2] * np.exp(-p[3] * data[0]) - data[1]

    single, scipys = seconds(lambda: [scipy.optimize.least_squares(theirs, p.numpy(), method="lm") for p in starts])
    best = min(np.sqrt(np.mean(s.fun**2)) for s in scipys)
    np.testing.assert_allclose([ours.residual.min(), plain.residual.min()], best, rtol=1e-6)
    times = f"{native:.3f} | {stacked:.2f} ({stacked / native:.0f}×) | {single:.2f} ({single / native:.0f}×)"
    return f"| {rows:,} | {int(ours.iterations.sum())} | {times} | {first:.1f} s |"


def main() -> None:
    torch.set_num_threads(1)
    print(
        "| rows | evaluations | native | NumPy, vectorised | NumPy, start by start | least error |\n|---|---|---|---|---|---|"
    )
    fit_index_native(*problem(40), DEGREE, threads=1)  # compiles
    for rows in (400, 1000, 2000):
        print(index_line(rows), flush=True)
    print(
        "\n| rows | evaluations | emitted | torch, vectorised | SciPy, start by start | first call |\n|---|---|---|---|---|---|"
    )
    for rows in (100, 1000, 10_000):
        print(traced_line(rows), flush=True)


if __name__ == "__main__":
    main()
