"""How far an evaluation of a split has come; it may pause after every batch, and go on in another process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch

from numerate.train.networks.member import Carried, Tensors


@dataclass
class Sums:
    """Sums of a task's measures over the first batches of a split.

    Args:
        batches: how many.
        totals: name of a measure -> (S, 2), sum and count.
        carried: state after them; None before the first.
    """

    batches: int = 0
    totals: Tensors = field(default_factory=dict)
    carried: Carried | None = None

    def add(self, found: Tensors, carried: Carried) -> None:
        """One more batch."""
        for name, value in found.items():
            self.totals[name] = self.totals[name] + value.double() if name in self.totals else value.double()
        self.batches, self.carried = self.batches + 1, carried

    def means(self) -> Tensors:
        return {name: (value[:, 0] / value[:, 1]).float() for name, value in self.totals.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """For :meth:`restored`; nothing before the first batch."""
        if not self.batches:
            return {}
        values = {f"total/{name}": value for name, value in self.totals.items()}
        values |= {f"carried/{number}": value for number, value in enumerate(self.carried or ())}
        return {"batches": np.array(self.batches)} | {name: value.cpu().numpy() for name, value in values.items()}

    @classmethod
    def restored(cls, arrays: Mapping[str, np.ndarray], device: str) -> Self:
        if not arrays:
            return cls()
        values = {name: torch.from_numpy(np.array(value)).to(device) for name, value in arrays.items()}
        totals = {name.removeprefix("total/"): value for name, value in values.items() if name.startswith("total/")}
        count = sum(name.startswith("carried/") for name in values)
        return cls(int(arrays["batches"]), totals, tuple(values[f"carried/{number}"] for number in range(count)))
