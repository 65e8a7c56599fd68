"""Loops over time of diagonal recurrences against plain steps: C++, and the GPU's kernels on the host or on a GPU."""

from functools import cache
from typing import Any

import pytest
import torch
from device_compiler import needs_compiler, said_about
from test_timeloop_cuda import HostKernel, shared_memory  # noqa: F401  a fixture
from torch import Tensor

from numerate.loops.timeloops import cuda_diagonal
from numerate.loops.timeloops.cuda_diagonal import CudaDiagonalLoop, emit, segments
from numerate.loops.timeloops.cuda_timeloop import STORAGE
from numerate.loops.timeloops.diagonal import CppDiagonalLoop, Lanes, trace_coefficients
from numerate.loops.timeloops.timeloop import Walk
from numerate.loops.toolchain import native
from numerate.loops.tracing.trace import NotLowered

Group = tuple[Tensor, ...]
on_host = pytest.mark.skipif(not native.available(), reason="needs a C++ compiler")


def gated(columns: Group, extras: Group) -> Group:
    z, candidate = columns
    return (-z).sigmoid(), z.sigmoid() * candidate.tanh()


def rotated(columns: Group, extras: Group) -> Group:
    re, im, scale = extras
    return re, im, scale * columns[0], scale * columns[1]  # an extra that is used twice


def bank(columns: Group, extras: Group) -> Group:
    re, im, b_re, b_im, *c = extras
    return re, im, b_re * columns[0], b_im * columns[0], *c


def selective(columns: Group, extras: Group) -> Group:
    step, u = columns
    return (step * extras[0]).exp(), step * u, torch.ones_like(u)


STEPS: dict[str, tuple[Any, Lanes]] = {
    "real": (gated, Lanes(37, 1, 1, 2, 0, False, False)),
    "complex": (rotated, Lanes(37, 1, 2, 2, 3, False, False)),
    "bank": (bank, Lanes(5, 3, 2, 1, 6, True, False)),
    "selective": (selective, Lanes(37, 3, 1, 2, 1, True, True)),
}


def plainly(step: Any, lanes: Lanes, walk: Walk, gx: Tensor, state: Tensor, extra: Tensor) -> tuple[Tensor, Tensor]:
    """One row and one step after the other, in complex numbers; state: (models * B, parts, modes, units)."""
    total, ends = sum(walk.batch_sizes), []

    def number(parts: Group) -> Tensor:
        return torch.complex(*torch.broadcast_tensors(*parts)) if len(parts) == 2 else parts[0]

    found: list[Any] = [None] * len(gx)
    for index in range(len(extra) * walk.batch):
        model, b = divmod(index, walk.batch)
        s = number(state[index].unbind(0))
        steps = [t for t, alive in enumerate(walk.batch_sizes) if alive > b]
        for t in reversed(steps) if walk.reverse else steps:
            row = model * total + walk.starts[t] + b
            columns = gx[row, : lanes.columns * lanes.units].view(lanes.columns, lanes.units).unbind(0)
            parts = step(columns, extra[model].unbind(0))
            a, drive, *read = (number(parts[k : k + lanes.parts]) for k in range(0, len(parts), lanes.parts))
            factors = gx[row, lanes.columns * lanes.units :].view(2, -1, 1) if lanes.shared else (1.0, 1.0)
            s = a * s + drive * factors[0]
            if lanes.summed:
                y = (read[0] * factors[1] * s).sum(0)
                found[row] = y.real if lanes.parts == 2 else y
            else:
                found[row] = torch.cat((s.real[0], s.imag[0])) if lanes.parts == 2 else s[0]
        ends.append(torch.stack((s.real, s.imag)) if lanes.parts == 2 else s.unsqueeze(0))
    return torch.stack(found), torch.stack(ends)


def assert_as_plain_steps(name: str, loop: Any, walk: Walk, models: int, exact: float) -> None:
    step, lanes = STEPS[name]
    torch.manual_seed(4)
    wide = torch.promote_types(loop.dtype, torch.float32)
    gx = torch.randn(models * sum(walk.batch_sizes), lanes.width).to(loop.dtype).to(torch.float64)
    if name == "selective":
        gx[:, : lanes.units] = gx[:, : lanes.units].abs().to(loop.dtype)
    state = torch.randn(models * walk.batch, lanes.parts, lanes.modes, lanes.units).double()
    extra = 0.7 * torch.rand(models, lanes.extras, lanes.modes, lanes.units).double()
    if name == "selective":
        extra.neg_()
    inputs = [tensor.requires_grad_() for tensor in (gx, state, extra)]
    out, final = plainly(step, lanes, walk, *inputs)
    above = torch.randn_like(out).to(loop.dtype).to(torch.float64), torch.randn_like(final)
    expected = torch.autograd.grad([out, final], inputs, above, allow_unused=True)

    given = [gx.detach().to(loop.dtype), *(tensor.detach().to(wide) for tensor in (state, extra))]
    got_out, got_final, kept = loop.forward(walk, *given, keep=True)
    assert torch.equal(loop.forward(walk, *given, keep=False)[0], got_out)
    dgx, dstate, dextra = loop.backward(walk, given[0], given[2], kept, above[0].to(loop.dtype), above[1].to(wide))
    pairs = [(out, got_out), (final, got_final), *zip(expected, (dgx, dstate, dextra))]
    for wanted, got in pairs:
        if wanted is not None:
            assert float((wanted - got).detach().norm()) <= exact * float(wanted.detach().norm())


@cache
def cpp_loop(name: str) -> CppDiagonalLoop:
    return CppDiagonalLoop(*STEPS[name], torch.float64)


WALKS = {
    "equal": Walk((4,) * 37, False),
    "packed": Walk((4,) * 5 + (3,) * 12 + (2,) * 15 + (1,), False),
    "packed, backwards": Walk((4,) * 16 + (2,) * 16 + (1,), True),
}


@on_host
@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("name", STEPS)
def test_results_and_all_gradients_are_those_of_plain_steps(name: str, walk: str) -> None:
    assert_as_plain_steps(name, cpp_loop(name), WALKS[walk], 1, 1e-12)


@on_host
def test_models_side_by_side_have_extras_of_their_own() -> None:
    assert_as_plain_steps("bank", CppDiagonalLoop(*STEPS["bank"], torch.float32), WALKS["packed, backwards"], 3, 1e-5)


def test_coefficients_that_look_along_the_units_are_refused() -> None:
    with pytest.raises(NotLowered, match="along the units"):
        trace_coefficients(
            lambda columns, extras: (columns[0].softmax(-1), columns[0]), Lanes(8, 1, 1, 1, 0, False, False)
        )


# ---------------------------------------------------------------- the GPU's kernels


class HostDiagonalLoop(CudaDiagonalLoop):
    """The host in place of the device."""

    def kernel(self, direction: str, name: str, packed: bool) -> Any:
        source = emit(self.program, self.lanes, STORAGE[self.dtype], direction, packed)
        return HostKernel(source, name, 0)


HOST = [
    ("real", "packed, backwards", 1, 1, torch.bfloat16),
    pytest.param("complex", "equal", 4, 1, torch.float32, marks=pytest.mark.slow),
    pytest.param("bank", "packed", 4, 1, torch.float32, marks=pytest.mark.slow),
    ("selective", "packed, backwards", 4, 2, torch.float32),
]


@on_host
@pytest.mark.parametrize(("name", "walk", "processors", "models", "dtype"), HOST)
def test_kernels_compute_what_plain_steps_do(
    name: str, walk: str, processors: int, models: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In chunks of 3 steps; with more processors than one, in several segments of 2 chunks or more."""
    monkeypatch.setattr(Lanes, "chunk", 3)
    monkeypatch.setattr(cuda_diagonal, "SHORTEST_SEGMENT", 2)
    loop = HostDiagonalLoop(*STEPS[name], dtype, torch.device("cpu"))
    loop.processors = processors
    cut = cuda_diagonal._Plan(loop, WALKS[walk], models).segments
    assert (cut > 1) == (processors > 1)
    assert_as_plain_steps(name, loop, WALKS[walk], models, 5e-6 if dtype == torch.float32 else 2e-2)


def test_time_is_cut_where_there_are_few_rows() -> None:
    assert segments(chunks=49, warps=700, processors=132) == 3  # T = 784, batch 100, 200 units
    assert segments(chunks=1024, warps=56, processors=132) == 37  # T = 16,384, batch 8
    assert segments(chunks=7, warps=1, processors=132) == 1


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("name", STEPS)
def test_kernels_compile_and_keep_all_in_registers(name: str, direction: str) -> None:
    step, lanes = STEPS[name]
    said = said_about(emit(trace_coefficients(step, lanes), lanes, "float", direction, False))
    assert said.count("0 bytes spill stores, 0 bytes spill loads") == said.count("spill stores") == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_on_the_device_loops_agree_with_plain_steps(name: str, dtype: torch.dtype, walk: str) -> None:
    assert_as_plain_steps(name, There(name, dtype), WALKS[walk], 2, 5e-6 if dtype == torch.float32 else 2e-2)


class There:
    """The loop on a GPU, for tensors of the host."""

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        self.loop, self.dtype = CudaDiagonalLoop(*STEPS[name], dtype, torch.device("cuda")), dtype

    def forward(self, walk: Walk, *tensors: Tensor, keep: bool) -> Any:
        out, final, kept = self.loop.forward(walk, *(tensor.cuda() for tensor in tensors), keep=keep)
        return out.cpu(), final.cpu(), kept

    def backward(self, walk: Walk, gx: Tensor, extra: Tensor, kept: Any, *above: Tensor) -> Any:
        dout, dfinal = (tensor.cuda() for tensor in above)
        return [tensor.cpu() for tensor in self.loop.backward(walk, gx.cuda(), extra.cuda(), kept, dout, dfinal)]
