"""Runs as they might come from the single module task, drawn from the published numbers."""

import numpy as np

from numerate import published
from numerate.results import Provenance, Row

RANGES = [(-20, -10), (-2, -1), (-1.2, -1.1), (-0.2, -0.1), (-2, 2), (0.1, 0.2), (1, 2), (1.1, 1.2), (10, 20)]
CLASSES = {"NAC+": "NAC", "NAC•": "NACMul", "G-NALU": "GNALU", "iNALU": "INALU", "Real NPU": "RealNPU"}


def run(seed, unit, op, span, *, solved, at=20_000.0, sparsity=1e-6, rescued=False) -> Row:
    """One run with 51 evaluation points that is solved at the given step, or is not."""
    draw = np.random.default_rng([seed, len(unit), len(op), abs(int(10 * span[0]))])
    threshold = published.threshold(op, span).value
    steps = np.arange(0, 50_001, 1000)
    first = int(np.clip(round(at / 1000), 1, 50))
    test = np.where((steps >= 1000 * first) & solved, threshold / 10, threshold * 1e4)
    validation = np.where(steps >= 1000 * first, 1e-9, 1e-2) if solved else np.full(51, 0.5)
    size = sparsity if solved else 0.3
    return Row(
        f"primer2022/{op}",
        {"unit": unit, "operation": op, "range": span},
        seed,
        labels={"unit": unit, "operation": op, "range": list(span)},
        curves={"steps": steps, "validation": validation, "test": test, "sparsity": np.full(51, size)},
        scores={
            "threshold": threshold,
            "best_validation": float(validation.min()),
            "snapped_validation": 0.0 if solved or rescued else 1.0,
            "snapped_test": 0.0 if solved or rescued else 9.9,
        },
        provenance=Provenance(
            "stacked", {"torch": "2.13.0", "python": "3.11.7"}, {"cores": 2}, {"seconds": float(draw.random())}
        ),
    )


def primer(ops=("add", "sub", "mul", "div"), n=25, models=None, spans=None, seed=0) -> list[Row]:
    """Every cell of Tables 9-12, drawn with the published rates."""
    draw = np.random.default_rng(seed)
    rows = []
    for rate in published.cells(paper="primer2022", op=list(ops), metric="success_rate"):
        if (models and rate.model not in models) or (spans and rate.range not in spans):
            continue
        at = published.one(paper="primer2022", op=rate.op, model=rate.model, range=rate.range, metric="solved_at_mean")
        sparse = published.one(
            paper="primer2022", op=rate.op, model=rate.model, range=rate.range, metric="sparsity_error_mean"
        )
        for i in range(n):
            solved = bool(draw.random() < (rate.value or 0))
            when = (at.value or 2e4) * draw.gamma(30, 1 / 30)
            size = 0.0 if (sparse.value or 1e-6) < 1e-12 else (sparse.value or 1e-6) * draw.gamma(4, 1 / 4)
            unit = CLASSES.get(rate.model, rate.model)
            rows.append(
                run(i, unit, rate.op, rate.range, solved=solved, at=when, sparsity=size, rescued=draw.random() < 0.1)
            )
    return rows
