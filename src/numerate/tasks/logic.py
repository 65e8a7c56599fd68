"""Truth functions and arithmetic on [0, 1] that a layer of Boolean rules can express (the Primer's section 7.1)."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from numerate.tasks.arithmetic import operate
from numerate.tasks.task import Split

RULES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "and": torch.mul,
    "or": lambda a, b: a + b - a * b,
    "not": lambda a, b: 1 - a,
    "xor": lambda a, b: a + b - 2 * a * b,
    "mul": torch.mul,
    "mean": lambda a, b: (a + b) / 2,
    "identity": lambda a, b: a + 0 * b,
    "constant": lambda a, b: torch.ones_like(a),
}
"""Function -> what it gives; on the truth values 0 and 1 for the first four."""
ARITHMETIC = ("mul", "mean", "identity", "constant")
"""Those of real numbers; ``mean`` is the sum, divided by two so that it is a truth value again."""


@dataclass(frozen=True)
class Logic:
    """y = rule(x₁, x₂); x is drawn from {0, 1} for and, or, not, xor, and from [0, 1) for the others.

    Real inputs are below ½ in training and validation, and above in the test. Success: a test error below ``limit``.
    """

    rule: str
    limit: float = 1e-4

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, got {self.rule!r}")
        if not self.limit > 0:
            raise ValueError(f"limit must be above 0, got {self.limit}")

    @property
    def inputs(self) -> int:
        return 2

    @property
    def outputs(self) -> int:
        return 1

    @property
    def draws(self) -> int:
        return 2

    @property
    def form(self) -> Hashable:
        return type(self)

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        return {
            "real": torch.tensor(float(self.rule in ARITHMETIC)),
            "low": torch.tensor(0.5 if split == "test" else 0.0),
            "rule": torch.tensor(float(list(RULES).index(self.rule))),
        }

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        truths = torch.where(uniforms >= 0.5, 1.0, 0.0)
        x = torch.where(constants["real"] == 1, constants["low"] + uniforms / 2, truths)
        return x, operate((x[..., :1], x[..., 1:]), constants["rule"], RULES)

    def threshold(self) -> float:
        return self.limit
