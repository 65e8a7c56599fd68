"""Least squares from many starts, native loop against NumPy: ``python -m benchmarks.least_squares``.

First 64 starts of an index model, three groups of five inputs, link of degree 5: the native fit, its reference in NumPy
vectorised over the starts, and the same reference start by start. Then 64 starts of a sum of two exponentials written
in torch: the emitted loop, its vectorised reference, and SciPy start by start. Then the constants of 100 expressions:
native, NumPy and SciPy. CPU seconds of one core without compiling, best of three for what takes less than a second, and
the ratio to the native loop's.
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
from numerate.loops.least_squares.marquardt import LevenbergMarquardt
from numerate.loops.least_squares.residual import Emitted
from numerate.loops.least_squares.tape import Tape, refit_native, refit_numpy
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
    tracing, emitted = seconds(lambda: Emitted(decay, 4, (x, y)))
    emitted.fit(starts[:1].numpy(), (x, y), LevenbergMarquardt())  # compiles
    native, ours = seconds(lambda: emitted.fit(starts.numpy(), (x, y), LevenbergMarquardt(), threads=1))
    stacked, plain = seconds(lambda: least_squares(decay, starts, (x, y), backend="plain"))
    single, scipys = seconds(lambda: [with_scipy(theirs, p, x.numpy(), y.numpy()) for p in starts.numpy()])
    best = min(np.sqrt(np.mean(s.fun**2)) for s in scipys)
    np.testing.assert_allclose([np.sqrt(ours.losses.min() / rows), plain.residual.min()], best, rtol=1e-6)
    times = f"{native:.4f} | {stacked:.2f} ({stacked / native:.0f}×) | {single:.2f} ({single / native:.0f}×)"
    return f"| {rows:,} | {ours.evaluations.sum()} | {times} | {tracing:.3f} |"


def theirs(p: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return p[0] * np.exp(-p[1] * x) + p[2] * np.exp(-p[3] * x) - y


def with_scipy(function: Callable[..., np.ndarray], start: np.ndarray, *data: np.ndarray) -> Any:
    with np.errstate(all="ignore"):
        return scipy.optimize.least_squares(function, start, args=data, method="lm")


INNER = ("exp", "log", "sqrt", "tanh", "square")


def laboratory(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Three inputs and y = 2.5 exp(-0.7 x0) x1^1.3 + 0.4 x2 with a little noise."""
    generator = np.random.default_rng(0)
    X = generator.uniform(0.5, 2, (rows, 3))
    y = 2.5 * np.exp(-0.7 * X[:, 0]) * X[:, 1] ** 1.3 + 0.4 * X[:, 2]
    return X, y + 0.01 * generator.normal(size=rows)


def candidates(count: int) -> list[Tape]:
    """c f(c x0) x1^c + c x2 for each f in turn."""
    generator = np.random.default_rng(1)
    tapes = []
    for k in range(count):
        tape = Tape()
        c = [tape.constant(start) for start in generator.uniform(0.5, 1.5, 4)]
        inner = tape.call(INNER[k % len(INNER)], tape.call("mul", c[0], tape.input(0)))
        product = tape.call("mul", tape.call("mul", c[1], inner), tape.call("pow", tape.input(1), c[2]))
        tape.call("add", product, tape.call("mul", c[3], tape.input(2)))
        tapes.append(tape)
    return tapes


def refit_line(rows: int) -> str:
    tapes, (X, y) = candidates(100), laboratory(rows)
    native, ours = seconds(lambda: refit_native(tapes, X, y, threads=1))
    plain, reference = seconds(lambda: refit_numpy(tapes, X, y))

    def residual(p: np.ndarray, name: str) -> np.ndarray:
        inner = getattr(np, name)(p[0] * X[:, 0])
        return np.nan_to_num(p[1] * inner * X[:, 1] ** p[2] + p[3] * X[:, 2] - y, nan=1e6)

    def all_by_scipy() -> list[Any]:
        forms = [INNER[k % len(INNER)] for k in range(len(tapes))]
        return [with_scipy(residual, np.array(tape.starts), form) for tape, form in zip(tapes, forms)]  # type: ignore[arg-type]

    single, scipys = seconds(all_by_scipy)
    best = min(np.sqrt(np.mean(s.fun**2) / np.mean(y**2)) for s in scipys)
    np.testing.assert_allclose([np.nanmin(ours.error), np.nanmin(reference.error)], best, rtol=1e-6)
    times = f"{native:.3f} | {plain:.2f} ({plain / native:.0f}×) | {single:.2f} ({single / native:.0f}×)"
    return f"| {rows:,} | {ours.evaluations.sum()} | {times} |"


def table(*columns: str) -> None:
    print("\n| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")


def main() -> None:
    torch.set_num_threads(1)
    fit_index_native(*problem(40), DEGREE, threads=1)  # compiles
    table("rows", "evaluations", "native", "NumPy, vectorised", "NumPy, start by start", "least error")
    for rows in (400, 1000, 2000):
        print(index_line(rows), flush=True)
    table("rows", "evaluations", "emitted", "torch, vectorised", "SciPy, start by start", "tracing")
    Emitted(decay, 4, (torch.zeros(1), torch.zeros(1)))  # loads what tracing needs
    for rows in (100, 1000, 10_000):
        print(traced_line(rows), flush=True)
    refit_native(candidates(1), *laboratory(10), threads=1)  # compiles
    table("rows", "evaluations", "native", "NumPy, one by one", "SciPy, one by one")
    for rows in (200, 1000):
        print(refit_line(rows), flush=True)


if __name__ == "__main__":
    main()
