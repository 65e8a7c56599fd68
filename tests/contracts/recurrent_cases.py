"""Every exported recurrent layer at a small size, with the options that are held to the contract, and inputs for it."""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

import numerate.recurrent
from numerate.recurrent import CellLayer, Recurrent
from numerate.units import NAU, NMU

I, H, T, B = 3, 4, 5, 3  # noqa: E741  the papers' letters

LAYERS: dict[str, type[CellLayer]] = {
    name: layer
    for name in numerate.recurrent.__all__
    if inspect.isclass(layer := getattr(numerate.recurrent, name))
    and issubclass(layer, CellLayer)
    and layer is not CellLayer
}

# What a layer needs at the small size of these tests.
SMALL: dict[str, dict[str, Any]] = {
    "StatisticalRU": {"statistics_size": 3, "summary_size": 2},
    "NRU": {"memory_size": 4, "heads": 1},
    "DNC": {"slots": 3, "width": 2, "read_heads": 2},
    "RMA": {"encoder": (4, 2), "heads": 2, "rows": 3, "top_k": 2},
    "RMC": {"slots": 2, "heads": 2},
    "UnitRNN": {"unit": NAU},
    "LMU": {"memory_size": 3, "theta": 6},
    "S4D": {"state_size": 4},
    "S6": {"state_size": 3},
} | {gate + base: {"downsize": 2} for gate in ("OM", "UM") for base in ("LSTM", "GRU")}
SMALL["ONLSTM"] = {"downsize": 2}
SMALL |= {name: {"timescale": 20} for name in ("CLSTM", "CGRU")}

# Further options to be held to the same contract; {} is always among them.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "RNN": [{"layer_norm": True, "recurrent_init": "orthogonal"}, {"activation": "relu", "bias": False}],
    "LSTM": [{"bias": False}, {"tied": True}],
    "GRU": [{"reset_after": False}, {"tied": False}],
    "URGRU": [{"reset_after": False, "recurrent_bias": True}],
    "StatisticalRU": [
        {"learn_scales": True},
        {"summary_size": 0, "linear_output": True},
        {"output_sees_input": True, "append_input": True, "activation": "tanh"},
    ],
    "EURNN": [
        {"dense": True},
        {"dense": False},
        {"complex": True, "eps": 0.01},
        {"complex": True, "dense": False},
        {"capacity": 3},
        {"capacity": 3, "dense": False, "complex": True},
    ],
    "GORU": [{"dense": False}, {"capacity": 3}, {"capacity": 3, "dense": False}],
    "NRU": [
        {"memory_size": 16, "heads": 4},
        {"memory_size": 4, "heads": 4, "relu_heads": True},
        {"memory_size": 9, "heads": 4},
        {"head_inputs": "xhm", "head_reduce": "sum", "shared_q": False, "heads": 2},
        {"layer_norm": True, "factored": False},
        {"memory_size": 4, "heads": 4, "erase_heads": 1},
        {"memory_size": 3, "heads": 2, "erase_heads": 1, "directions": "linear"},
    ],
    "ControlledNALU": [{"numbers": 3, "arithmetic_inputs": 2}],
    "DNC": [{"write_heads": 2, "clip": 2.0, "strength": "oneplus", "outputs": 3, "gate": "UR"}],
    "RMA": [
        {"top_k": None, "depth": 1, "gate": "UR"},
        {"encoder": (3,), "depth": 3, "heads": 1, "rows": 2, "gate": "OM", "downsize": 2},
    ],
    "RMC": [
        {"gate_style": "memory", "blocks": 2},
        *({"gate": gate} for gate in ("O", "U", "R", "OR", "UR")),
        *({"gate": gate, "downsize": 2} for gate in ("OM", "UM")),
        {"gate": "C", "timescale": 20},
        {"gate": numerate.recurrent.Gate("tied", tied=True)},
    ],
    "SLSTM": [{"heads": 2, "forget": "exponential"}],
    "MinGRU": [{"candidate": "linear", "bias": False}],
    "LRU": [{"state_size": 3, "r_min": 0.9}],
    "S5": [{"state_size": 8, "blocks": 2}],
    "S6": [{"state_size": 1, "step_rank": 2}],
    "UnitRNN": [{"unit": NMU}, {"unit": NMU, "initial": "learnt"}, {"initial": 0.5}],
}


def cases(*, variants: bool = True) -> Any:
    found = []
    for name in LAYERS:
        for options in [{}, *(VARIANTS.get(name, []) if variants else [])]:
            text = ",".join(f"{key}={getattr(value, '__name__', value)}" for key, value in options.items())
            found.append(pytest.param(name, options, id=f"{name}({text})"))
    return pytest.mark.parametrize(("name", "options"), found)


def make(name: str, options: dict[str, Any], *, layers: int = 1, seed: int = 0, **more: Any) -> Recurrent:
    settings: dict[str, Any] = {"dtype": torch.float64} | SMALL.get(name, {}) | options | more
    layer = LAYERS[name](I, H, layers, **settings)
    layer.reset_parameters(torch.Generator().manual_seed(seed))
    return layer.eval()


def sequence(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.randn(*(shape or (T, B, I)), generator=torch.Generator().manual_seed(seed), dtype=dtype)


def random_state(layer: Recurrent, batch: int = B, seed: int = 2) -> tuple[Tensor, ...]:
    """A state the layer could be in: the one after a few steps on other inputs."""
    return tuple(entry.detach() for entry in layer(sequence(2, batch, I, seed=seed).to(next(layer.parameters())))[1])


def equal(one: Any, two: Any) -> None:
    torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10)
