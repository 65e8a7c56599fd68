"""The emitted C++ loop against the plain loop, and what a member's result may depend on: the member alone."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_steps import (
    UNITS,
    Backwards,
    Joined,
    Running,
    largest_difference,
    make_members,
    make_state,
    make_step,
    make_weights,
    subsets,
    two_layers,
    unit,
)
from torch import Tensor, nn

from numerate.loops.cpp.loop import Cpp
from numerate.loops.plain.eager import Eager
from numerate.loops.step import Loop, Members, State, Step, batch_uniforms
from numerate.loops.toolchain import compiler, native
from numerate.loops.tracing.trace import NotLowered
from numerate.units import NAC, NAU, NMU

STEPS = 200
CPU_FLAGS = cpu.read_text().split() if (cpu := Path("/proc/cpuinfo")).exists() else []


def trained(loop: Loop, state: State, members: Members, weights: Tensor) -> State:
    state = state.take(torch.arange(len(members)))
    loop.train(state, members, weights, weights.shape[1])
    return state


def compare(step: Step, module: nn.Module, members: Members, steps: int, bound: float) -> None:
    """Emitted and plain trajectories end within ``bound`` of each other, and evaluations agree."""
    state, weights = make_state(module, len(members)), make_weights(step, steps, len(members))
    loops = Eager(step), Cpp(step)
    plain, emitted = (trained(loop, state, members, weights) for loop in loops)
    assert emitted.step == steps
    assert torch.equal(plain.diverged, emitted.diverged)
    assert largest_difference(plain, emitted) <= bound
    uniforms = torch.rand(1003, step.draws, generator=torch.Generator().manual_seed(0))
    expected, found = (loop.evaluate(plain.parameters, members.constants, uniforms) for loop in loops)
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=1e-10)


# In 200 steps of size 0.01 a parameter moves by up to 2. Sums are rounded in another order; where a saturating function
# (tanh, sigmoid) hides the parameter, Adam enlarges such differences.
SATURATING = ("NAC", "NACMul", "NALU", "ComplexNALU", "ReciprocalUnit")


@pytest.mark.parametrize("name", UNITS)
def test_units_follow_the_plain_loop_on_all_operations(name):
    module = unit(name)
    compare(make_step(module, batch=32), module, make_members(4), STEPS, 1e-4 if name in SATURATING else 5e-6)


def test_weights_behind_a_nearly_saturated_tanh_move_as_in_torch():
    """From 8.66 to 9.01 tanh is one spacing below 1: its gradient is small, but Adam's step is not."""
    module = NAC(2, 1)
    step, members = make_step(module, batch=32), make_members(4)
    start = {"w_hat": torch.tensor([[8.79, -8.95], [-8.7, 8.9], [8.67, 3.0], [-8.85, -1.0]]).unsqueeze(1)}
    state = State.start(start | {"m_hat": torch.full((4, 1, 2), 2.0)})
    weights = make_weights(step, STEPS, 4)
    plain, emitted = (trained(loop, state, members, weights) for loop in (Eager(step), Cpp(step)))
    moved = (plain.parameters["w_hat"] - start["w_hat"]).abs()
    assert moved[:, 0, 0].min() > 0.02
    assert largest_difference(plain, emitted) < 2e-3


@pytest.mark.parametrize("first", [NAU, NAC])
def test_two_layers_of_a_hundred_inputs(first):
    torch.manual_seed(0)
    step = two_layers(one := first(100, 2), two := NMU(2, 1))
    compare(step, nn.Sequential(one, two), make_members(2, subsets(2), rate=1e-3), STEPS, 5e-6)


@pytest.mark.parametrize("width", [5, 24, 40])
def test_networks_of_any_width(width):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    compare(make_step(module, batch=16), module, make_members(2, rate=1e-3), STEPS, 5e-6)


@pytest.mark.parametrize(
    ("kind", "options"), [(Joined, [2]), (Joined, [20]), (Backwards, []), (Running, [0.0]), (Running, [1.0])]
)
def test_values_put_together_and_read_from_both_ends(kind, options):
    """A wrong sign of a gradient would be a difference of 0.01."""
    torch.manual_seed(0)
    module = kind(*options)
    compare(make_step(module, batch=16), module, make_members(2, rate=1e-3), 5, 1e-4)


@pytest.mark.parametrize("clip", ["value", "norm"])
def test_clipped_gradients(clip):
    module = unit("NMU")
    members = replace(make_members(4), clip=torch.tensor([1e-3, 1e-2, 0.1, 10.0]))
    compare(make_step(module, batch=32, clip=clip), module, members, STEPS, 5e-6)


@pytest.mark.parametrize("batch", [3, 10, 37])
def test_any_batch_size(batch):
    module = unit("NMU")
    compare(make_step(module, batch=batch), module, make_members(4), STEPS, 5e-6)


@pytest.mark.parametrize("name", ["NAU", "StochasticNMU"])
@pytest.mark.parametrize(("inputs", "batch"), [(20, 6), (26, 5)])
def test_any_number_of_inputs(name, inputs, batch):
    """Twenty numbers of an example are drawn in fours where they are used, twenty-six before the loops over them."""
    module = unit(name, inputs)
    compare(make_step(module, inputs, batch=batch), module, make_members(4), 20, 5e-6)


class Standardised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(2, 3, bias=False), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.inner(x)
        if self.training:
            hidden = (hidden - hidden.mean(0)) / (hidden.std(0) + 0.1)
        return self.outer(torch.tanh(hidden))


def test_statistics_of_the_batch():
    torch.manual_seed(0)
    module = Standardised()
    compare(make_step(module, batch=32), module, make_members(4), STEPS, 5e-6)


class Echo(nn.Module):
    """Predicts its parameter; the loss below turns the gradient into the data themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight.expand_as(x)


def test_data_are_equal_bit_for_bit():
    """With beta1 = 0 and one example per batch, the first moment is the gradient of weight · x, which is x."""

    def examples(uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = constants["low"] + constants["width"] * uniforms
        return x, x

    step = make_step(Echo(), inputs=3, batch=2, betas=(0.0, 0.999), loss=lambda p, y: (p * y).sum(-1))
    step = replace(step, examples=examples)
    members = make_members(40)
    state = trained(Cpp(step), make_state(Echo(), 40), members, torch.empty(0, 5, 40))
    for s in range(40):
        uniforms, _ = batch_uniforms(step, members.seeds[s], 4)
        x, _ = examples(uniforms, {k: v[s] for k, v in members.constants.items()})
        assert torch.equal(state.exp_avg["weight"][s], x.sum(0) / 2)


@pytest.fixture(scope="module")
def ensemble() -> tuple[Cpp, State, Members, Tensor]:
    """37 NALU members, so that some lanes are filled up."""
    module = unit("NALU")
    step = make_step(module)
    return Cpp(step), make_state(module, 37), make_members(37), make_weights(step, 60, 37)


def identical(a: State, b: State) -> bool:
    groups = ((a.parameters, b.parameters), (a.exp_avg, b.exp_avg), (a.exp_avg_sq, b.exp_avg_sq))
    return all(torch.equal(x[name], y[name]) for x, y in groups for name in x) and torch.equal(a.diverged, b.diverged)


def test_bits_do_not_depend_on_the_order_of_members(ensemble):
    loop, state, members, weights = ensemble
    order = torch.randperm(37, generator=torch.Generator().manual_seed(0))
    mixed = trained(loop, state.take(order), members.take(order), weights[..., order])
    assert identical(mixed, trained(loop, state, members, weights).take(order))


@pytest.mark.parametrize("count", [1, 16, 20])
def test_bits_do_not_depend_on_the_number_of_members(ensemble, count):
    loop, state, members, weights = ensemble
    some = torch.arange(count) + 9
    alone = trained(loop, state.take(some), members.take(some), weights[..., some])
    assert identical(alone, trained(loop, state, members, weights).take(some))


def test_bits_do_not_depend_on_how_steps_are_cut(ensemble):
    loop, state, members, weights = ensemble
    pieces = state.take(torch.arange(37))
    for part in weights.split([1, 20, 39], 1):
        loop.train(pieces, members, part, part.shape[1])
    assert identical(pieces, trained(loop, state, members, weights))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_bits_do_not_depend_on_threads(ensemble, threads):
    loop, state, members, weights = ensemble
    assert identical(trained(Cpp(loop.step, threads), state, members, weights), trained(loop, state, members, weights))


@pytest.mark.skipif("avx2" not in CPU_FLAGS or "fma" not in CPU_FLAGS, reason="needs a processor with AVX2 and FMA")
@pytest.mark.parametrize("name", ["NALU", "RealNPU"])
def test_bits_do_not_depend_on_the_width_of_vectors(monkeypatch, name):
    module = unit(name)
    step = make_step(module)
    state, members, weights = make_state(module, 20), make_members(20), make_weights(step, 60, 20)
    native_width = trained(Cpp(step), state, members, weights)
    monkeypatch.setattr(compiler, "target", lambda command: (("-mavx2", "-mfma"), "avx2"))
    assert (narrow := Cpp(step)).lanes == 8
    assert identical(trained(narrow, state, members, weights), native_width)


@pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="needs the extra numerate[compiler]")
@pytest.mark.parametrize("name", ["NALU", "RealNPU"])
def test_bits_do_not_depend_on_the_compiler(monkeypatch, name):
    module = unit(name)
    step = make_step(module)
    state, members, weights = make_state(module, 20), make_members(20), make_weights(step, 60, 20)
    usual = trained(Cpp(step), state, members, weights)
    monkeypatch.setattr(native, "find_compiler", lambda: (sys.executable, "-m", "ziglang", "cc"))
    assert identical(trained(Cpp(step), state, members, weights), usual)


def test_evaluation_does_not_depend_on_the_other_members(ensemble):
    loop, state, members, _ = ensemble
    uniforms = torch.rand(777, 2, generator=torch.Generator().manual_seed(0))
    together = loop.evaluate(state.parameters, members.constants, uniforms)
    some = torch.tensor([30, 2])
    chosen = state.take(some)
    assert torch.equal(loop.evaluate(chosen.parameters, members.take(some).constants, uniforms), together[some])


@pytest.mark.parametrize("count", [1, 63, 64, 777, 5000])
@pytest.mark.parametrize("name", ["NMU", "NALU", "RealNPU"])
def test_members_that_share_their_examples_are_evaluated_as_the_others(name, count):
    """1, 2, 3 and 4 members in a row with the same constants, on fewer, as many and more examples than fit a block."""
    module = unit(name)
    step, state, members = make_step(module), make_state(module, 10), make_members(4)
    members = members.take(torch.tensor([0, 1, 1, 2, 2, 2, 3, 3, 3, 3]))
    uniforms = torch.rand(count, 2, generator=torch.Generator().manual_seed(count))
    found, expected = (
        loop.evaluate(state.parameters, members.constants, uniforms) for loop in (Cpp(step, threads=3), Eager(step))
    )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
    backwards = torch.arange(9, -1, -1)
    turned = Cpp(step, threads=1).evaluate(
        state.take(backwards).parameters, members.take(backwards).constants, uniforms
    )
    assert torch.equal(turned, found[backwards])


def test_evaluation_of_many_examples_is_accurate():
    """Mean of a million squares, where a plain running sum in single precision would lose three digits."""
    module = NAU(2, 1)
    step = make_step(module)
    members = make_members(4)
    state = State.start({"weight": torch.tensor([[[0.1, -0.2]]]).repeat(4, 1, 1)})
    uniforms = torch.rand(1_000_000, 2, generator=torch.Generator().manual_seed(0))
    x = members.constants["low"].double().view(-1, 1, 1) + members.constants["width"].view(-1, 1, 1) * uniforms.double()
    a, b = x.unbind(-1)
    target = torch.stack([(a + b)[0], (a - b)[1], (a * b)[2], (a / b)[3]])
    expected = (torch.stack([0.1 * a[i] - 0.2 * b[i] for i in range(4)]) - target).square().mean(-1)
    found = Cpp(step).evaluate(state.parameters, members.constants, uniforms)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)


def test_divergence_is_noted_at_its_first_step_and_leaves_the_others_alone():
    module = unit("NACMul")
    step = make_step(module, batch=16)
    members = make_members(5, rate=0.02)
    members.rate[1:4] = torch.tensor([1e4, 1e38, 3.0])
    state, weights = make_state(module, 5), make_weights(step, 30, 5)
    plain, emitted = (trained(loop, state, members, weights) for loop in (Eager(step), Cpp(step)))
    assert torch.equal(plain.diverged, emitted.diverged)
    assert 0 <= emitted.diverged[2] < 30
    assert emitted.diverged[[0, 4]].tolist() == [-1, -1]
    assert emitted.parameters["w_hat"][[0, 4]].isfinite().all()


def test_unknown_operation_is_named():
    class Sorts(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.sort(-1).values)

    with pytest.raises(NotLowered, match="sort"):
        Cpp(make_step(Sorts(2, 1)))


def test_without_a_compiler_the_reason_is_clear(monkeypatch):
    def none() -> tuple[str, ...]:
        raise native.NoCompiler("no C++ compiler found")

    monkeypatch.setattr(native, "find_compiler", none)
    with pytest.raises(native.NoCompiler, match=r"C\+\+ compiler"):
        Cpp(make_step(unit("NMU")))
