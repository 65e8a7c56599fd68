"""Predicting the next word of a text."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from numerate.checks import one_of, positive
from numerate.data import SETS, DataSet, folder, ptb, wikitext2
from numerate.data.text import Text
from numerate.tasks.batches import Batch, Data, HeldOut
from numerate.tasks.online import masked_mean, step_losses, sum_and_count

LOADERS: dict[str, Callable[[], Text]] = {"ptb": ptb.load_words, "wikitext-2": wikitext2.load}
VOCABULARY = {"ptb": 10_000, "wikitext-2": 33_278}
PARTS = ("train", "validation", "test")


def article_starts(ids: Tensor, symbols: tuple[str, ...]) -> Tensor:
    """Places of the first words of articles: lines ``= Title =`` after an empty one; (N,) -> (A,)

    ``= = Section = =`` is none.
    """
    sign, end = symbols.index("="), symbols.index("<eos>")
    ended = torch.cat((torch.tensor([True, True]), ids == end))  # whether a line ends two words, or one, before
    begins = ended[1:-1] & ended[:-2]
    after = torch.cat((ids[1:], ids[:1]))
    return (begins & (ids == sign) & (after != sign) & _closed(ids, sign, end)).nonzero().squeeze(-1)


def _closed(ids: Tensor, sign: int, end: int) -> Tensor:
    """Whether the line of each word ends in ``=``."""
    ends = (ids == end).nonzero().squeeze(-1)
    line = torch.searchsorted(ends, torch.arange(len(ids))).clamp(max=len(ends) - 1)
    return ids[(ends[line] - 1).clamp(min=0)] == sign


def laid_out(ids: Tensor, starts: Tensor, columns: int, length: int, whole: bool) -> Data:
    """A text as batches of ``columns`` rows that are read side by side.

    Each part of the text that begins at one of ``starts`` is cut into pieces of ``length`` steps, the last one
    filled up; pieces go on from batch to batch in a column.

    Returns:
        ``x``, ``y``: words and those that follow them, (batches, T, B); ``mask``: (batches, T, B), false where filled
        up; ``reset``: (batches, B), true where a part begins, or a column. ``whole``: what does not fill a batch is
        left out; else there are empty pieces.
    """
    first = torch.unique(torch.cat((torch.tensor([0]), (starts - 1).clamp(min=0))))  # the word before is the input
    sizes = torch.diff(first, append=torch.tensor([len(ids) - 1]))
    pieces = -(-sizes // length)
    begins = torch.repeat_interleave(first, pieces)
    number = torch.cat([torch.arange(int(n)) for n in pieces])
    left = torch.repeat_interleave(sizes, pieces) - number * length
    places = (begins + number * length).unsqueeze(-1) + torch.arange(length)
    mask = torch.arange(length) < left.unsqueeze(-1)
    places = torch.where(mask, places, 0)
    count = len(places)
    batches = count // columns if whole else -(-count // columns)
    wanted = batches * columns
    pad = max(wanted - count, 0)
    x, y = (F.pad(ids[at], (0, 0, 0, pad))[:wanted] for at in (places, places + 1))
    mask, reset = F.pad(mask, (0, 0, 0, pad))[:wanted], F.pad(number == 0, (0, pad))[:wanted]
    reset = reset.view(columns, batches).T.contiguous()
    reset[:1] = True
    shaped = [part.view(columns, batches, length).permute(1, 2, 0).contiguous() for part in (x.int(), y.int(), mask)]
    return dict(zip(("x", "y", "mask", "reset"), (*shaped, reset)))


@lru_cache(maxsize=2)
def _batches(text: str, columns: int, length: int, articles: bool, folder: Path) -> Data:
    """Every part of a text of the data folder by :func:`laid_out`, names as ``train_x``."""
    loaded, found = LOADERS[text](), {}
    for part in PARTS:
        ids = getattr(loaded, part)
        starts = article_starts(ids, loaded.symbols) if articles else torch.tensor([0])
        batches = laid_out(ids, starts, columns, length, whole=part == "train")
        found |= {f"{part}_{name}": value for name, value in batches.items()}
    return found


@dataclass(frozen=True)
class Words:
    """Penn Treebank or WikiText-2 by words, in ``batch_size`` columns that are read side by side.

    x: (T, B) ids, y: (T, B) the next words. The state goes from batch to batch, gradients do not (truncated
    backpropagation). It starts anew where an article begins.

    Args:
        text: ``ptb`` or ``wikitext-2``.
        batch_size: columns.
        length: T, steps of a batch.
        articles: whether articles begin with the initial state; PTB has none.
        evaluated: batches of validation and of test that are used; None: all.
    """

    text: Literal["ptb", "wikitext-2"] = "wikitext-2"
    batch_size: int = 128
    length: int = 128
    articles: bool = True
    evaluated: int | None = None
    judged: Literal["test", "train"] = "test"
    window: int = 50

    def __post_init__(self) -> None:
        one_of("text", self.text, tuple(LOADERS))
        positive("batch_size", self.batch_size)
        positive("length", self.length)
        if self.evaluated is not None:
            positive("evaluated", self.evaluated)
        if self.articles and self.text == "ptb":
            raise ValueError("Penn Treebank has no articles: give articles=False")

    @property
    def inputs(self) -> int:
        return VOCABULARY[self.text]

    @property
    def outputs(self) -> int:
        return VOCABULARY[self.text]

    @property
    def form(self) -> Hashable:
        return self

    @property
    def carries(self) -> bool:
        return True

    @property
    def epoch(self) -> int:
        if not (count := len(self.data()["train_x"])):
            raise ValueError(f"the text does not fill a batch of {self.length:,} steps in {self.batch_size:,} columns")
        return count

    @property
    def data_set(self) -> DataSet:
        return SETS[self.text]

    def data(self) -> Data:
        return dict(_batches(self.text, self.batch_size, self.length, self.articles, folder()))

    def order(self, seed: int, epoch: int) -> Data:
        return {}

    def batch(self, seed: Tensor, step: Tensor, data: Data) -> Batch:
        index = (step % len(data["train_x"])).view(1)
        return self._taken(data, "train", lambda part: part.index_select(0, index).squeeze(0))

    def evaluations(self, split: HeldOut) -> int:
        count = len(self.data()[f"{split}_x"])
        return min(count, self.evaluated or count)

    def evaluation(self, split: HeldOut, index: int, data: Data) -> Batch:
        return self._taken(data, split, lambda part: part[index])

    def _taken(self, data: Data, part: str, take: Callable[[Tensor], Tensor]) -> Batch:
        x, y, mask, reset = (take(data[f"{part}_{name}"]) for name in ("x", "y", "mask", "reset"))
        return Batch(x.long(), y.long(), mask.float(), reset)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Cross entropy in nats a word; prediction: (T, B, words)"""
        return masked_mean(step_losses(prediction, batch.y), batch.mask)

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``error``: nats a word, the logarithm of the perplexity; ``accuracy``."""
        right = (prediction.argmax(-1) == batch.y).float()
        losses = step_losses(prediction, batch.y)
        return {"error": sum_and_count(losses, batch.mask), "accuracy": sum_and_count(right, batch.mask)}

    def guessing(self) -> float:
        """Nats a word if all words were equally likely."""
        return log(VOCABULARY[self.text])

    def threshold(self) -> float:
        return float("nan")
