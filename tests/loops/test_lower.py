"""The intermediate form, interpreted, computes what the traced graph computes."""

import re

import pytest
import torch
from small_steps import UNITS, Running, make_step, two_layers, unit
from torch import Tensor, nn

from numerate.loops.form.interpreter import interpret
from numerate.loops.form.ir import BatchSum, Map, Program, Scan
from numerate.loops.form.operations import OPERATIONS
from numerate.loops.lowering.lower import lower
from numerate.loops.step import Step
from numerate.loops.tracing.trace import NotLowered, Traced, evaluation, training_step
from numerate.units import NAU, NMU

ACTIVATIONS = [
    nn.Hardtanh(), nn.Sigmoid(), nn.ReLU6(), nn.Tanh(), nn.Softsign(), nn.Threshold(0.1, 0.2), nn.SELU(), nn.ELU(),
    nn.Softshrink(), nn.ReLU(), nn.LeakyReLU(), nn.Tanhshrink(), nn.Softplus(), nn.PReLU(), nn.GELU(), nn.SiLU(),
    nn.Mish(), nn.CELU(), nn.Hardshrink(), nn.Hardswish(), nn.Softmax(-1), nn.LayerNorm(4),
]  # fmt: skip


class Standardised(nn.Module):
    """Uses the mean and standard deviation of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(2, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.inner(x)
        return self.outer(torch.tanh((hidden - hidden.mean(0)) / (hidden.std(0) + 0.1)))


def check(traced: Traced, program: Program) -> None:
    torch.manual_seed(0)
    values = {name: torch.rand(node.meta["val"].shape) + 0.1 for name, node in traced.inputs.items()}
    expected = traced.module(*values.values())
    for found, value in zip(interpret(program, values).values(), expected):
        torch.testing.assert_close(found.reshape(value.shape), value, rtol=2e-4, atol=2e-5)


def check_step(step: Step) -> Program:
    traced = training_step(step)
    program = lower(traced)
    check(traced, program)
    traced = evaluation(step)
    check(traced, lower(traced))
    return program


@pytest.mark.parametrize("name", UNITS)
def test_units(name):
    program = check_step(make_step(unit(name), batch=8))
    assert len(program.stages) == (5 if name == "NATU" else 2)  # whose fits need means over the batch
    maps = [s for stage in program.stages for s in (*stage.member, *stage.batch) if isinstance(s, Map)]
    assert all(OPERATIONS[s.function].arity == len(s.args) for s in maps)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda module: type(module).__name__)
def test_activations(activation):
    check_step(make_step(nn.Sequential(nn.Linear(2, 4), activation, nn.Linear(4, 1)), batch=8))


@pytest.mark.parametrize("clip", ["value", "norm"])
def test_clipping(clip):
    check_step(make_step(unit("NMU"), batch=8, clip=clip))


def test_two_layers():
    check_step(two_layers(NAU(20, 2), NMU(2, 1), 20))


def test_products_of_many_factors():
    program = check_step(two_layers(NMU(20, 3), NMU(3, 1), 20))
    scans = [s for stage in program.stages for s in stage.batch if isinstance(s, Scan)]
    assert [scan.exclusive for scan in scans] == [True] * 4


@pytest.mark.parametrize("first", [0.0, 1.0, 0.5])
def test_running_sums_of_what_begins_with_a_number(first):
    check_step(make_step(Running(first), batch=8))


def test_statistics_of_the_batch_take_further_passes():
    step = make_step(Standardised(), batch=8)
    traced = training_step(step)
    program = lower(traced)
    check(traced, program)
    assert len(program.stages) > 2


def test_examples_are_computed_in_the_first_pass_and_gradients_summed_over_it():
    program = lower(training_step(make_step(NMU(2, 1), batch=8)))
    first, last = program.stages
    assert sum(isinstance(s, BatchSum) for s in first.batch) == 2
    assert not last.batch
    assert all(not s.out.buffer.batch for s in last.member)


class Sorts(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.sort(-1).values)


class TakesPartOfTheBatch(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x[:1])


class MaximumOfTheBatch(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x / x.amax(0))


class Integers(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.long().float() + x)


class PlaceInTheBatch(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * torch.arange(float(len(x))).unsqueeze(-1)


class MixesExamples(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(2, -1).t())


class Decimals(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.round(decimals=1))


@pytest.mark.parametrize(
    ("module", "operation"),
    [
        (Sorts, "sort"),
        (TakesPartOfTheBatch, "slice"),
        (MaximumOfTheBatch, "amax"),
        (Integers, "int64"),
        (PlaceInTheBatch, "arange.* depend on the place in the batch"),
        (MixesExamples, "view.* mixes the batch"),
        (Decimals, "round.*decimals"),
    ],
)
def test_what_cannot_be_lowered_is_named(module, operation):
    with pytest.raises(NotLowered, match=operation):
        lower(training_step(make_step(module(2, 1), batch=8)))


class Shared(nn.Linear):
    """Each example gets its share of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / len(x)


def test_the_size_of_the_batch_counts_in_training_and_is_unknown_in_evaluation():
    step = make_step(Shared(2, 1), batch=8)
    check(traced := training_step(step), lower(traced))
    with pytest.raises(NotLowered, match="how many examples"):
        evaluation(step)


class Truths(nn.Module):
    """Truth values added, multiplied, reduced and counted."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        hidden = x @ self.weight
        low, high = hidden > 0.4, hidden < 1.2
        some = (
            torch.where(low * high, hidden, 0.1) * (low + high) * torch.maximum(low, high) * (low ^ high).logical_not()
        )
        counted = torch.cumsum(low, -1, dtype=torch.float32) + high.sum(-1, keepdim=True)
        whole = low.amax(-1, keepdim=True) * hidden.any(-1, keepdim=True) * hidden.isfinite().all(-1, keepdim=True)
        return (some * counted * whole).sum(-1, keepdim=True)


class Held(nn.Module):
    """Fixed tensors of every kind beside the parameter, and a norm."""

    scale: Tensor
    mask: Tensor
    index: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(2, 3))
        self.plain = torch.tensor([0.5, 2.0])
        self.register_buffer("scale", torch.tensor([[1.0, 3.0, 5.0]]))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("index", torch.tensor([1, 0]))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.where(self.mask, (x[:, self.index] * self.plain) @ self.weight * self.scale, 0.5)
        return hidden.sum(-1, keepdim=True) / torch.linalg.vector_norm(hidden, dim=-1, keepdim=True)


@pytest.mark.parametrize("module", [Truths, Held])
def test_truth_values_and_fixed_tensors(module):
    check_step(make_step(module(), batch=8))


class Alike(nn.Module):
    """Names that differ in a dot or in what an emitted place looks like."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.a_weight = nn.Parameter(torch.rand(2, 2))
        self.b = nn.Parameter(torch.rand(2, 2))
        self.b_1 = nn.Parameter(torch.rand(2, 1))
        self.rest = nn.ParameterDict({"w-1": nn.Parameter(torch.rand(1, 1)), "w 1": nn.Parameter(torch.rand(1, 1))})

    def forward(self, x: Tensor) -> Tensor:
        return (self.a(x) @ self.a_weight @ self.b).tanh() @ self.b_1 @ self.rest["w-1"] - self.rest["w 1"]


def test_every_input_has_a_name_of_its_own_that_code_can_have():
    program = check_step(make_step(Alike(), batch=8))
    names = [view.buffer.name for view in program.inputs.values()]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)
    assert not any(re.search(r"_\d+$", name) for name in names)
