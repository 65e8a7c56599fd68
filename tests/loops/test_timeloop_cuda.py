"""The GPU's loops over time: on the host, where every thread of every block is a fibre, and on a GPU if there is one.

On the host the very source that a GPU would get is compiled as C++ (``blocks_on_host.hpp`` stands in for the device).
"""

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from numerate.loops import native, nvrtc
from numerate.loops.cuda_timeloop import CudaTimeLoop, Plan, plans
from numerate.loops.pointwise import Sizes
from numerate.loops.timeloop import Walk
from numerate.loops.trace import NotLowered
from numerate.recurrent import GRU, JANET, LSTM, NRU, OLSTM, RNN, URLSTM, CellLayer, ColumnCell, NRUCell
from numerate.recurrent.fast import use_loop
from numerate.recurrent.nru_cuda import CudaNRULoop
from numerate.recurrent.unroll import walk as walk_plainly

on_host = pytest.mark.skipif(not native.available(), reason="needs a C++ compiler")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SHARED = 232_448


class HostKernel:
    """Runs a kernel on the host."""

    def __init__(self, source: str, name: str) -> None:
        shim = Path(__file__).with_name("blocks_on_host.hpp").read_text()
        found = re.search(rf"KERNEL void {name}\((.*?)\) {{", source, re.DOTALL)
        assert found
        kinds = [re.sub(r"\w+$", "", argument.strip()) for argument in found[1].split(",")]
        call = ", ".join(f"({kind})arguments[{i}]" for i, kind in enumerate(kinds))
        entry = f"static void kernel(const uint64_t *arguments) {{ {name}({call}); }}"
        self.library = native.library("\n".join([shim, source, entry]))

    def launch(self, blocks: int, *arguments: Tensor | int, together: bool) -> None:
        assert together
        values = [a.data_ptr() if isinstance(a, Tensor) else a for a in arguments]
        self.library.launch(blocks, (ctypes.c_uint64 * len(values))(*values))


class OnHost:
    """A machine with six processors in place of the device; parts of a given size."""

    units: int
    processors = 6

    def plans(self, batch: int) -> list[Any]:
        return [plan for plan in super().plans(batch) if plan.units == self.units]  # type: ignore[misc]


class HostTimeLoop(OnHost, CudaTimeLoop):
    def kernel(self, plan: Plan, direction: str) -> Any:
        from numerate.loops.cuda_timeloop import STORAGE, emit

        return HostKernel(emit(self.program, plan, STORAGE[self.dtype], direction), direction)


class HostNRULoop(OnHost, CudaNRULoop):
    def kernel(self, plan: Any, direction: str) -> Any:
        return HostKernel(self.source(plan, direction), direction)


@pytest.fixture(autouse=True)
def shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        monkeypatch.setattr(nvrtc, "shared_memory", lambda device: SHARED)


def host_loop(layer: CellLayer, dtype: torch.dtype, units: int) -> Any:
    cell, device = layer.cell, torch.device("cpu")
    if isinstance(cell, NRUCell):
        rows = 2 * cell.heads + 4 * cell.factor_size
        columns = cell.hidden_size + (rows if cell.head_inputs == "xhm" else 0)
        scale = 1 / cell.heads if cell.head_reduce == "mean" else 1.0
        loop: Any = HostNRULoop(cell.hidden_size, columns, cell.memory_size, cell.heads, scale, dtype, device)
    else:
        assert isinstance(cell, ColumnCell)
        extras = len(cell.extras(layer.parts()))
        sizes = Sizes(cell.hidden_size, sum(cell.blocks.values()), len(cell.state_shapes), extras)
        loop = HostTimeLoop(cell.activate, sizes, dtype, device)
    loop.units = units
    return loop


CASES: dict[str, tuple[CellLayer, int, int, int, bool, torch.dtype]] = {  # layer, units, steps, batch, reverse, dtype
    "UR-LSTM": (URLSTM(3, 20), 8, 4, 5, False, torch.float32),
    "UR-LSTM in chunks": (URLSTM(3, 70), 32, 3, 5, True, torch.float32),
    "UR-LSTM bfloat16": (URLSTM(3, 20), 16, 4, 5, False, torch.bfloat16),
    "GRU": (GRU(3, 37), 8, 5, 9, False, torch.float32),
    "JANET in passes": (JANET(3, 8), 4, 3, 210, False, torch.float32),
    "NRU": (NRU(3, 20, memory_size=16, heads=4), 8, 4, 5, True, torch.float32),
    "NRU as printed": (
        NRU(3, 40, memory_size=64, heads=4, head_inputs="xhm", head_reduce="sum"), 16, 3, 5, False, torch.float32
    ),
    "NRU bfloat16": (NRU(3, 36, memory_size=64, heads=4), 8, 3, 9, False, torch.bfloat16),
}  # fmt: skip


@on_host
@pytest.mark.parametrize("case", CASES)
def test_kernels_compute_what_plain_steps_do(case: str) -> None:
    layer, units, steps, batch, reverse, dtype = CASES[case]
    torch.manual_seed(3)
    layer.reset_parameters()
    cell, loop, walk = layer.cell, host_loop(layer, dtype, units), Walk((batch,) * steps, reverse)
    assert loop.accepts(walk)
    p = {name: part.detach().to(dtype).float() for name, part in layer.parts().items()}
    weight, extras = cell.loop_operands(p)
    gx = cell.project(torch.randn(steps, batch, 3), p).to(dtype).float()
    state = [torch.randn(batch, *shape) / 2 for shape in cell.state_shapes]
    inputs = [tensor.detach().requires_grad_() for tensor in (gx, weight, *state, *extras)]
    gx, weight, *rest = inputs
    state, extras = tuple(rest[: len(state)]), tuple(rest[len(state) :])
    outputs, final = walk_plainly(cell, gx, cell.prepared_with(p, weight, extras), state, reverse=reverse)
    above = [torch.randn_like(outputs).to(dtype).float(), *(torch.randn_like(entry) for entry in final)]
    expected = torch.autograd.grad([outputs, *final], inputs, above)

    plain_state, plain_extras = ([tensor.detach() for tensor in group] for group in (state, extras))
    stored = weight.detach().to(dtype)
    found_final, history, saved = loop.forward(
        walk, gx.detach().flatten(0, 1).to(dtype), stored, plain_state, plain_extras, True
    )
    dgx, dweight, dstate, dextra = loop.backward(
        walk, stored, plain_state, plain_extras, history, saved, above[0].flatten(0, 1).to(dtype), above[1:]
    )
    bound = 2e-6 if dtype == torch.float32 else 1e-2
    pairs = [(outputs.flatten(0, 1), history[0]), *zip(final, found_final)]
    pairs += zip((expected[0].flatten(0, 1), *expected[1:]), (dgx, dweight, *dstate, *dextra))
    for wanted, got in pairs:
        assert float((wanted - got.float()).detach().norm()) <= bound * float(wanted.detach().norm())


def test_plans_use_the_device_and_keep_the_weight_in_registers() -> None:
    best = plans(Sizes(200, 800, 2, 0), 100, 132, SHARED)[0]
    assert (best.units, best.parts, best.groups) == (16, 13, 10)  # the fastest one on an H200
    for hidden in (1, 7, 80, 512, 1024):
        for plan in plans(Sizes(hidden, 4 * hidden, 2, 0), 100, 132, SHARED):
            assert plan.blocks <= 132
            assert plan.parts * plan.units >= hidden
            assert plan.groups * plan.rows_each >= 100
            assert plan.passes * plan.rows >= plan.rows_each
    assert not plans(Sizes(4096, 4 * 4096, 2, 0), 100, 132, SHARED)


def test_what_a_gpu_cannot_do_is_refused() -> None:
    device = torch.device("cpu")
    ordered = OLSTM(3, 8).cell
    assert isinstance(ordered, ColumnCell)
    with pytest.raises(NotLowered, match="along the units"):
        CudaTimeLoop(ordered.activate, Sizes(8, 32, 2, 0), torch.float32, device)
    with pytest.raises(NotLowered, match="float64"):
        CudaTimeLoop(ordered.activate, Sizes(8, 32, 2, 0), torch.float64, device)


# ---------------------------------------------------------------- on a GPU

LAYERS: dict[str, tuple[type[CellLayer], int, dict[str, Any]]] = {
    "UR-LSTM": (URLSTM, 200, {}),
    "UR-LSTM 512": (URLSTM, 512, {}),
    "LSTM": (LSTM, 200, {}),
    "GRU": (GRU, 80, {}),
    "GRU of a size for cuDNN": (GRU, 3000, {}),
    "two directions": (URLSTM, 40, {"bidirectional": True}),
    "RNN": (RNN, 100, {}),
    "NRU": (NRU, 200, {"memory_size": 256, "heads": 4}),
    "NRU as printed": (NRU, 80, {"memory_size": 64, "heads": 4, "head_inputs": "xhm", "head_reduce": "sum"}),
}


@on_gpu
@pytest.mark.parametrize("case", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_on_the_device_loops_agree_with_plain_steps(case: str, dtype: torch.dtype) -> None:
    kind, hidden, options = LAYERS[case]
    torch.manual_seed(0)
    layer = kind(3, hidden, **options).cuda().to(dtype)
    reference = kind(3, hidden, **options).cuda()
    reference.load_state_dict(layer.state_dict())
    x = torch.randn(20, 37, 3, device="cuda", dtype=dtype)
    bound = 2e-3 if dtype == torch.float32 else 2e-2  # the weight's gradient is in TF32, as that of cuDNN

    def run(model: CellLayer, x: Tensor, mode: Any) -> list[Tensor]:
        x = x.clone().requires_grad_()
        with use_loop(mode):
            outputs, final = model(x)
        results = [outputs, *final]
        generator = torch.Generator("cuda").manual_seed(1)
        above = [torch.randn(r.shape, device="cuda", generator=generator).to(r.dtype) for r in results]
        return [*results, *torch.autograd.grad(results, [x, *model.parameters()], above)]

    expected, found, again = run(reference, x.float(), "plain"), run(layer, x, "native"), run(layer, x, "native")
    for wanted, got, twin in zip(expected, found, again):
        assert float((wanted - got.float()).detach().norm()) <= bound * float(wanted.detach().norm())
        assert torch.equal(got, twin) or case.endswith("cuDNN")
