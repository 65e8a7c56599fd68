"""Many models of one layer under ``vmap``, by native loops with a dimension of models; on a CPU, and a GPU if any."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from numerate.loops.toolchain import native
from numerate.recurrent import (
    EURNN,
    GORU,
    GRU,
    JANET,
    LMU,
    LRU,
    LSTM,
    NRU,
    OLSTM,
    RNN,
    S4D,
    S5,
    S6,
    SLSTM,
    URLSTM,
    CellLayer,
    MinGRU,
    MinLSTM,
    StatisticalRU,
)
from numerate.recurrent.dispatch import choose, unroll
from numerate.torch_internals import cudnn_rnn_precision, set_cudnn_rnn_precision

on_gpu = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))
on_cpu = pytest.param("cpu", marks=pytest.mark.skipif(not native.available(), reason="needs a C++ compiler"))
devices = pytest.mark.parametrize("device", [on_cpu, on_gpu])

SIZE, MODELS, STEPS, BATCH, EXACT = 3, 3, 17, 5, 2e-5
LAYERS: dict[str, Callable[[], CellLayer]] = {
    "LSTM": lambda: LSTM(SIZE, 21),
    "GRU": lambda: GRU(SIZE, 20),
    "JANET": lambda: JANET(SIZE, 19),
    "NRU": lambda: NRU(SIZE, 20, memory_size=16, heads=4),
    "UR-LSTM": lambda: URLSTM(SIZE, 20),
    "GORU": lambda: GORU(SIZE, 16),
    "EURNN": lambda: EURNN(SIZE, 16),
    "EURNN, multiplied out": lambda: EURNN(SIZE, 16, dense=True),
    "RNN with layer norm": lambda: RNN(SIZE, 20, layer_norm=True),
    "sLSTM": lambda: SLSTM(SIZE, 20),
    "LMU": lambda: LMU(SIZE, 12, memory_size=6, theta=STEPS),
    "minGRU": lambda: MinGRU(SIZE, 20),
    "minLSTM": lambda: MinLSTM(SIZE, 20),
    "LRU": lambda: LRU(SIZE, 12),
    "S4D in two directions": lambda: S4D(SIZE, 5, state_size=6, bidirectional=True),
    "S5": lambda: S5(SIZE, 12),
    "S6": lambda: S6(SIZE, 20, state_size=3),
    "NRU with ReLU heads": lambda: NRU(SIZE, 20, memory_size=16, heads=4, relu_heads=True),
    "SRU": lambda: StatisticalRU(SIZE, 12, statistics_size=20, summary_size=9, learn_scales=True),
    "O-LSTM in two directions": lambda: OLSTM(SIZE, 16, bidirectional=True),
}
LARGE: dict[str, Callable[[], CellLayer]] = {  # in parts on a GPU, whose blocks wait for each other
    "UR-LSTM 300": lambda: URLSTM(SIZE, 300),
    "GORU 256": lambda: GORU(SIZE, 256),
    "NRU 200": lambda: NRU(SIZE, 200, memory_size=256, heads=4),
    "S6 300": lambda: S6(SIZE, 300),
    "NRU beyond the registers": lambda: NRU(SIZE, 1229, memory_size=256, heads=4, relu_heads=True),
    "SRU 200": lambda: StatisticalRU(SIZE, 87, statistics_size=200, summary_size=64),
    "UR-LSTM beyond the registers": lambda: URLSTM(SIZE, 2000),
}
SELDOM = ("sLSTM", "minLSTM", "LRU", "S5")
"""Each has a loop to compile, which is made as that of another layer is."""
each_layer = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SELDOM else []) for name in LAYERS]
)


@pytest.fixture(autouse=True)
def exactly() -> Iterator[None]:
    """Without TF32, which a GPU's gradients of weights otherwise take as cuDNN does."""
    before = cudnn_rnn_precision()
    set_cudnn_rnn_precision("ieee")
    yield
    set_cudnn_rnn_precision(before)


@pytest.fixture(autouse=True)
def natively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where plain steps are taken."""

    def chosen(*arguments: Any) -> choose.Choice:
        choice = choose.choose(*arguments)
        assert choice.kind == "native", choice.reason
        return choice

    monkeypatch.setattr(unroll, "choose", chosen)


def models(make: Callable[[], CellLayer], device: str, count: int = MODELS) -> list[CellLayer]:
    torch.manual_seed(1)
    return [make().to(device) for _ in range(count)]


def stacked(layers: list[CellLayer], x: Any, *state: Tensor, dim: int = 0) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and final state of all models, and the gradients of their parameters; x has models at ``dim``."""
    parameters, _ = stack_module_state(layers)  # type: ignore[arg-type]

    def run(p: dict[str, Tensor], x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        output, final = functional_call(layers[0], p, (x, state) if state else (x,))
        return output, *final

    results = vmap(run, in_dims=(0, dim, *[0] * len(state)))(parameters, x, *state)
    return list(results), list(torch.autograd.grad(loss(results), list(parameters.values())))


def alone(layer: CellLayer, x: Any, *state: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    output, final = layer(x, state) if state else layer(x)
    return [output, *final], list(torch.autograd.grad(loss((output, *final)), list(layer.parameters())))


def loss(results: Any) -> Tensor:
    output, *final = results
    return output.square().sum() + sum(entry.sin().sum() for entry in final)


def assert_near(found: list[Tensor], expected: list[Tensor]) -> None:
    for got, wanted in zip(found, expected, strict=True):
        assert (got - wanted).norm() <= EXACT * wanted.norm() + 1e-30


def compare(layers: list[CellLayer], x: Tensor, dim: int = 0) -> None:
    results, gradients = stacked(layers, x, dim=dim)
    for k, layer in enumerate(layers):
        outputs, own = alone(layer, x.select(dim, k))
        assert_near([entry[k] for entry in results], outputs)
        assert_near([entry[k] for entry in gradients], own)


@devices
@each_layer
def test_models_under_vmap_are_single_layers(name: str, device: str) -> None:
    """In outputs, final state and gradients, wherever the mapped dimension lies."""
    compare(models(LAYERS[name], device), torch.randn(STEPS, MODELS, BATCH, SIZE, device=device), dim=1)


@pytest.mark.parametrize("device", [on_gpu])
@pytest.mark.parametrize("name", LARGE)
def test_large_models_on_the_device(name: str, device: str) -> None:
    compare(models(LARGE[name], device), torch.randn(MODELS, STEPS, 30, SIZE, device=device))


@devices
@pytest.mark.parametrize("name", ["LSTM", "NRU", "RNN with layer norm", "minGRU"])
def test_no_number_of_a_model_depends_on_the_others(name: str, device: str) -> None:
    """Models change places and one of them is NaN: the bits of the others stay."""
    layers, x = models(LAYERS[name], device), torch.randn(MODELS, STEPS, BATCH, SIZE, device=device)
    results, gradients = stacked(layers, x)
    with torch.no_grad():
        next(layers[2].parameters()).fill_(torch.nan)
    changed, others = stacked([layers[1], layers[2], layers[0]], x[[1, 2, 0]])
    for before, after in zip((*results, *gradients), (*changed, *others), strict=True):
        assert torch.equal(before[0], after[2])
        assert torch.equal(before[1], after[0])
    assert changed[0][1].isnan().any()


@devices
@pytest.mark.parametrize("name", ["LSTM", "NRU", "RNN with layer norm", "minGRU"])
def test_states_are_carried_and_evaluation_gives_the_same_bits(name: str, device: str) -> None:
    layers, x = models(LAYERS[name], device), torch.randn(MODELS, 2 * STEPS, BATCH, SIZE, device=device)
    parameters, _ = stack_module_state(layers)  # type: ignore[arg-type]

    @torch.no_grad()
    def evaluate(x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        def run(p: dict[str, Tensor], x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
            output, final = functional_call(layers[0], p, (x, state) if state else (x,))
            return output, *final

        return vmap(run)(parameters, x, *state)

    whole, _ = stacked(layers, x)
    first, *state = evaluate(x[:, :STEPS])
    second, *final = evaluate(x[:, STEPS:], *state)
    for got, wanted in zip((torch.cat((first, second), 1), *final), whole, strict=True):
        assert torch.equal(got, wanted)


@devices
@pytest.mark.parametrize("name", ["GRU", "S6"])
def test_what_is_not_mapped_over_belongs_to_all_models(name: str, device: str) -> None:
    """One layer for several inputs: its gradient is the sum of theirs."""
    layer, x = models(LAYERS[name], device, 1)[0], torch.randn(MODELS, STEPS, BATCH, SIZE, device=device)
    together = vmap(lambda x: layer(x)[0])(x)
    found = torch.autograd.grad(together.square().sum(), list(layer.parameters()))
    expected = torch.autograd.grad(
        sum((layer(one)[0].square().sum() for one in x), x.new_zeros(())), list(layer.parameters())
    )
    assert_near(list(found), list(expected))


@devices
@pytest.mark.parametrize("name", ["UR-LSTM", "NRU", "S4D in two directions", "S6"])
def test_packed_sequences_of_models(name: str, device: str) -> None:
    layers, x = models(LAYERS[name], device), torch.randn(MODELS, STEPS, BATCH, SIZE, device=device)
    sequences = [pack_padded_sequence(one, torch.tensor([STEPS, 9, 8, 3, 1])) for one in x]
    data, sizes = torch.stack([sequence.data for sequence in sequences]), sequences[0].batch_sizes

    def output(p: dict[str, Tensor], data: Tensor) -> Tensor:
        return functional_call(layers[0], p, (PackedSequence(data, sizes),))[0].data

    parameters, _ = stack_module_state(layers)  # type: ignore[arg-type]
    together = vmap(output)(parameters, data)
    found = torch.autograd.grad(together.square().sum(), list(parameters.values()))
    for k, layer in enumerate(layers):
        own = layer(sequences[k])[0].data
        expected = torch.autograd.grad(own.square().sum(), list(layer.parameters()))
        assert_near([together[k], *(g[k] for g in found)], [own, *expected])


@devices
@pytest.mark.parametrize("name", ["UR-LSTM", "minGRU"])
def test_second_derivatives_of_models(name: str, device: str) -> None:
    def twice(parameters: dict[str, Tensor], run: Callable[[dict[str, Tensor]], Tensor]) -> list[Tensor]:
        values = list(parameters.values())
        gradient = torch.autograd.grad(run(parameters).square().sum(), values, create_graph=True)
        return list(torch.autograd.grad(sum((g.square().sum() for g in gradient), values[0].new_zeros(())), values))

    layers = [layer.double() if device == "cpu" else layer for layer in models(LAYERS[name], device, 2)]
    x = torch.randn(2, STEPS, BATCH, SIZE, device=device, dtype=next(layers[0].parameters()).dtype)
    parameters, _ = stack_module_state(layers)  # type: ignore[arg-type]
    found = twice(parameters, lambda p: vmap(lambda p, x: functional_call(layers[0], p, (x,))[0])(p, x))
    for k, layer in enumerate(layers):
        own = twice(dict(layer.named_parameters()), lambda p, layer=layer, k=k: layer(x[k])[0])
        for got, wanted in zip(found, own, strict=True):
            assert (got[k] - wanted).norm() <= 1e-3 * wanted.norm()


@pytest.mark.parametrize("device", [on_gpu])
@pytest.mark.parametrize("name", ["LSTM", "NRU", "RNN with layer norm", "LMU", "minGRU", "S6"])
def test_an_update_is_one_graph(name: str, device: str) -> None:
    """Forward and backward under vmap in a CUDA graph, replayed with other inputs."""
    layers, x = models(LAYERS[name], device), torch.randn(MODELS, STEPS, BATCH, SIZE, device=device)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        stacked(layers, x)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        results, gradients = stacked(layers, x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    expected = stacked(layers, x)
    for got, wanted in zip((*results, *gradients), (*expected[0], *expected[1]), strict=True):
        assert torch.equal(got, wanted)
