"""The emitted CUDA loop: on the host, with one thread after the other, and on a GPU where there is one.

On the host the very source that a GPU would get is compiled as C++ (``cuda_on_host.hpp`` stands in for the device).
"""

import ctypes
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from device_compiler import needs_compiler, said_about
from small_steps import (
    UNITS,
    Backwards,
    Joined,
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

from numerate.loops.cuda.loop import Cuda
from numerate.loops.cuda.pipeline import emit_evaluation, emit_training
from numerate.loops.cuda.source import Source
from numerate.loops.lowering.lower import lower
from numerate.loops.plain.eager import Eager
from numerate.loops.step import Loop, Members, ParameterGroup, State, Step, batch_uniforms
from numerate.loops.toolchain import native
from numerate.loops.tracing import trace
from numerate.loops.tracing.linearity import is_linear
from numerate.loops.tracing.trace import NotLowered, evaluation, training_step
from numerate.units import INALU, NAC, NALU, NAU, NMU, GatedNAUNMU, RealNPU

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
on_host = pytest.mark.skipif(not native.available(), reason="needs a C++ compiler")


class HostKernel:
    """Runs an emitted kernel on the host."""

    def __init__(self, source: Source) -> None:
        self.block = source.block
        shim = Path(__file__).with_name("cuda_on_host.hpp").read_text()
        text = source.text.replace("extern __shared__ __align__(16)", "extern").replace("__shared__", "static")
        text = text.replace("__constant__", "static const")
        found = re.search(rf"{source.name}\((.*?)\) {{", text[text.index('extern "C"') :])
        assert found
        kinds = [re.sub(r"\w+$", "", argument) for argument in found[1].split(", ")]
        call = ", ".join(f"({kind})arguments[{i}]" for i, kind in enumerate(kinds))
        entry = f"static void kernel(const uint64_t *arguments) {{ {source.name}({call}); }}"
        self.library = native.library("\n".join([shim, text, entry]))

    def result(self) -> "HostKernel":
        return self

    def launch(self, blocks: int, *arguments: Tensor | int) -> None:
        values = [a.data_ptr() if isinstance(a, Tensor) else a for a in arguments]
        self.library.launch(blocks, self.block, (ctypes.c_uint64 * len(values))(*values))


class OnHost(Cuda):
    """The same class with a host in place of the device."""

    def __init__(self, step: Step, threads: int | None = None) -> None:
        self.step, self.device = step, torch.device("cpu")
        self.training, self.evaluation = emitted(step, threads)
        self._train, self._evaluate = HostKernel(self.training), HostKernel(self.evaluation)  # type: ignore[assignment]


def emitted(step: Step, threads: int | None = None) -> tuple[Source, Source]:
    training = emit_training(step, lower(training_step(step)), threads)
    return training, emit_evaluation(lower(evaluation(step)))


def trained(loop: Loop, state: State, members: Members, weights: Tensor) -> State:
    state = state.take(torch.arange(len(members)))
    loop.train(state, members, weights, weights.shape[1])
    return state


def compare(loop: Cuda, module: nn.Module, members: Members, steps: int, bound: float) -> None:
    """Emitted and plain trajectories end within ``bound`` of each other, and evaluations agree."""
    step = loop.step
    state, weights = make_state(module, len(members)), make_weights(step, steps, len(members))
    plain, other = (trained(runner, state, members, weights) for runner in (Eager(step), loop))
    assert other.step == steps
    assert torch.equal(plain.diverged, other.diverged)
    assert largest_difference(plain, other) <= bound
    uniforms = torch.rand(1003, step.draws, generator=torch.Generator().manual_seed(0))
    expected, found = (r.evaluate(plain.parameters, members.constants, uniforms) for r in (Eager(step), loop))
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=1e-10)


RUNNERS = [pytest.param(OnHost, marks=on_host), pytest.param(Cuda, marks=on_gpu)]


# ---------------------------------------------------------------- on the host


@on_host
@pytest.mark.parametrize("name", ["INALU", "RealNPU", "StochasticNMU"])
def test_units_follow_the_plain_loop(name):
    module = unit(name)
    compare(OnHost(make_step(module, batch=32)), module, make_members(4), 20, 2e-6)


@on_host
@pytest.mark.parametrize("threads", [32, 128])
def test_large_sums_go_through_shared_memory(threads):
    torch.manual_seed(0)
    step = two_layers(one := NAU(100, 2), two := NMU(2, 1))
    loop = OnHost(step, threads)
    assert loop.training.tiled
    compare(loop, nn.Sequential(one, two), make_members(2, subsets(2), rate=1e-3), 10, 2e-6)


@on_host
@pytest.mark.parametrize(("inputs", "batch"), [(3, 10), (26, 5)])
def test_numbers_of_an_example_need_not_fit_into_fours(inputs, batch):
    torch.manual_seed(0)
    module = NAU(inputs, 1)
    compare(OnHost(make_step(module, inputs=inputs, batch=batch)), module, make_members(4), 20, 2e-6)


@on_host
@pytest.mark.parametrize("clip", ["value", "norm"])
@pytest.mark.parametrize("limits", [[1e-3, 1e-2, 0.1, 10.0], None], ids=["limits", "no limits"])
def test_clipped_gradients_of_a_wide_layer(clip, limits):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 1))
    members = replace(make_members(4, rate=1e-3), clip=torch.tensor(limits) if limits else None)
    compare(OnHost(make_step(module, batch=16, clip=clip)), module, members, 10, 2e-6)


class Standardised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(2, 3, bias=False), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.inner(x)
        if self.training:
            hidden = (hidden - hidden.mean(0)) / (hidden.std(0) + 0.1)
        return self.outer(torch.tanh(hidden))


@pytest.mark.parametrize("own_clocks", [False, True])
@pytest.mark.parametrize("runner", RUNNERS)
def test_rates_that_change_and_parameters_with_rates_of_their_own(runner, own_clocks):
    module = unit("NALU")
    group = ParameterGroup(tuple(dict(module.named_parameters()))[:2], (0.7, 0.9))
    step = make_step(module, scheduled=True, own_clocks=own_clocks, groups=(group,))
    members, table = make_members(4), 0.5 + torch.rand(step.rows, 12, 4, generator=torch.Generator().manual_seed(0)) / 2
    members.rate = members.rate.unsqueeze(-1) * torch.tensor([1.0, 3.0])
    state = make_state(module, 4)
    plain, other = (trained(loop, state, members, table) for loop in (Eager(step), runner(step)))
    assert largest_difference(plain, other) <= 2e-6
    assert largest_difference(plain, state) > 0.1


@on_host
def test_statistics_of_the_batch():
    torch.manual_seed(0)
    module = Standardised()
    compare(OnHost(make_step(module, batch=32), threads=64), module, make_members(4), 20, 2e-6)


@on_host
def test_divergence_is_noted_at_its_step():
    module = nn.Linear(2, 1)
    step = make_step(module, batch=8)
    members = replace(make_members(4), rate=torch.tensor([1e-2, 1e38, 1e-2, 3e37]))
    state, weights = make_state(module, 4), make_weights(step, 20, 4)
    plain, other = (trained(loop, state, members, weights) for loop in (Eager(step), OnHost(step)))
    assert (plain.diverged >= 0).tolist() == [False, True, False, True]
    assert torch.equal(plain.diverged, other.diverged)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("name", ["NALU", "NMU", ""])
def test_members_of_equal_constants_are_evaluated_side_by_side(name, runner):
    """Seven of the first range, five of the second, one of the third: the same losses, bit for bit, as each alone."""
    torch.manual_seed(0)
    module = unit(name) if name else Joined(2)
    loop, plain = runner(step := make_step(module)), Eager(step)
    assert loop.evaluation.members == 5
    which = torch.tensor([0] * 7 + [1] * 5 + [3])
    constants = {k: v[which] for k, v in make_members(4).constants.items()}
    parameters = make_state(module, len(which)).parameters
    uniforms = torch.rand(3001, step.draws, generator=torch.Generator().manual_seed(0))
    found = loop.evaluate(parameters, constants, uniforms)
    torch.testing.assert_close(found, plain.evaluate(parameters, constants, uniforms), rtol=2e-5, atol=1e-10)
    for s in range(len(which)):
        one = ({k: v[s : s + 1] for k, v in values.items()} for values in (parameters, constants))
        assert torch.equal(found[s : s + 1], loop.evaluate(*one, uniforms))


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(("hidden", "at_once"), [(2, (2, 2)), (4, (1, 2)), (10, (1, 1))])
@pytest.mark.parametrize("count", [1, 127, 1001])
def test_a_thread_takes_several_members_and_examples_of_many_inputs(hidden, at_once, count, runner):
    """As many as can be written out. Members 0 and 1 have one range, 2 and 3 have not, 4 is left over; the losses are
    those of the plain loop and, bit for bit, of each alone."""
    torch.manual_seed(0)
    module = nn.Sequential(NAU(100, hidden), NMU(hidden, 1))
    loop, plain = runner(step := two_layers(module[0], module[1])), Eager(step)
    assert (loop.evaluation.members, loop.evaluation.rows) == at_once
    parameters, constants = make_state(module, 5).parameters, make_members(5, subsets(5)).constants
    for name in ("low", "width"):
        constants[name][1] = constants[name][0]
    uniforms = torch.rand(count, step.draws, generator=torch.Generator().manual_seed(0))
    found, expected = (one.evaluate(parameters, constants, uniforms) for one in (loop, plain))
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=1e-10)
    for s in range(5):
        alone = ({k: v[s : s + 1] for k, v in values.items()} for values in (parameters, constants))
        assert torch.equal(found[s : s + 1], loop.evaluate(*alone, uniforms))


def test_members_are_evaluated_alone_where_shared_memory_holds_one_only():
    program = lower(evaluation(two_layers(NAU(100, 2), NMU(2, 1))))
    both = emit_evaluation(program)
    alone = emit_evaluation(program, both.shared - 1)
    assert (both.members, alone.members) == (2, 1)
    assert alone.shared < both.shared


@pytest.mark.parametrize("runner", RUNNERS)
def test_members_that_are_nan_in_all_stay_so(runner):
    torch.manual_seed(0)
    module = nn.Sequential(NAU(100, 2), NMU(2, 1))
    step = two_layers(module[0], module[1])
    state, members, weights = make_state(module, 3), make_members(3, subsets(3), rate=1e-3), make_weights(step, 3, 3)
    for value in state.parameters.values():
        value[1] = torch.nan
    plain, other = (trained(loop, state, members, weights) for loop in (Eager(step), runner(step)))
    assert plain.diverged.tolist() == other.diverged.tolist() == [-1, 0, -1]
    assert not any(moment[1].any() for moment in other.exp_avg.values())  # nothing was done for it
    for name, value in plain.parameters.items():
        torch.testing.assert_close(other.parameters[name], value, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("threads", [32, 64])
def test_gradients_of_what_is_read_from_both_ends(threads, runner):
    torch.manual_seed(0)
    step = make_step(module := Backwards(), batch=64)
    members, state, weights = make_members(2), make_state(module, 2), make_weights(step, 1, 2)
    loops = Eager(step), runner(step, threads=threads)
    plain, other = (trained(loop, state, members, weights).exp_avg for loop in loops)
    for name, expected in plain.items():
        torch.testing.assert_close(other[name], expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())


# ---------------------------------------------------------------- the source


@pytest.mark.parametrize("name", UNITS)
def test_a_source_is_emitted_for_every_unit(name, monkeypatch):
    step, linear = make_step(unit(name)), []
    monkeypatch.setattr(trace, "is_linear", lambda *arguments: linear.append(is_linear(*arguments)) or linear[-1])
    program = lower(training_step(step))
    assert linear == [name != "NATU"]  # where it is, no example pays for the mean over the batch
    assert emit_training(step, program).text == emit_training(step, program).text
    assert emit_training(step, program).threads == 8


@needs_compiler
@pytest.mark.parametrize("name", UNITS)
def test_the_compiler_accepts_every_kernel(name):
    for source in emitted(make_step(unit(name))):
        assert f"Compiling entry function '{source.name}'" in said_about(source.text)


@needs_compiler
@pytest.mark.parametrize("first", [NAU, NALU, GatedNAUNMU])
def test_members_of_a_hundred_inputs_stay_in_registers(first):
    """But for the products up to each of the hundred factors: 800 bytes."""
    said = said_about(emitted(two_layers(first(100, 2), NMU(2, 1)))[0].text)
    assert f"{800 if first is GatedNAUNMU else 0} bytes stack frame, 0 bytes spill stores" in said


class Scaled(nn.Module):
    """A few numbers that take part in making a large weight lie in memory, and their new values in registers."""

    def __init__(self):
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(2, 20) * 0.1), nn.Parameter(torch.rand(2) + 0.5)
        self.last = nn.Linear(2, 1)

    def forward(self, x):
        return self.last(x @ (self.weight * self.scale.unsqueeze(1)).T)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_small_parameter_that_scales_a_large_one(runner):
    torch.manual_seed(0)
    module = Scaled()
    compare(runner(make_step(module, inputs=20)), module, make_members(4), 30, 1e-4)


def test_what_does_not_fit_is_named():
    torch.manual_seed(0)
    with pytest.raises(NotLowered, match="shared memory"):
        emitted(make_step(nn.Sequential(nn.Linear(2, 200), nn.Tanh(), nn.Linear(200, 200), nn.Linear(200, 1))))


# ---------------------------------------------------------------- on a GPU


@on_gpu
@pytest.mark.parametrize("name", UNITS)
def test_units_on_all_operations(name):
    module = unit(name)
    compare(Cuda(make_step(module)), module, make_members(4), 100, 2e-4)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("hidden", [2, 10])
@pytest.mark.parametrize(
    ("first", "second"), [(NAU, NMU), (NALU, NALU), (INALU, INALU), (NAC, RealNPU), (GatedNAUNMU, NAU)]
)
def test_gradients_of_two_layers_of_a_hundred_inputs(first, second, hidden, runner):
    """Of one step alone, since some of these models are chaotic: rounding grows from step to step."""
    if runner is OnHost and (first, hidden) not in ((NALU, 2), (INALU, 10), (GatedNAUNMU, 2)):
        pytest.skip("left to the GPU, to be quick")
    torch.manual_seed(0)
    step = two_layers(one := first(100, hidden), two := second(hidden, 1))
    members, state = make_members(2, subsets(2), rate=1e-4), make_state(nn.Sequential(one, two), 2)
    weights = make_weights(step, 1, 2)
    plain, other = (trained(loop, state, members, weights).exp_avg for loop in (Eager(step), runner(step)))
    assert any(moment.abs().max() > 0 for moment in plain.values())
    for name, expected in plain.items():
        torch.testing.assert_close(other[name], expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item())


def test_the_gradient_of_a_long_product_keeps_one_array():
    """The products up to each factor: those from the end, and the factors again, are computed in one loop."""
    source = emit_training(step := two_layers(NMU(100, 2), NMU(2, 1)), lower(training_step(step))).text
    assert len(re.findall(r"^ +float \w+\[200\];$", source, re.MULTILINE)) == 1


@on_gpu
@pytest.mark.parametrize("width", [5, 16, 32, 64])
def test_networks_up_to_a_width(width):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    compare(Cuda(make_step(module, batch=16)), module, make_members(2, rate=1e-3), 50, 5e-6)


@on_gpu
@pytest.mark.parametrize("name", ["NMU", "NALU", "MLP"])
def test_a_member_depends_on_itself_alone(name):
    module = unit(name)
    step = make_step(module)
    loop, members, state = Cuda(step), make_members(37), make_state(module, 37)
    weights = make_weights(step, 60, 37)
    whole = trained(loop, state, members, weights)
    order = torch.randperm(37, generator=torch.Generator().manual_seed(0))[:11]
    part = state.take(order)
    for first, last in ((0, 7), (7, 60)):
        loop.train(part, members.take(order), weights[:, first:last, order], last - first)
    assert all(torch.equal(part.parameters[k], whole.parameters[k][order]) for k in part.parameters)


@on_gpu
def test_tensors_may_lie_on_the_device():
    module = unit("NMU")
    step = make_step(module)
    loop, members, state = Cuda(step), make_members(5), make_state(module, 5)
    weights = make_weights(step, 10, 5)
    expected = trained(loop, state, members, weights)
    moved = State.start({k: v.cuda() for k, v in state.parameters.items()})
    loop.train(moved, members.to("cuda"), weights.cuda(), 10)
    assert all(torch.equal(moved.parameters[k].cpu(), expected.parameters[k]) for k in expected.parameters)


class Echo(nn.Module):
    """Predicts its parameter; the loss below turns the gradient into the data themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight.expand_as(x)


@pytest.mark.parametrize("runner", RUNNERS)
def test_data_are_equal_bit_for_bit(runner):
    """With beta1 = 0 the first moment is the gradient of the mean of weight · x, which is the mean of x."""

    def examples(uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = constants["low"] + constants["width"] * uniforms
        return x, x

    step = make_step(Echo(), inputs=3, batch=2, betas=(0.0, 0.999), loss=lambda p, y: (p * y).sum(-1))
    step = replace(step, examples=examples)
    members = make_members(9)
    state = trained(runner(step), make_state(Echo(), 9), members, torch.empty(0, 5, 9))
    for s in range(9):
        uniforms, _ = batch_uniforms(step, members.seeds[s], 4)
        x, _ = examples(uniforms, {k: v[s] for k, v in members.constants.items()})
        assert torch.equal(state.exp_avg["weight"][s], x.sum(0) / 2)
