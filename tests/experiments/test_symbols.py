"""Which symbols of a copying task a network forgets."""

import torch
import torch.nn.functional as F
from benchmarks.symbols import wrong
from torch import Tensor, nn

from numerate.tasks import VariableCopying
from numerate.tasks.copying import BLANK, ITEMS, MARKER


class Forgetful(nn.Module):
    """Recalls all symbols but the last."""

    def forward(self, x: Tensor) -> Tensor:
        seen = x.argmax(-1)
        answer = torch.full_like(seen, BLANK)
        start = int((seen[:, 0] == MARKER).nonzero()) + 1
        answer[start : start + ITEMS - 1] = seen[: ITEMS - 1]
        return F.one_hot(answer, 10).float()


def test_a_symbol_that_is_never_recalled_is_always_wrong():
    assert wrong(Forgetful(), VariableCopying(12, 2, 3)).tolist() == [0.0] * (ITEMS - 1) + [1.0]
