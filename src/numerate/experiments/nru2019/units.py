"""The units of the paper at its sizes: about 23,500 parameters on copying, 165,000 on psMNIST, 2.15 million on PTB.

Sizes that the paper does not print are chosen to have as many parameters. FFT-style EURNN and GORU have sizes that are
powers of two, so they cannot.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from numerate.experiments.models import sequence_model
from numerate.experiments.recipe import Recipe
from numerate.recurrent import EURNN, GORU, GRU, JANET, LSTM, NRU, RNN, Recurrent, StatisticalRU
from numerate.train import Adam

UNITS = ("NRU", "JANET", "LSTM-chrono", "GRU", "LSTM", "EURNN", "GORU", "RNN-orth", "RNN-id", "SRU")
OTHER_NRU = ("NRU, memory 81", "NRU, memory 144")
"""NRU of as many parameters with a larger memory and fewer hidden units; the paper does not print which it has."""
FREE = ("EURNN", "GORU")
"""Units whose gradients are not clipped."""

ORTHOGONAL = partial(RNN, recurrent_init="orthogonal", activation="tanh", layer_norm=True, bias_init="uniform")
IDENTITY = partial(RNN, recurrent_init="identity", activation="relu", layer_norm=True, bias_init="uniform")
Layers = Mapping[str, Callable[[int], Recurrent]]


def copying_layers(longest: int) -> Layers:
    """About 23,500 parameters with 10 inputs and 9 outputs; ``longest``: T_max of the chrono initialisation."""
    return {
        "NRU": partial(NRU, hidden_size=80, memory_size=64, heads=4),
        "JANET": partial(JANET, hidden_size=101, timescale=longest),
        "LSTM-chrono": partial(LSTM, hidden_size=70, timescale=longest),
        "GRU": partial(GRU, hidden_size=82),
        "LSTM": partial(LSTM, hidden_size=70),
        "EURNN": partial(EURNN, hidden_size=1024),
        "GORU": partial(GORU, hidden_size=128),
        "RNN-orth": partial(ORTHOGONAL, hidden_size=143),
        "RNN-id": partial(IDENTITY, hidden_size=143),
        "SRU": partial(StatisticalRU, hidden_size=55, statistics_size=48, summary_size=32),
        "NRU, memory 81": partial(NRU, hidden_size=68, memory_size=81, heads=4),
        "NRU, memory 144": partial(NRU, hidden_size=28, memory_size=144, heads=4),
    }


def pixel_layers(longest: int = 784) -> Layers:
    """About 165,000 parameters with 1 input and 10 outputs."""
    return {
        "NRU": partial(NRU, hidden_size=212, memory_size=256, heads=4),
        "JANET": partial(JANET, hidden_size=284, timescale=longest),
        "LSTM-chrono": partial(LSTM, hidden_size=201, timescale=longest),
        "GRU": partial(GRU, hidden_size=232),
        "LSTM": partial(LSTM, hidden_size=201),
        "EURNN": partial(EURNN, hidden_size=1024),
        "GORU": partial(GORU, hidden_size=256),
        "RNN-orth": partial(ORTHOGONAL, hidden_size=399),
        "RNN-id": partial(IDENTITY, hidden_size=399),
        "SRU": partial(StatisticalRU, hidden_size=87, statistics_size=200, summary_size=64),
    }


def small_pixel_layers(longest: int) -> Layers:
    """About 13,000 parameters: for quick runs on smaller images."""
    return {
        "NRU": partial(NRU, hidden_size=48, memory_size=64, heads=4),
        "JANET": partial(JANET, hidden_size=78, timescale=longest),
        "LSTM-chrono": partial(LSTM, hidden_size=55, timescale=longest),
        "GRU": partial(GRU, hidden_size=64),
        "LSTM": partial(LSTM, hidden_size=55),
        "EURNN": partial(EURNN, hidden_size=256),
        "GORU": partial(GORU, hidden_size=64),
        "RNN-orth": partial(ORTHOGONAL, hidden_size=108),
        "RNN-id": partial(IDENTITY, hidden_size=108),
        "SRU": partial(StatisticalRU, hidden_size=32, statistics_size=48, summary_size=20),
    }


def text_layers(longest: int = 50) -> Layers:
    """About 2.15 million parameters with 50 inputs and 50 outputs; T_max = 50 was better than 150.

    JANET without the shift of its input gate: with β = 1, the states of so many units, carried through an epoch, are
    chaotic at the start.
    """
    return {
        "NRU": partial(NRU, hidden_size=1229, memory_size=256, heads=4, relu_heads=True),
        "JANET": partial(JANET, hidden_size=1000, timescale=longest, beta=0.0),
        "LSTM-chrono": partial(LSTM, hidden_size=702, timescale=longest),
        "GRU": partial(GRU, hidden_size=813),
        "LSTM": partial(LSTM, hidden_size=702),
        "EURNN": partial(EURNN, hidden_size=2048),
        "GORU": partial(GORU, hidden_size=1024),
    }


def small_text_layers(longest: int = 50) -> Layers:
    """About 75,000 parameters: for quick runs."""
    return {
        "NRU": partial(NRU, hidden_size=171, memory_size=64, heads=4, relu_heads=True),
        "JANET": partial(JANET, hidden_size=160, timescale=longest, beta=0.0),
        "LSTM-chrono": partial(LSTM, hidden_size=110, timescale=longest),
        "GRU": partial(GRU, hidden_size=128),
        "LSTM": partial(LSTM, hidden_size=110),
        "EURNN": partial(EURNN, hidden_size=256),
        "GORU": partial(GORU, hidden_size=128),
    }


def recipes(layers: Layers, **reading: Any) -> dict[str, Recipe]:
    """Adam at 10⁻³, the gradient's norm clipped at 1 but for EURNN and GORU."""
    return {name: Recipe(partial(sequence_model, layer=layer, **reading), adam(name)) for name, layer in layers.items()}


def adam(unit: str) -> Adam:
    return Adam(1e-3) if unit in FREE else Adam(1e-3, clip="norm", limit=1.0)
