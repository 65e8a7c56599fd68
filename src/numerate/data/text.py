"""What a data set of text is: three streams of ids and the symbols they stand for."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Text(NamedTuple):
    """Ids (N,) int64 of each part, and ``symbols[id]``."""

    train: Tensor
    validation: Tensor
    test: Tensor
    symbols: tuple[str, ...]


def encode(parts: Sequence[list[str]], symbols: Iterable[str]) -> Text:
    """Train, validation and test as ids: the place of each symbol in ``symbols``."""
    known = tuple(symbols)
    index = {symbol: i for i, symbol in enumerate(known)}
    train, validation, test = (torch.tensor([index[symbol] for symbol in part]) for part in parts)
    return Text(train, validation, test, known)


def words(content: bytes) -> list[str]:
    """The words of a text, each line ended by ``<eos>``."""
    return [word for line in content.decode().split("\n")[:-1] for word in (*line.split(), "<eos>")]
