"""Networks that read a number in words: an LSTM with a unit on top, and words as factors and terms, our own."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import one_of
from numerate.recurrent import LSTM
from numerate.train.networks.grouping import checked_layer

Read = Literal["final", "summed"]


def number_reader(
    words: int, outputs: int, *, head: Callable[[int, int], nn.Module], size: int = 32, read: Read = "final"
) -> "NumberReader":
    """A network for ``words`` of a vocabulary; see :class:`NumberReader`."""
    return NumberReader(words, outputs, head, size, read)


class NumberReader(nn.Module):
    """Embedding, LSTM, and a unit on its output after the last word, or on the sum of all; (T, B, words) -> (B, O).

    Args:
        words: of the vocabulary; x is one-hot, and zero after the last word.
        outputs: O.
        head: (inputs, outputs) -> the unit on top.
        size: width of the embedding, which starts at N(0, 1), and of the LSTM.
        read: the ``final`` output or all of them ``summed``.
    """

    def __init__(
        self, words: int, outputs: int, head: Callable[[int, int], nn.Module], size: int = 32, read: Read = "final"
    ) -> None:
        super().__init__()
        self.read = one_of("read", read, ("final", "summed"))
        self.embedding = nn.Parameter(torch.empty(size, words))
        nn.init.normal_(self.embedding)
        self.layer, self.head = LSTM(size, size), checked_layer(head, size, outputs)

    def forward(self, x: Tensor) -> Tensor:
        there = x.sum(-1, keepdim=True)
        after = torch.cat((there[1:], torch.zeros_like(there[:1])))
        output, _ = self.layer(F.linear(x, self.embedding))
        counted = there if self.read == "summed" else there - after  # 1 at the last word alone
        return self.head((output * counted).sum(0))


class FactorAndTerm(nn.Module):
    """Each word has a factor m and a term a: y' = m y + a along the words, from y = 0; (T, B, words) -> (B, 1).

    This is an NMU on [m, y] and an NAU on [m y, a] with weights of 1. Parameters are ``log_factor``, ln m, which starts
    at 0, and ``tens``, a / 10, drawn from N(0, 1).
    """

    def __init__(self, words: int, outputs: int) -> None:
        super().__init__()
        if outputs != 1:
            raise ValueError(f"words make one number, not {outputs}")
        self.log_factor, self.tens = nn.Parameter(torch.zeros(1, words)), nn.Parameter(torch.empty(1, words))
        nn.init.normal_(self.tens)

    def forward(self, x: Tensor) -> Tensor:
        factors, terms = F.linear(x, self.log_factor).exp(), 10 * F.linear(x, self.tens)  # 1 and 0 without a word
        y = torch.zeros_like(terms[0])
        for factor, term in zip(factors.unbind(0), terms.unbind(0)):
            y = factor * y + term
        return y
