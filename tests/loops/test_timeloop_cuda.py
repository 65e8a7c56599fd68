"""The GPU's loops over time on the host, where every thread of every block is a fibre.

The very source that a GPU would get is compiled as C++ (``blocks_on_host.hpp`` stands in for the device).
"""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from device_compiler import needs_compiler, said_about
from layer_results import results
from torch import Tensor

from numerate.loops.timeloops.cuda_reducing import CudaReducingLoop
from numerate.loops.timeloops.cuda_rowloop import CudaRowLoop
from numerate.loops.timeloops.cuda_rowloop import emit as emit_rows
from numerate.loops.timeloops.cuda_timeloop import STORAGE, CudaTimeLoop, plans
from numerate.loops.timeloops.pointwise import Sizes, pointwise
from numerate.loops.timeloops.timeloop import Walk
from numerate.loops.toolchain import native, nvrtc
from numerate.loops.tracing.trace import NotLowered
from numerate.recurrent import (
    EURNN,
    GRU,
    JANET,
    NRU,
    OLSTM,
    OMLSTM,
    ORGRU,
    RNN,
    URLSTM,
    CellLayer,
    ColumnCell,
    NRUCell,
    StatisticalRU,
)
from numerate.recurrent.dispatch import choose, use_loop
from numerate.recurrent.dispatch.plain import plain_steps
from numerate.recurrent.eurnn import EURNNCell
from numerate.recurrent.nru_loops.cuda import CudaNRULoop
from numerate.recurrent.nru_loops.cuda_steps import CudaNRUSteps
from numerate.recurrent.rotation_loops.cuda import CudaRotationLoop
from numerate.recurrent.statistical import StatisticalRUCell
from numerate.recurrent.statistical_loops.cuda import CudaStatisticalLoop

on_host = pytest.mark.skipif(not native.available(), reason="needs a C++ compiler")
SHARED = 232_448


class HostKernel:
    """Runs a kernel on the host, with so many bytes of shared memory."""

    def __init__(self, source: str, name: str, shared: int) -> None:
        self.shared = shared
        shim = Path(__file__).with_name("blocks_on_host.hpp").read_text()
        found = re.search(rf"KERNEL void {name}\((.*?)\) {{", source, re.DOTALL)
        assert found
        kinds = [re.sub(r"\w+$", "", argument.strip()) for argument in found[1].split(",")]
        call = ", ".join(f"({kind})arguments[{i}]" for i, kind in enumerate(kinds))
        entry = f"static void kernel(const uint64_t *arguments) {{ {name}({call}); }}"
        self.library = native.library("\n".join([shim, source, entry]))

    def launch(self, blocks: int, *arguments: Tensor | int, cooperative: bool = False) -> None:
        values = [a.data_ptr() if isinstance(a, Tensor) else a for a in arguments]
        assert not self.library.launch(blocks, (ctypes.c_uint64 * len(values))(*values), self.shared // 4)


class OnHost:
    """A machine with six processors in place of the device; parts of a given size."""

    units: int
    processors = 6

    def plans(self, batch: int, models: int = 1) -> list[Any]:
        return [plan for plan in super().plans(batch, models) if plan.units == self.units]  # type: ignore[misc]

    def kernel(self, plan: Any, direction: str, packed: bool) -> Any:
        loop = cast(Any, self)
        return HostKernel(loop.source(plan, direction, packed), direction, loop.shared(plan, direction))


class HostTimeLoop(OnHost, CudaTimeLoop):
    pass


class HostReducingLoop(OnHost, CudaReducingLoop):
    pass


class HostRowLoop(CudaRowLoop):
    def kernel(self, direction: str) -> Any:
        source, shared = emit_rows(self.program, STORAGE[self.dtype], direction)
        return HostKernel(source, direction, shared)


class HostNRULoop(OnHost, CudaNRULoop):
    pass


class HostNRUSteps(CudaNRUSteps):
    def kernel(self, name: str) -> Any:
        return HostKernel(self.source("forward" if name.startswith("to") else "backward"), name, self.shared(name))


class HostStatisticalLoop(CudaStatisticalLoop):
    def kernel(self, direction: str, packed: bool) -> Any:
        return HostKernel(self.source(direction, packed), direction, self.shared(direction))


class HostRotationLoop(CudaRotationLoop):
    def kernel(self, direction: str, packed: bool) -> Any:
        return HostKernel(self.source(direction, packed), direction, self.shared)


@pytest.fixture(autouse=True)
def shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host has as much as a device has, whether there is one or not."""
    of_device = nvrtc.shared_memory
    monkeypatch.setattr(nvrtc, "shared_memory", lambda at: SHARED if at.type == "cpu" else of_device(at))


def host_loop(layer: CellLayer, dtype: torch.dtype, units: int) -> Any:
    cell, device = layer.cell, torch.device("cpu")
    if isinstance(cell, NRUCell):
        nru_sizes = cell.loop_sizes()
        assert nru_sizes
        loop: Any = HostNRULoop(nru_sizes, dtype, device)
    else:
        assert isinstance(cell, ColumnCell)
        extras = len(cell.extras(layer.parts()))
        sizes = Sizes(cell.hidden_size, sum(cell.blocks.values()), len(cell.state_shapes), extras)
        kind = HostReducingLoop if cell.form == "reducing" else HostTimeLoop
        loop = kind(cell.activate, sizes, dtype, device)
    loop.units = units
    return loop


def host_steps(layer: CellLayer, dtype: torch.dtype) -> Any:
    """The loop that is not cut into parts: each step is a few kernels, or a block has a row."""
    cell, device = layer.cell, torch.device("cpu")
    if isinstance(cell, StatisticalRUCell):
        return HostStatisticalLoop(cell.loop_sizes(), dtype, device)
    if isinstance(cell, EURNNCell) and cell.rotation_sizes:
        return HostRotationLoop(cell.rotation_sizes, dtype, device)
    if isinstance(cell, NRUCell):
        sizes = cell.loop_sizes()
        assert sizes
        return HostNRUSteps(sizes, dtype, device)
    assert isinstance(cell, ColumnCell)
    return HostRowLoop(cell.activate, cell.loop_sizes(), dtype, device)


RELU: dict[str, Any] = {"memory_size": 16, "heads": 4, "relu_heads": True}
CASES: dict[str, tuple[CellLayer, int, tuple[int, ...], bool, torch.dtype]] = {  # layer, units, rows by step, reverse
    "UR-LSTM": (URLSTM(3, 20), 8, (5,) * 4, False, torch.float32),
    "UR-LSTM in chunks": (URLSTM(3, 70), 32, (5,) * 3, True, torch.float32),
    "UR-LSTM bfloat16": (URLSTM(3, 20), 16, (5,) * 4, False, torch.bfloat16),
    "UR-LSTM in one block": (URLSTM(3, 40), 40, (5,) * 4, False, torch.float32),
    "UR-LSTM packed": (URLSTM(3, 20), 8, (7, 7, 5, 2, 1), False, torch.float32),
    "UR-LSTM packed, backwards": (URLSTM(3, 20), 8, (9, 7, 7, 5, 1), True, torch.float32),
    "UR-LSTM float16": (URLSTM(3, 20), 16, (5,) * 4, False, torch.float16),
    "GRU": (GRU(3, 37), 8, (9,) * 5, False, torch.float32),
    "GRU in one block, packed": (GRU(3, 37), 37, (20, 20, 13, 2), True, torch.float32),
    "GRU in one block, packed, bfloat16": (GRU(3, 9), 9, (9, 9, 3), False, torch.bfloat16),
    "JANET in passes": (JANET(3, 8), 4, (210,) * 3, False, torch.float32),
    "JANET in passes, one block, packed": (JANET(3, 20), 20, (200, 101, 2), False, torch.float32),
    "NRU": (NRU(3, 20, memory_size=16, heads=4), 8, (5,) * 4, True, torch.float32),
    "NRU as printed": (
        NRU(3, 40, memory_size=64, heads=4, head_inputs="xhm", head_reduce="sum"), 16, (5,) * 3, False, torch.float32
    ),
    "NRU bfloat16": (NRU(3, 36, memory_size=64, heads=4), 8, (9,) * 3, False, torch.bfloat16),
    "NRU packed": (NRU(3, 20, memory_size=16, heads=4), 8, (9, 8, 8, 3, 1), False, torch.float32),
    "NRU packed, backwards": (NRU(3, 20, memory_size=16, heads=4), 8, (9, 8, 8, 3, 1), True, torch.float32),
    "NRU in one block": (NRU(3, 50, memory_size=64, heads=4), 50, (5,) * 4, False, torch.float32),
    "NRU with ReLU heads": (NRU(3, 20, **RELU), 8, (5,) * 4, True, torch.float32),
    "NRU with ReLU heads, packed, backwards": (NRU(3, 20, **RELU), 8, (9, 8, 8, 3, 1), True, torch.float32),
    "NRU with ReLU heads in one block, packed": (
        NRU(3, 37, memory_size=64, heads=4, relu_heads=True, head_inputs="xhm"), 37, (20, 9, 4), False, torch.float32
    ),
    "NRU with ReLU heads, bfloat16": (
        NRU(3, 36, memory_size=64, heads=4, relu_heads=True), 8, (9,) * 3, False, torch.bfloat16
    ),
    "OM-LSTM with a part of no units": (OMLSTM(3, 32, downsize=8), 8, (5,) * 3, False, torch.float32),
    "OR-GRU, several rows a block, packed": (ORGRU(3, 21), 8, (16, 16, 9, 1), False, torch.float32),
    "OM-LSTM in one block, packed, backwards": (OMLSTM(3, 24, downsize=4), 24, (9, 4, 4, 1), True, torch.float32),
    "RNN with layer norm": (RNN(3, 20, layer_norm=True), 8, (4, 4, 2), True, torch.float32),
    "NRU as printed in one block, packed": (
        NRU(3, 37, memory_size=16, heads=4, head_inputs="xhm", head_reduce="sum"), 37, (20, 9, 4), True, torch.float32
    ),
}  # fmt: skip


@on_host
@pytest.mark.parametrize("case", CASES)
def test_kernels_compute_what_plain_steps_do(case: str) -> None:
    layer, units, rows, reverse, dtype = CASES[case]
    torch.manual_seed(3)
    layer.reset_parameters()
    loop, walk = host_loop(layer, dtype, units), Walk(rows, reverse)
    assert loop.accepts(walk)
    plan = loop.plans(walk.batch)[0]
    assert (plan.parts == 1) == ("one block" in case)
    assert ((plan.parts - 1) * units >= layer.hidden_size) == ("no units" in case)
    assert_as_plain_steps(layer, loop, walk)


def assert_as_plain_steps(layer: CellLayer, loop: Any, walk: Walk, exact: float = 2e-6, rough: float = 1e-2) -> None:
    cell, dtype, rows, reverse = layer.cell, loop.dtype, walk.batch_sizes, walk.reverse
    p = {name: part.detach().to(dtype).float() for name, part in layer.parts().items()}
    weight, extras = cell.loop_operands(p)
    gx = cell.loop_input(cell.project(torch.randn(sum(rows), 3), p)).to(dtype).float()
    state = [torch.randn(walk.batch, *shape) / 2 for shape in cell.state_shapes]
    inputs = [tensor.detach().requires_grad_() for tensor in (gx, weight, *state, *extras)]
    gx, weight, *rest = inputs
    state, extras = tuple(rest[: len(state)]), tuple(rest[len(state) :])
    prepared = cell.prepared_with(p, weight, extras)
    outputs, final = plain_steps(cell.walked, gx, prepared, state, batch_sizes=rows, reverse=reverse)
    above = [torch.randn_like(outputs).to(dtype).float(), *(torch.randn_like(entry) for entry in final)]
    expected = torch.autograd.grad([outputs, *final], inputs, above)

    plain_state, plain_extras = ([tensor.detach() for tensor in group] for group in (state, extras))
    stored = weight.detach().to(dtype)
    given = walk, gx.detach().to(dtype), stored, plain_state, plain_extras
    found_final, history, saved = loop.forward(*given, True)
    final_alone, history_alone, nothing = loop.forward(*given, False)
    assert nothing is None
    assert torch.equal(history_alone[0], history[0])
    assert all(map(torch.equal, final_alone, found_final))
    dgx, dweight, dstate, dextra = loop.backward(
        walk, stored, plain_state, plain_extras, history, saved, above[0].to(dtype), above[1:]
    )
    bound = exact if dtype == torch.float32 else rough
    pairs = [(outputs, history[0]), *zip(final, found_final), *zip(expected, (dgx, dweight, *dstate, *dextra))]
    for wanted, got in pairs:
        assert float((wanted - got.float()).detach().norm()) <= bound * float(wanted.detach().norm())


@on_host
@pytest.mark.parametrize("units", [8, 20, 0], ids=["in parts", "in one block", "in steps"])
@pytest.mark.parametrize("largest", [1e9, float("inf")], ids=["large", "infinite"])
@pytest.mark.parametrize("relu", [False, True], ids=["linear", "ReLU"])
def test_kernels_of_the_nru_overflow_as_plain_steps_do(units: int, largest: float, relu: bool) -> None:
    """Directions beyond single precision are 0: those of one writing head and, by their q alone, all erasing ones."""
    torch.manual_seed(3)
    layer = NRU(3, 20, memory_size=16, heads=4, relu_heads=relu)
    with torch.no_grad():
        bias = layer.parts()["bias_heads"]
        bias[8:12] *= 1e7  # p
        bias[24:32] *= 1e4  # q
        bias[32:40] *= largest
    loop = host_loop(layer, torch.float32, units) if units else host_steps(layer, torch.float32)
    assert_as_plain_steps(layer, loop, Walk((5,) * 4, False), exact=5e-5)


@on_host
@pytest.mark.parametrize("units", [20, 0], ids=["in one block", "in steps"])
@pytest.mark.parametrize("relu", [False, True], ids=["linear", "ReLU"])
def test_kernels_of_the_nru_take_norms_of_zero_as_plain_steps_do(units: int, relu: bool) -> None:
    """p of one head that writes is 0, and q of all that erase; rectified, that leaves strengths without gradient."""
    torch.manual_seed(3)
    layer = NRU(3, 20, memory_size=16, heads=4, relu_heads=relu)
    with torch.no_grad():
        for name in ("weight_heads", "bias_heads"):
            layer.parts()[name][8:10] = 0
            layer.parts()[name][32:40] = 0
    loop = host_loop(layer, torch.float32, units) if units else host_steps(layer, torch.float32)
    assert_as_plain_steps(layer, loop, Walk((5,) * 2, False), exact=1e-5)


STEPS: dict[str, tuple[CellLayer, tuple[int, ...], bool, torch.dtype]] = {
    "O-LSTM": (OLSTM(3, 300), (2,) * 3, False, torch.float32),
    "OR-GRU packed": (ORGRU(3, 21), (5, 5, 3, 1), False, torch.float32),
    "GRU": (GRU(3, 300), (3, 3, 2), False, torch.float32),
    "NRU": (NRU(3, 20, memory_size=16, heads=4), (5,) * 4, True, torch.float32),
    "NRU as printed, packed": (
        NRU(3, 300, memory_size=64, heads=4, head_inputs="xhm", head_reduce="sum"),
        (5, 5, 3, 1),
        False,
        torch.float32,
    ),
    "NRU with ReLU heads, packed, backwards": (NRU(3, 20, **RELU), (9, 8, 8, 3, 1), True, torch.float32),
    "NRU with ReLU heads, bfloat16": (
        NRU(3, 36, memory_size=64, heads=4, relu_heads=True),
        (9,) * 3,
        False,
        torch.bfloat16,
    ),
}


STEPS |= {
    name: (StatisticalRU(3, 8, **options), rows, reverse, dtype)
    for name, (options, rows, reverse, dtype) in {
        "SRU": ({"statistics_size": 48, "summary_size": 32}, (3,) * 4, True, torch.float32),
        "SRU of weights beyond the registers": (
            {"statistics_size": 300, "summary_size": 40, "scales": (0.0, 0.5, 0.9)}, (2,) * 3, False, torch.float32
        ),
        "SRU, tanh, packed": (
            {"statistics_size": 20, "summary_size": 9, "activation": "tanh"}, (5, 5, 3, 1), False, torch.float32
        ),
        "SRU, sigmoid, packed, backwards": (
            {"statistics_size": 20, "summary_size": 37, "activation": "sigmoid", "scales": (0.3,)},
            (5, 5, 3, 1), True, torch.float32,
        ),
        "SRU, bfloat16": ({"statistics_size": 20, "summary_size": 9}, (5,) * 3, False, torch.bfloat16),
    }.items()
}  # fmt: skip
STEPS |= {
    f"EURNN {hidden}, {note}": (EURNN(3, hidden, eps=0.01), rows, reverse, dtype)
    for hidden, note, rows, reverse, dtype in [
        (2, "one level", (3,) * 4, False, torch.float32),
        (4, "one pass", (3,) * 4, True, torch.float32),
        (8, "packed", (5, 5, 3, 1), False, torch.float32),
        (64, "packed, backwards", (5, 5, 3, 1), True, torch.float32),
        (128, "bfloat16", (3,) * 4, False, torch.bfloat16),
        (1024, "every thread", (2,) * 3, False, torch.float32),
        (2048, "eight units a thread", (2,) * 3, True, torch.float32),
    ]
}


@on_host
@pytest.mark.parametrize("case", STEPS)
def test_kernels_of_a_row_compute_what_plain_steps_do(case: str) -> None:
    layer, rows, reverse, dtype = STEPS[case]
    torch.manual_seed(3)
    layer.reset_parameters()
    if isinstance(layer, EURNN) and dtype == torch.float32:  # some units are cut to 0; rounding decides which
        torch.nn.init.uniform_(layer.parts()["modrelu_bias"], -0.5, 0.1)
    assert_as_plain_steps(layer, host_steps(layer, dtype), Walk(rows, reverse), rough=6e-2)  # products are rounded too


MODELS: dict[str, tuple[CellLayer, int, int, tuple[int, ...]]] = {  # layer, units, models, rows by step
    "UR-LSTM in two launches": (URLSTM(3, 20), 8, 4, (5,) * 3),
    "NRU in one block, packed": (NRU(3, 20, memory_size=16, heads=4), 20, 7, (2, 2, 1)),
    "RNN with layer norm in one block, packed": (RNN(3, 20, layer_norm=True), 20, 3, (4, 4, 2)),
    "RNN with layer norm, each step a kernel": (RNN(3, 20, layer_norm=True), 0, 3, (4, 4, 2)),
    "NRU with ReLU heads, packed": (NRU(3, 20, **RELU), 8, 2, (4, 4, 2)),
    "NRU with ReLU heads, each step a few kernels": (NRU(3, 20, **RELU), 0, 3, (4, 4, 2)),
    "SRU, packed": (StatisticalRU(3, 8, statistics_size=20, summary_size=9), 0, 3, (4, 4, 2)),
    "EURNN, packed": (EURNN(3, 16), 0, 3, (4, 4, 2)),
}


@on_host
@pytest.mark.parametrize("case", MODELS)
def test_kernels_compute_each_of_several_models_as_alone(case: str) -> None:
    layer, units, models, rows = MODELS[case]
    cell, walk = layer.cell, Walk(rows, False)
    if units:
        loop = host_loop(layer, torch.float32, units)
        assert (loop.plans(walk.batch, models)[0].together < models) == ("launches" in case)
    else:
        loop = host_steps(layer, torch.float32)
    torch.manual_seed(3)
    single = []
    for _ in range(models):
        layer.reset_parameters()
        p = {name: part.detach() for name, part in layer.parts().items()}
        weight, extras = cell.loop_operands(p)
        state = [torch.randn(walk.batch, *shape) / 2 for shape in cell.state_shapes]
        above = [torch.randn(sum(rows), cell.walked.output_size), *(torch.randn_like(entry) for entry in state)]
        single.append((cell.project(torch.randn(sum(rows), 3), p), weight.contiguous(), state, list(extras), above))
    together = tree_map_stack(single)
    found, reference = both_ways(loop, walk, *together), cell.native_loop(torch.device("cpu"), torch.float32)
    for k, inputs in enumerate(single):
        for got, wanted in zip(found, both_ways(reference, walk, *inputs), strict=True):
            torch.testing.assert_close(got[k], wanted, atol=2e-6, rtol=2e-5)


def tree_map_stack(values: list[Any]) -> Any:
    """The same tree of tensors, those of all values stacked."""
    if isinstance(values[0], Tensor):
        return torch.stack(values)
    return type(values[0])(tree_map_stack(list(group)) for group in zip(*values))


def both_ways(loop: Any, walk: Walk, gx: Tensor, weight: Tensor, state: Any, extras: Any, above: Any) -> list[Tensor]:
    """Outputs, final state and gradients."""
    final, history, saved = loop.forward(walk, gx, weight, state, extras, True)
    dgx, dweight, *rest = loop.backward(walk, weight, state, extras, history, saved, above[0], above[1:])
    return [history[0], *final, dgx, dweight, *(tensor for group in rest for tensor in group)]


def test_plans_share_the_device_among_models() -> None:
    small, large = Sizes(70, 280, 2, 0), Sizes(256, 1024, 2, 0)
    best = plans(small, 10, 132, SHARED, 13)[0]
    assert (best.parts, best.groups, best.together) == (1, 10, 13)  # one row a block, all at once
    best = plans(small, 10, 132, SHARED, 104)[0]
    assert (best.parts, best.together) == (1, 104)
    assert best.groups < 10  # fewer blocks in the queue
    best = plans(large, 10, 132, SHARED, 4)[0]
    assert best.together == 4
    assert best.parts > 1
    for models in (2, 5, 50):
        for plan in plans(large, 10, 132, SHARED, models):
            assert plan.parts == 1 or plan.together * plan.blocks <= 132


def test_plans_use_the_device_and_keep_the_weight_in_registers() -> None:
    best = plans(Sizes(200, 800, 2, 0), 100, 132, SHARED)[0]
    assert (best.units, best.parts, best.groups) == (16, 13, 10)  # the fastest one on an H200
    best = plans(Sizes(80, 320, 2, 0), 10, 132, SHARED)[0]
    assert (best.parts, best.groups, best.rows) == (1, 10, 1)  # small enough for one block, which waits for nobody
    for hidden in (1, 7, 80, 300, 512, 1024):
        for plan in plans(Sizes(hidden, 4 * hidden, 2, 0), 100, 132, SHARED):
            assert plan.blocks <= 132
            assert plan.parts * plan.units >= hidden
            assert plan.groups * plan.rows_each >= 100
            assert plan.passes * plan.rows >= plan.rows_each
            assert plan.parts == 1 or (32 % plan.units, plan.rows % 4) == (0, 0)
    assert not plans(Sizes(4096, 4 * 4096, 2, 0), 100, 132, SHARED)


@needs_compiler
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("packed", [False, True], ids=["equal", "packed"])
@pytest.mark.parametrize(
    ("layer", "batch"),
    [
        (URLSTM(1, 512), 100),
        (GRU(1, 80), 10),
        (NRU(1, 200, memory_size=256, heads=4), 100),
        (NRU(1, 80), 10),
        (NRU(1, 212, memory_size=256, heads=4, relu_heads=True), 100),
        (RNN(1, 399, layer_norm=True), 100),
    ],
    ids=["UR-LSTM 512", "GRU 80", "NRU 200", "NRU 80", "NRU 212 with ReLU heads", "RNN 399"],
)
def test_kernels_compile_and_keep_all_in_registers(layer: CellLayer, batch: int, packed: bool, direction: str) -> None:
    loop = host_loop(layer, torch.float32, 0)
    loop.processors = 132
    plan = cast(Any, super(OnHost, loop)).plans(batch)[0]
    source = loop.source(plan, direction, packed)
    assert "0 bytes spill stores, 0 bytes spill loads" in said_about(source)


@needs_compiler
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    "layer", [OMLSTM(1, 512), OLSTM(1, 200), RNN(1, 80, layer_norm=True)], ids=lambda layer: layer.cell
)
def test_kernels_of_a_row_compile(layer: CellLayer, direction: str) -> None:
    cell = layer.cell
    assert isinstance(cell, ColumnCell)
    program = pointwise(cell.activate, cell.loop_sizes())
    for dtype, storage in STORAGE.items():
        assert "0 bytes spill stores" in said_about(emit_rows(program, storage, direction)[0]), dtype


@needs_compiler
@pytest.mark.parametrize("relu", [False, True], ids=["linear", "ReLU"])
def test_the_nru_of_character_models_runs_in_steps(relu: bool) -> None:
    layer = NRU(50, 1229, memory_size=256, heads=4, relu_heads=relu)
    persistent, steps = host_loop(layer, torch.float32, 0), host_steps(layer, torch.float32)
    persistent.processors = 132
    assert not cast(Any, super(OnHost, persistent)).plans(128)
    for direction in ("forward", "backward"):
        said = said_about(steps.source(direction))
        assert said.count("0 bytes spill stores, 0 bytes spill loads") == said.count("spill stores") == 2


@needs_compiler
@pytest.mark.parametrize("packed", [False, True], ids=["equal", "packed"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(("statistics", "summary"), [(48, 32), (200, 64), (256, 64)])
def test_the_sru_of_the_papers_fits_into_a_block(statistics: int, summary: int, direction: str, packed: bool) -> None:
    loop = host_steps(StatisticalRU(1, 8, statistics_size=statistics, summary_size=summary), torch.float32)
    assert "0 bytes spill stores, 0 bytes spill loads" in said_about(loop.source(direction, packed))


@needs_compiler
@pytest.mark.parametrize("packed", [False, True], ids=["equal", "packed"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("hidden", [2, 1024, 2048])
def test_the_angles_of_the_eurnn_fit_into_registers(hidden: int, direction: str, packed: bool) -> None:
    loop = host_steps(EURNN(1, hidden), torch.float32)
    assert "0 bytes spill stores, 0 bytes spill loads" in said_about(loop.source(direction, packed))


def test_without_a_compiler_no_loop_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_there(device: torch.device) -> int:
        raise native.NoCompiler("no compiler")

    monkeypatch.setattr(nvrtc, "shared_memory", none_there)
    for layer in (EURNN(1, 16), StatisticalRU(1, 8, statistics_size=8, summary_size=4)):
        with pytest.raises(native.NoCompiler):
            host_steps(layer, torch.float32)


def test_what_a_gpu_cannot_do_is_refused() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(NotLowered, match="more than 2048 units"):
        host_steps(EURNN(1, 4096, dense=False), torch.float32)
    ordered = OLSTM(3, 8).cell
    assert isinstance(ordered, ColumnCell)
    with pytest.raises(NotLowered, match="along the units"):
        CudaTimeLoop(ordered.activate, Sizes(8, 32, 2, 0), torch.float32, device)
    with pytest.raises(NotLowered, match="float64"):
        CudaTimeLoop(ordered.activate, Sizes(8, 32, 2, 0), torch.float64, device)


def small_sru(inputs: int, hidden: int, **options: Any) -> CellLayer:
    return StatisticalRU(inputs, hidden, statistics_size=20, summary_size=9, append_input=True, **options)


@on_host
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", [URLSTM, GRU, OLSTM, NRU, small_sru], ids=lambda kind: kind.__name__)
def test_layers_hand_over_the_right_types(
    kind: Callable[..., CellLayer], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole layers, packed and in two directions, with the kernels on the host in place of the CPU's loop."""

    def loop(cell: Any, device: torch.device, dtype: torch.dtype) -> Any:
        layer = kind(1, cell.hidden_size)
        return host_steps(layer, dtype) if kind is small_sru else host_loop(layer, dtype, cell.hidden_size)

    torch.manual_seed(1)
    layer, x = kind(3, 20, bidirectional=True).to(dtype), torch.randn(5, 7, 3).to(dtype)
    reference = kind(3, 20, bidirectional=True)
    reference.load_state_dict(layer.state_dict())
    lengths = torch.tensor([5, 3, 5, 1, 2, 5, 4])
    expected = results(reference, x.float(), "plain", lengths)
    rough = results(layer, x, "plain", lengths)
    monkeypatch.setattr(choose, "compiled_loop", loop)
    found = results(layer, x, "native", lengths)
    for wanted, other, got in zip(expected, rough, found):
        assert got.dtype == dtype
        bound = (1e-5 if dtype == torch.float32 else 1e-2) * wanted.norm()
        assert (wanted - got.float()).norm() <= torch.maximum(bound, 2 * (wanted - other.float()).norm())
    with use_loop("native"):
        loss = layer(x)[0].square().sum()
    gradient = torch.autograd.grad(loss, list(layer.parameters()), create_graph=True)
    gradient[0].square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
