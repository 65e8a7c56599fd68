"""What users bring: modules with buffers, dropout or state, tasks and schedules of their own."""

import random
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from own_models import SHORT, TASK, Own, trained
from torch import nn

from numerate.loops.cpp.loop import Cpp
from numerate.loops.step import State
from numerate.loops.tracing.noise import functional
from numerate.results import Store
from numerate.streams import Domain, derived_seed
from numerate.tasks import SingleModule
from numerate.train import Adam, Penalty, Training, preflight, stack, train
from numerate.units import NMU, Unit, penalty


class Sorted(nn.Module):
    """Only the stacked loop can sort; its parameters are not in alphabetical order."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.w, self.a = (nn.Parameter(torch.randn(outputs, inputs)) for _ in range(2))

    def forward(self, x):
        return torch.sort(x, -1)[0] @ self.w.T + (x @ (self.a + 2).T).sin()


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("model", [Sorted, nn.Linear])
def test_a_stacked_run_that_was_interrupted_ends_as_one_that_was_not(model, tmp_path):
    work, whole = Training(model, TASK, **SHORT), trained(tmp_path, model, name="whole", backend="stacked")

    def interrupt(progress):
        raise Interrupted

    with Store(tmp_path / "a.sqlite") as store:
        with pytest.raises(Interrupted):
            train([work], store, backend="stacked", checkpoint_seconds=0, progress=interrupt)
        assert store.checkpoints()
        train([work], store, backend="stacked")
        resumed = store.rows()
    assert [r.scores["best_test"] for r in resumed] == [r.scores["best_test"] for r in whole]
    for a, b in zip(resumed, whole):
        for name, value in a.weights["final"].items():
            assert np.array_equal(value, b.weights["final"][name])


# ------------------------------------------------------------ tasks


@dataclass(frozen=True)
class Total:
    """x0 + x1, or in a subclass x0 - x1, all with one and the same form."""

    inputs: int = 2
    outputs: int = 1
    draws: int = 2
    sign: float = 1.0

    @property
    def form(self):
        return self.inputs

    def constants(self, seed, split):
        return {"weight": torch.as_tensor(np.array([3.0, 2.0]))}  # float64

    def examples(self, uniforms, constants):
        x = 1 + uniforms
        return x, (x * constants["weight"] * torch.tensor([1.0, self.sign])).sum(-1, keepdim=True)

    def threshold(self):
        return 1e-3


@dataclass(frozen=True)
class Difference(Total):
    sign: float = -1.0


@pytest.mark.parametrize("backend", ["stacked", "emitted"])
def test_tasks_of_two_classes_are_two_and_constants_of_double_precision_count(backend, tmp_path):
    settings = {"seeds": (0,), "steps": 2000, "evaluate_every": 2000, "optimiser": Adam(0.05)}
    work = [Training(Own, task, **(SHORT | settings)) for task in (Total(), Difference())]
    with Store(tmp_path / "a.sqlite") as store:
        train(work, store, backend=backend)
        found = sorted((r.weights["final"]["weight"][0].tolist() for r in store.rows()), key=lambda weight: weight[1])
    assert np.allclose(found, [[3.0, -2.0], [3.0, 2.0]], atol=0.2)


# ------------------------------------------------------------ what belongs to the seed


class Features(nn.Module):
    """Features drawn once for each seed."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.register_buffer("features", torch.randn(8, inputs))
        self.out = nn.Linear(8, outputs)

    def forward(self, x):
        return self.out(torch.cos(x @ self.features.T))


@pytest.mark.parametrize("backend", ["eager", "stacked", "emitted"])
def test_a_buffer_drawn_for_each_seed_is_that_of_the_run_and_is_stored(backend, tmp_path):
    work = Training(Features, TASK, **SHORT)
    uniforms = stack.evaluation_uniforms(work, "test")
    for row in trained(tmp_path, Features, backend=backend):
        model = work.build(row.seed)
        assert np.array_equal(row.weights["final"]["features"], model.get_buffer("features"))
        model.load_state_dict({k: torch.from_numpy(v) for k, v in row.weights["final"].items()})
        x, y = TASK.examples(uniforms, TASK.constants(row.seed, "test"))
        error = ((model(x) - y) ** 2).mean().item()
        assert row.curves["test"][-1] == pytest.approx(error, rel=1e-4)


class Fixed(Own):
    """The same buffer for every seed, and one that is not a number."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.register_buffer("scale", torch.tensor([1.0, 2.0]))
        self.register_buffer("unused", torch.tensor(torch.nan))

    def forward(self, x):
        return super().forward(x * self.scale)


class Dropped(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(nn.Linear(inputs, 5), nn.Dropout(0.25), nn.Dropout(0.0), nn.Linear(5, outputs))


@pytest.mark.parametrize("model", [Fixed, Dropped])
def test_fixed_buffers_and_dropout_are_emitted_and_follow_the_plain_loop(model, tmp_path):
    rows, plain = trained(tmp_path, model), trained(tmp_path, model, name="plain", backend="eager")
    assert {r.provenance.backend for r in rows} == {"emitted-cpu"}
    assert np.allclose([r.scores["best_test"] for r in rows], [r.scores["best_test"] for r in plain], rtol=1e-4)


def test_dropout_leaves_out_the_stated_share_and_keeps_the_mean():
    work = Training(Dropped, TASK, **SHORT)
    step, _ = stack.make_step(work)
    assert step.noise == 5
    drop = nn.Dropout(0.25)
    apply = functional(drop, training=True)
    noise = torch.linspace(0, 1, 401)[:-1].view(-1, 1)
    found = apply({}, torch.ones(400, 1), noise)
    assert (found == 0).float().mean() == 0.25
    assert found.mean() == pytest.approx(1.0)


class Signed(Own):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.sign = 1 if torch.rand(()) < 0.5 else -1

    def forward(self, x):
        return self.sign * super().forward(x)


class Loosely(Own):
    """A tensor that is drawn but not registered."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.features = torch.randn(inputs)

    def forward(self, x):
        return super().forward(x * self.features)


class Shuffled(Own):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.register_buffer("order", torch.randperm(inputs))

    def forward(self, x):
        return super().forward(x[:, self.order])


class Unseeded(Own):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.weight.data = torch.tensor(np.random.default_rng().normal(size=(outputs, inputs)), dtype=torch.float32)


class Passing(Own):
    """Its buffer is not saved, and numpy's."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.register_buffer("features", torch.tensor(np.random.default_rng().random(inputs, "f4")), persistent=False)

    def forward(self, x):
        return super().forward(x * self.features)


class SometimesFrozen(Own):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.bias.requires_grad_(bool(torch.rand(()) < 0.5))


class Grows(Own):
    def __init__(self, inputs, outputs):
        super().__init__(inputs * int(torch.randint(1, 3, ())), outputs)

    def forward(self, x):
        return super().forward(x.repeat(1, self.in_features // x.shape[1]))


class Hooked(Own):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.weight.register_hook(lambda gradient: gradient * 0)


class Annealing(Own):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1 + 0.01 * self.calls)


class Jittery(Own):
    """Its random numbers are Python's."""

    def forward(self, x):
        return super().forward(x) * (1 + 1e-3 * random.random())


class Gumbel(Own):
    def forward(self, x):
        return super().forward(x * nn.functional.gumbel_softmax(x, dim=-1))


class AlwaysNoisy(Own):
    def forward(self, x):
        return super().forward(x + torch.rand_like(x))


class Lazy(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(nn.LazyLinear(outputs))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            Signed,
            r"^Signed builds a different model for seed \d than for seed 0, but only parameters and buffers of torch",
        ),
        (Loosely, "^Loosely builds a different model for seed 1 than for seed 0"),
        (Shuffled, r"^Shuffled has another buffer order for seed \d than for seed 0; only numbers may differ"),
        (Passing, "^Passing makes another features each time for one seed"),
        (
            SometimesFrozen,
            r"^SometimesFrozen has the parameter bias of another shape, or frozen otherwise, for seed \d",
        ),
        (Grows, r"^Grows has the parameter weight of another shape, or frozen otherwise, for seed \d"),
        (Hooked, "^Hooked has a hook on the gradient of weight, which training would not call"),
        (Unseeded, r"^Unseeded makes another weight each time for one seed; draw with torch's own generator$"),
        (Annealing, "^Annealing is not deterministic"),
        (Jittery, "^Jittery is not deterministic"),
        (Gumbel, "^Gumbel draws random numbers as it computes that cannot be keyed by seed and step"),
        (AlwaysNoisy, r"^AlwaysNoisy draws random numbers .* and in training mode alone$"),
        (Lazy, "^Lazy has parameters whose shape is not known before its first use"),
    ],
)
def test_what_a_seed_does_not_decide_is_refused_in_one_sentence(model, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        trained(tmp_path, model, seeds=tuple(range(8)))


def test_the_seeds_of_every_configuration_are_tried(tmp_path):
    signs = {seed: Training(Signed, TASK, **SHORT).build(seed).sign for seed in range(8)}
    alike = tuple(seed for seed, sign in signs.items() if sign == signs[0])
    other = tuple(seed for seed in signs if seed not in alike)
    work = [replace(Training(Signed, TASK, **SHORT), seeds=alike)]
    work += [replace(Training(Signed, SingleModule("mul", (2.0, 3.0)), **SHORT), seeds=other)]
    with Store(tmp_path / "a.sqlite") as store, pytest.raises(ValueError, match="builds a different model for seed"):
        train(work, store)


def penalty_of_chance(model):
    return torch.rand(()) * model.weight.sum()


def test_a_penalty_that_is_drawn_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not deterministic"):
        trained(tmp_path, Own, penalties=(Penalty(penalty_of_chance, torch.ones_like),))


class Bookkeeping(Own):
    """Numbers beside the computation: which instance it is, how often it was used, the last size; and a cache."""

    made = 0

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        Bookkeeping.made += 1
        self.number, self.calls, self.large, self.steps = Bookkeeping.made, 0, 2**70, None

    def forward(self, x):
        self.calls, self.size = self.calls + 1, len(x)
        if self.steps is None:
            self.steps = torch.linspace(0, 1, x.shape[-1])
        return super().forward(x + self.steps)


def test_a_model_may_count_and_keep_what_does_not_change(tmp_path):
    rows, plain = trained(tmp_path, Bookkeeping), trained(tmp_path, Bookkeeping, name="plain", backend="eager")
    assert {r.provenance.backend for r in rows} == {"emitted-cpu"}
    assert np.allclose([r.scores["best_test"] for r in rows], [r.scores["best_test"] for r in plain], rtol=1e-4)


@contextmanager
def a_thread_that_draws():
    done = threading.Event()

    def draw():
        while not done.is_set():
            torch.rand(10)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_training_beside_a_thread_that_draws_is_training_alone(tmp_path):
    alone = trained(tmp_path, Own, name="alone")
    with a_thread_that_draws():
        beside = trained(tmp_path, Own)
    assert [r.scores["best_test"] for r in beside] == [r.scores["best_test"] for r in alone]


class Draws(nn.Module):
    """Every usual way to draw a start."""

    def __init__(self, inputs, outputs):
        super().__init__()
        shape = outputs, inputs
        ways = torch.rand(shape), torch.randn(shape), torch.empty(shape).uniform_()
        more = (
            nn.init.orthogonal_(torch.empty(9, 9)),
            torch.rand_like(ways[0]),
            torch.normal(0.0, 1.0, (40,)),
            torch.bernoulli(torch.full((40,), 0.5)),
        )
        whole = torch.randperm(9), torch.randint(1, 99, shape), torch.randint(99, shape)
        for number, values in enumerate([*ways, *more, *whole]):
            self.register_buffer(f"values{number}", values)


class Seeds(nn.Module):
    """Has one start, whatever the seed of its run."""

    def __init__(self, inputs, outputs):
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("values", torch.rand(outputs, inputs))


@pytest.mark.parametrize("model", [Draws, Seeds])
def test_a_model_starts_from_the_stream_of_its_seed_whatever_other_threads_draw(model):
    training = Training(model, TASK, seeds=(0,))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(3, Domain.INIT, 0))
        expected = model(2, 1).state_dict()
    with a_thread_that_draws():
        for _ in range(50):
            found = training.build(seed=3).state_dict()
            assert all(torch.equal(found[name], values) for name, values in expected.items())


def test_training_leaves_the_global_generator_alone(tmp_path):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    trained(tmp_path, Fixed)
    assert torch.equal(torch.rand(3), expected)


# ------------------------------------------------------------ what is told before anything is trained


class Rounding(Unit):
    """Its rounding asks for the numbers themselves, which no stack can give."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.weight = nn.Parameter(torch.rand(outputs, inputs))

    def forward(self, x):
        return x @ self.weight.T

    def snapped_parameters(self):
        return {"weight": torch.tensor([[round(w) for w in row] for row in self.weight.tolist()]).float()}


def test_a_rounding_that_cannot_be_stacked_is_done_run_by_run(tmp_path):
    rows = trained(tmp_path, Rounding)
    assert all(np.isfinite(r.scores["snapped_test"]) for r in rows)


class Failing(Rounding):
    def snapped_parameters(self):
        raise KeyError("no such table")


def test_a_rounding_that_fails_is_told_before_training(tmp_path):
    with pytest.raises(ValueError, match=r"^Failing cannot be trained with backend auto: 'no such table'$"):
        trained(tmp_path, Failing)


def vector(model):
    return model.weight.abs()


def test_a_penalty_of_several_numbers_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^a penalty of Own gives numbers of shape \(1, 2\), not a single one$"):
        trained(tmp_path, Own, penalties=(Penalty(vector, torch.ones_like),))


def half(t):
    return 0.5


def halves(t):
    return torch.full_like(t, 0.5)


def test_a_schedule_may_be_a_single_number(tmp_path):
    some, others = (
        trained(
            tmp_path, NMU, name=schedule.__name__, penalties=[Penalty(penalty, cast(Any, schedule))], seeds=np.arange(2)
        )
        for schedule in (halves, half)
    )
    assert [r.scores["best_test"] for r in some] == [r.scores["best_test"] for r in others]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rate": -1.0}, "rate must be a number above 0, got -1.0"),
        ({"betas": (0.9, 1.0)}, "betas must be two numbers from 0 to below 1"),
        ({"eps": -1e-8}, "eps must be"),
        ({"clip": "valu"}, "clip must be None, 'value' or 'norm', got 'valu'"),
        ({"clip": "norm"}, "clip='norm' needs a limit above 0, got 0.0"),
    ],
)
def test_settings_of_the_optimiser_are_checked(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        Adam(**settings)
    assert Adam(betas=[0.9, 0.99]).betas == (0.9, 0.99)  # type: ignore[arg-type]


class Blind(Cpp):
    """A loop that gives wrong gradients, as an error in an emitter would."""

    def train(self, state, members, table, steps):
        super().train(state, members, table, steps)
        state.exp_avg["weight"] += 1.0


def test_a_loop_that_finds_other_numbers_than_plain_torch_is_not_used():
    work = Training(Own, TASK, **SHORT)
    step, _ = stack.make_step(work)
    preflight.check_loop(work, Cpp(step), "cpu")
    with pytest.raises(RuntimeError, match="gradient of weight differs from that of plain PyTorch"):
        preflight.check_loop(work, Blind(step), "cpu")


class HalfBroken(nn.Module):
    """One parameter has no finite gradient from the start, another has none at all to give."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.broken = (nn.Parameter(torch.zeros(outputs, inputs)) for _ in range(2))
        self.empty = nn.Parameter(torch.zeros(0))

    def forward(self, x):
        return x @ self.weight.T + (x @ self.broken.abs().sqrt().T) * self.empty.sum().exp()


def test_a_gradient_that_is_partly_not_a_number_is_that_of_plain_torch(tmp_path):
    rows = trained(tmp_path, HalfBroken)
    assert {r.status for r in rows} == {"diverged"}
    assert {r.provenance.backend for r in rows} != {"eager"}


def test_a_loop_refuses_parameters_that_it_was_not_made_for():
    step, _ = stack.make_step(Training(Own, TASK, **SHORT))
    runs = [stack.Run(Training(Sorted, TASK, **SHORT), 0)]
    with pytest.raises(ValueError, match=r"^parameter weight is missing, but this loop was made for shape \(1, 2\)$"):
        Cpp(step).train(State.start(stack.initial_parameters(runs)), stack.members(runs), torch.zeros(0, 1, 1), 1)
