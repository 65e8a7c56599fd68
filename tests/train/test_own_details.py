"""Users' own models in detail: late seeds, rounded division, dropout in place, shared parameters, rounded weights."""

from dataclasses import dataclass

import pytest
import torch
from own_models import TASK, Own, trained
from torch import Tensor, nn

from numerate.results import Store
from numerate.tasks import SingleModule
from numerate.train import Adam, Training, train
from numerate.units import NMU, Unit


class Seldom(Own):
    """A buffer that is the same for nearly all seeds."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.register_buffer("mask", (torch.rand(inputs) > 0.01).float())

    def forward(self, x):
        return super().forward(x * self.mask)


def test_a_buffer_that_differs_for_a_late_seed_alone_is_refused(tmp_path):
    """Beyond the seeds that are looked at before training."""
    work = Training(Seldom, TASK, seeds=(0,))
    zeros = [seed for seed in range(300) if work.build(seed).get_buffer("mask").min() == 0]
    seeds = (*(seed for seed in range(80) if seed not in zeros), late := zeros[-1])
    with pytest.raises(ValueError, match=f"^Seldom has another buffer mask for seed {late} than for seed 0"):
        trained(tmp_path, Seldom, seeds=seeds)


class Halved(nn.Module):
    """Division by a power of two, rounded, and whole numbers made of others."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))

    def forward(self, x):
        whole = torch.full_like(x, 2.7).long() + torch.div(x, -4, rounding_mode="trunc")
        return (x // 2 + whole) @ self.weight.T + torch.full((1,), 7) // 2


def test_rounded_division_follows_the_plain_loop(tmp_path):
    task = SingleModule("mul", (10.0, 20.0), (20.0, 40.0))
    rows, plain = (trained(tmp_path, Halved, task=task, name=b, backend=b) for b in ("auto", "eager"))
    assert {r.provenance.backend for r in rows} == {"emitted-cpu"}
    for row, other in zip(rows, plain):
        assert row.scores["best_test"] == pytest.approx(other.scores["best_test"], rel=1e-5)


class InPlace(Own):
    def forward(self, x):
        h = x + 0
        nn.functional.dropout(h, 0.5, self.training, inplace=True)
        return super().forward(h)


class NotInPlace(Own):
    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.5, self.training))


@pytest.mark.parametrize("backend", ["auto", "stacked"])
def test_dropout_in_place_is_dropout(backend, tmp_path):
    one, other = (trained(tmp_path, m, name=m.__name__, backend=backend) for m in (InPlace, NotInPlace))
    assert [r.scores["best_test"] for r in one] == [r.scores["best_test"] for r in other]


class Tied(nn.Module):
    """The unit's weight goes by the name of another module, which was there first."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.a, self.b = nn.Linear(inputs, outputs, bias=False), NMU(inputs, outputs)
        self.a.weight = self.b.weight

    def forward(self, x):
        return self.a(x) + self.b(x)


@pytest.mark.parametrize("backend", ["auto", "stacked", "eager"])
def test_a_shared_parameter_keeps_its_bounds_and_is_rounded(backend, tmp_path):
    """y = a - b asks for weights below 0, where the NMU may not go."""
    rows = trained(tmp_path, Tied, task=SingleModule("sub"), backend=backend, steps=300, evaluate_every=100,
                   optimiser=Adam(0.05))  # fmt: skip
    for row in rows:
        weight = row.weights["final"]["a.weight"]
        assert weight.min() == 0
        assert weight.max() <= 1
        best = row.weights["best"]["a.weight"]
        assert (row.scores["snapped_test"] == row.scores["best_test"]) == (best == best.round()).all()


class Rounds(Unit):
    """Its rounded weights are whole numbers, of another type."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.w = nn.Parameter(torch.rand(outputs, inputs))

    def effective_weights(self):
        return {"w": self.w}

    def snapped_parameters(self):
        return {"w": (self.w > 0.5)}

    def forward(self, x):
        return x.sort(-1).values @ self.w.T


class Misnames(Rounds):
    def snapped_parameters(self):
        return {"v": self.w.round()}


class Flattens(Rounds):
    def snapped_parameters(self):
        return {"w": self.w.round().flatten()}


def test_rounded_weights_may_be_of_any_type(tmp_path):
    for row in trained(tmp_path, Rounds):
        assert "snapped_test" in row.scores


@pytest.mark.parametrize(
    ("model", "sentence"),
    [(Misnames, r"has 'v', but the parameters are w$"), (Flattens, r"has \(2,\) for w, which is of shape \(1, 2\)$")],
)
@pytest.mark.parametrize("backend", ["auto", "stacked"])
def test_rounded_weights_that_fit_no_parameter_are_refused_before_training(model, sentence, backend, tmp_path):
    with pytest.raises(ValueError, match=rf"^{model.__name__} cannot be trained .*snapped_parameters\(\) {sentence}"):
        trained(tmp_path, model, backend=backend)


@dataclass
class Factory:
    """Not frozen, so it cannot be hashed."""

    scale: float = 1.0

    def __call__(self, inputs, outputs):
        return Own(inputs, outputs)


def test_a_dataclass_makes_models(tmp_path):
    assert len(trained(tmp_path, Factory())) == 3


@pytest.mark.parametrize("backend", ["eager", "stacked", "auto"])
def test_a_module_that_changes_torchs_settings_does_not_change_those_of_others(backend, tmp_path):
    class Careless(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)
            return y

    training = Training(Careless, SingleModule("add"), (0,), steps=2, batch=4, evaluate_every=1, evaluation_size=8)
    with Store(tmp_path / "results.sqlite") as store:
        train([training], store, backend=backend)
        assert len(store.rows()) == 1
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() == torch.float32
