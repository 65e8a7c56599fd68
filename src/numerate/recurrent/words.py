"""A recurrent layer between an embedding and the words it predicts."""

from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import positive
from numerate.recurrent.cell import State
from numerate.recurrent.layer import Recurrent, rate


class WordModel(nn.Module):
    """ids (T, B) -> embedding, dropout, layer, logits of the next word (T, B, words); and the state.

    Args:
        layer: the recurrent layer, time first; its input size is the width of the embedding.
        words: size of the vocabulary.
        dropout: rate at which entries of embeddings are dropped in training.
        shared: whether the readout takes the embedding's weights; the layer then has as many outputs as inputs.
    """

    def __init__(self, layer: Recurrent, words: int, dropout: float = 0.0, shared: bool = True) -> None:
        super().__init__()
        if layer.batch_first:
            raise ValueError("WordModel takes a layer with time first, got one with batch_first=True")
        if shared and layer.input_size != layer.output_size:
            sizes = f"{layer.output_size} and {layer.input_size}"
            raise ValueError(f"shared=True needs a layer with as many outputs as inputs, got {sizes}")
        self.layer, self.shared = layer, shared
        self.embedding = nn.Embedding(positive("words", words), layer.input_size)
        self.dropout = nn.Dropout(rate("dropout", dropout))
        self.bias = nn.Parameter(torch.zeros(words))
        self.weight = None if shared else nn.Parameter(torch.empty(words, layer.output_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Embedding and readout: U(±1/√width)."""
        for weight in (self.embedding.weight, self.weight):
            if weight is not None:
                nn.init.uniform_(weight, -1 / sqrt(weight.shape[1]), 1 / sqrt(weight.shape[1]))

    def forward(self, ids: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        output, after = self.layer(self.dropout(self.embedding(ids)), state)
        weight = self.embedding.weight if self.weight is None else self.weight
        return F.linear(output, weight, self.bias), after

    def initial_state(self, ids: Tensor) -> State:
        """The state before the first step of ids (T, B): tensors (layers * directions, B, ...)."""
        layer, directions = self.layer, range(len(self.layer.directions))
        starts = [
            cell.initial_state(ids.shape[1], self.embedding.weight, layer.parts(index, bool(reverse)))
            for index, cell in enumerate(layer.cells)
            for reverse in directions
        ]
        return tuple(torch.stack(entries) for entries in zip(*starts))

    def extra_repr(self) -> str:
        return f"shared={self.shared}"
