"""A run as the trainer would store it."""

from dataclasses import replace
from typing import Any

import numpy as np

from numerate.results import Provenance, Row


def row(seed: int = 0, unit: str = "NMU", span: tuple[float, float] = (1, 2), **changes: Any) -> Row:
    draw = np.random.default_rng([seed, len(unit)])
    plain = Row(
        experiment="primer2022/table11",
        config={"unit": unit, "range": span, "steps": 2000},
        seed=seed,
        labels={"unit": unit, "operation": "mul", "range": span},
        curves={
            "steps": np.array([0, 1000, 2000]),
            "validation": draw.random(3),
            "test": np.array([np.inf, np.nan, draw.random()]),
            "sparsity": draw.random(3),
        },
        scores={"threshold": 1e-7, "snapped_test": float("nan"), "snapped_kept": 1.0},
        weights={"final": {"0.weight": draw.random((1, 2), np.float32)}, "best": {"0.weight": np.ones((1, 2))}},
        provenance=Provenance("stacked", {"torch": "2.13"}, {"cores": 2}, {"seconds": 0.5}, "2026-01-01"),
    )
    return replace(plain, **changes)
