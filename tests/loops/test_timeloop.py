"""The native loop over time, for step functions of many kinds, against the same steps one by one."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from numerate.loops.timeloops import timeloop, tuning
from numerate.loops.timeloops.pointwise import Activate, Segment, Sizes, pointwise
from numerate.loops.timeloops.products import packed, products
from numerate.loops.timeloops.timeloop import TimeLoop, Walk
from numerate.loops.toolchain import native
from numerate.loops.tracing.trace import NotLowered

pytestmark = pytest.mark.skipif(not native.available(), reason="needs a C++ compiler")

State = tuple[Tensor, ...]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# ---------------------------------------------------------------- step functions


def lstm(gx: Tensor, gh: Tensor, state: State, extras: State) -> State:
    i, f, g, o = (gx + gh).chunk(4, -1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru(gx: Tensor, gh: Tensor, state: State, extras: State) -> State:
    (xr, xz, xn), (hr, hz, hn) = gx.chunk(3, -1), gh.chunk(3, -1)
    z = (xz + hz).sigmoid()
    return (z * state[0] + (1 - z) * (xn + (xr + hr).sigmoid() * (hn + extras[0])).tanh(),)


def rectified(gx: Tensor, gh: Tensor, state: State, extras: State) -> State:
    """Truth values, a product of the raw columns, a state that is only handed on."""
    v = gx * gh + extras[0]
    return torch.where(v > 0.1, v.abs().sqrt(), state[1] * 0.5), state[0]


def ordered(gx: Tensor, gh: Tensor, state: State, extras: State) -> State:
    """Folds and scans along the units."""
    (f, u), (weight, bias) = (gx + gh).chunk(2, -1), extras
    forget = f.softmax(-1).cumsum(-1)
    return (forget * state[0] + (1 - forget) * F.layer_norm(u, u.shape[-1:], weight, bias).tanh(),)


def shared(gx: Tensor, gh: Tensor, state: State, extras: State) -> State:
    """Blocks of different widths, and coarse values spread over neighbours."""
    width = state[0].shape[-1]
    fine, coarse = (gx + gh).split((width, width // 2), -1)
    spread = coarse.sigmoid().unsqueeze(-1).expand(*coarse.shape, 2).flatten(-2)
    return (spread * state[0] + (1 - spread) * fine.sin() * coarse.amax(-1, keepdim=True).tanh(),)


STEPS: dict[str, tuple[Activate, float, int, int]] = {  # function, blocks of columns, states, extras
    "lstm": (lstm, 4, 2, 0),
    "gru": (gru, 3, 1, 1),
    "rectified": (rectified, 1, 2, 1),
    "ordered": (ordered, 2, 1, 2),
    "shared": (shared, 1.5, 1, 0),
}
HIDDEN = 22  # neither a multiple of a vector nor shorter than one


def sizes_of(name: str, hidden: int = HIDDEN) -> Sizes:
    _, blocks, states, extras = STEPS[name]
    return Sizes(hidden, int(blocks * hidden), states, extras)


@cache
def loop_of(name: str, dtype: torch.dtype) -> TimeLoop:
    return TimeLoop(STEPS[name][0], sizes_of(name), dtype)


def plainly(
    activate: Activate, walk: Walk, gx: Tensor, weight: Tensor, state: State, extras: State
) -> tuple[Tensor, State]:
    """One step after the other, with whole batches where rows that have no turn keep their state."""
    outputs: list[Tensor] = []
    order = reversed(range(len(walk.batch_sizes))) if walk.reverse else range(len(walk.batch_sizes))
    for t in order:
        rows = slice(0, walk.batch_sizes[t])
        start = walk.starts[t]
        now = tuple(entry[rows] for entry in state)
        new = activate(gx[start : start + walk.batch_sizes[t]], now[0] @ weight.mT, now, extras)
        state = tuple(torch.cat((fresh, entry[walk.batch_sizes[t] :])) for fresh, entry in zip(new, state))
        outputs.append(new[0])
    return torch.cat(outputs[::-1] if walk.reverse else outputs), state


def tensors(sizes: Sizes, walk: Walk, dtype: torch.dtype) -> list[Tensor]:
    """gx, weight, state and extras."""
    generator = torch.Generator().manual_seed(7)
    shapes = [(sum(walk.batch_sizes), sizes.columns), (sizes.columns, sizes.hidden)]
    shapes += [(walk.batch, sizes.hidden)] * sizes.states + [(sizes.hidden,)] * sizes.extras
    scales = [1.0, sizes.hidden**-0.5] + [0.5] * (sizes.states + sizes.extras)
    found = [torch.randn(shape, generator=generator, dtype=dtype) * scale for shape, scale in zip(shapes, scales)]
    return [tensor.requires_grad_() for tensor in found]


def gradients(outputs: Tensor, final: State, inputs: list[Tensor]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(8)
    results = [outputs, *final]
    above = [torch.randn(r.shape, generator=generator, dtype=r.dtype) for r in results]
    found = torch.autograd.grad(results, inputs, above, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(i) if g is None else g for g, i in zip(found, inputs)]


def both_ways(name: str, walk: Walk, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    """Results and gradients of plain steps, and those of the loop."""
    sizes = sizes_of(name)
    gx, weight, *rest = inputs = tensors(sizes, walk, dtype)
    state, extras = tuple(rest[: sizes.states]), tuple(rest[sizes.states :])
    expected = plainly(STEPS[name][0], walk, gx, weight, state, extras)
    found = timeloop.run(loop_of(name, dtype), walk, gx, weight, state, extras, lambda *_: expected)
    yield from zip((expected[0], *expected[1]), (found[0], *found[1]))
    yield from zip(gradients(*expected, inputs), gradients(*found, inputs))


DENSE = Walk((5,) * 6, reverse=False)
RAGGED = (5, 5, 3, 3, 1)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize(
    "walk", [DENSE, Walk(RAGGED, False), Walk(RAGGED, True)], ids=["dense", "ragged", "ragged-reverse"]
)
def test_results_and_all_gradients_are_those_of_plain_steps(name: str, walk: Walk) -> None:
    for expected, found in both_ways(name, walk, torch.float64):
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("name", STEPS)
def test_single_precision_is_kept(name: str) -> None:
    for expected, found in both_ways(name, Walk((5,) * 6, True), torch.float32):
        assert float((found - expected).detach().norm()) <= 2e-6 * float(expected.detach().norm()) + 1e-6


def test_threads_share_the_batch_without_changing_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "WORK_EACH", 1)
    walk, sizes = Walk((9,) * 4, False), sizes_of("gru")
    gx, weight, state, extra = (t.detach() for t in tensors(sizes, walk, torch.float32))
    alone = loop_of("gru", torch.float32).forward(walk, gx, weight, [state], [extra], True)
    torch.set_num_threads(2)
    assert timeloop.threads(walk, 1, weight.numel()) == 2
    shared_out = loop_of("gru", torch.float32).forward(walk, gx, weight, [state], [extra], True)
    assert torch.equal(alone[1][0], shared_out[1][0])  # pyright: ignore[reportArgumentType]
    assert torch.equal(alone[0][0], shared_out[0][0])
    above = torch.ones_like(gx[:, : sizes.hidden])
    pulled = [
        loop_of("gru", torch.float32).backward(walk, weight, [state], [extra], h, s, above, [state])  # type: ignore[arg-type]
        for _, h, s in (alone, shared_out)
    ]
    for one, other in zip(pulled[0][:2], pulled[1][:2]):
        torch.testing.assert_close(one, other)


def test_without_gradients_nothing_is_kept() -> None:
    walk, sizes = DENSE, sizes_of("lstm")
    gx, weight, *state = (t.detach() for t in tensors(sizes, walk, torch.float32))
    kept = loop_of("lstm", torch.float32).forward(walk, gx, weight, state, (), keep=True)
    final, history, saved = loop_of("lstm", torch.float32).forward(walk, gx, weight, state, (), keep=False)
    assert saved is None
    assert history[1] is None
    assert torch.equal(history[0], kept[1][0])  # type: ignore[arg-type]
    assert all(torch.equal(a, b) for a, b in zip(final, kept[0]))


def test_second_derivatives_are_those_of_plain_steps() -> None:
    walk, sizes = Walk((2, 2, 1), False), Sizes(3, 9, 1, 1)
    loop = TimeLoop(gru, sizes, torch.float64)

    def function(gx: Tensor, weight: Tensor, state: Tensor, extra: Tensor) -> tuple[Tensor, ...]:
        def again(*tensors: Tensor | State) -> tuple[Tensor, State]:
            return plainly(gru, walk, *tensors)  # type: ignore[arg-type]

        outputs, final = timeloop.run(loop, walk, gx, weight, (state,), (extra,), again)  # type: ignore[arg-type]
        return outputs, *final

    inputs = tensors(sizes, walk, torch.float64)
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


# ---------------------------------------------------------------- dividing a step


def test_lstm_keeps_its_four_gates_and_computes_the_rest_again() -> None:
    program = pointwise(lstm, sizes_of("lstm"))
    assert program.saved == 4 * HIDDEN
    assert program.elementwise
    assert program.segments == [Segment("dgx", 0, 4 * HIDDEN)]


def test_gru_writes_equal_gradients_once() -> None:
    program = pointwise(gru, sizes_of("gru"))
    assert program.segments == [Segment("dgx", 0, 2 * HIDDEN), Segment("dgh", 0, HIDDEN)]
    assert program.own == HIDDEN


def test_elementwise_source_does_not_depend_on_the_number_of_units() -> None:
    sources = {timeloop.emit(pointwise(lstm, sizes_of("lstm", hidden)), torch.float32) for hidden in (8, 22, 100)}
    assert len(sources) == 1


@contextmanager
def double_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "hooks on saved tensors": torch.autograd.graph.save_on_cpu,
    "looking for NaN": lambda: torch.autograd.set_detect_anomaly(True),
    "no gradients": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "another device": lambda: torch.device("meta"),
    "another type of number": double_by_default,
}


@pytest.mark.parametrize("name", ["lstm", "ordered"])
@pytest.mark.parametrize("mode", MODES)
def test_the_mode_of_the_caller_changes_nothing(mode: str, name: str) -> None:
    expected = timeloop.emit(pointwise(STEPS[name][0], sizes_of(name)), torch.float32)
    with MODES[mode]():
        assert timeloop.emit(pointwise(STEPS[name][0], sizes_of(name)), torch.float32) == expected
        assert torch.is_anomaly_enabled() == (mode == "looking for NaN")


def test_tracing_draws_no_random_numbers() -> None:
    before = torch.get_rng_state()
    pointwise(lstm, sizes_of("lstm"))
    assert torch.equal(torch.get_rng_state(), before)


def test_what_cannot_be_lowered_is_named() -> None:
    def sorted_step(gx: Tensor, gh: Tensor, state: State, extras: State) -> State:
        return ((gx + gh).sort(-1).values,)

    with pytest.raises(NotLowered, match="sort"):
        pointwise(sorted_step, Sizes(4, 4, 1, 0))
    with pytest.raises(NotLowered, match="the same gradient in every column of the input"):
        pointwise(lambda gx, gh, state, extras: (torch.where(gx > 0, gh, 0),), Sizes(4, 4, 1, 0))


# ---------------------------------------------------------------- products


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (10, 80, 320), (17, 33, 50), (8, 16, 48), (9, 4, 49)], ids=str)
def test_product_with_a_packed_matrix(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, depth, columns = shape
    a, b = torch.randn(rows, depth, dtype=dtype), torch.randn(columns, depth, dtype=dtype).mT
    right = packed(b)
    for start in (None, torch.randn(rows, columns, dtype=dtype)):
        c = torch.full((rows, columns), torch.nan, dtype=dtype) if start is None else start.clone()
        numbers = [ctypes.c_int64(n) for n in (rows, depth, columns)]
        products(dtype).multiply(
            *numbers, native.pointer(a), ctypes.c_int64(depth), native.pointer(right), native.pointer(c),
            ctypes.c_int64(columns), ctypes.c_bool(start is not None),
        )  # fmt: skip
        torch.testing.assert_close(c, a @ b + (0 if start is None else start), atol=1e-4, rtol=1e-5)
