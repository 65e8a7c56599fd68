"""What a run is known by: all that decides it, and nothing that does not."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from numerate.results import Store
from numerate.tasks import SingleModule
from numerate.train import Penalty, Training, train
from numerate.units import NMU, penalty

TASK = SingleModule("mul")
SHORT = {"seeds": (0, 1, 2), "steps": 40, "evaluate_every": 20, "evaluation_size": 100}


class Own(nn.Linear):
    """A base for the models below."""


def constant(number):
    return lambda t: torch.full_like(t, number)


def wide(hidden):
    def make(inputs, outputs):
        return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))

    return make


def scaled(number):
    class Scaled(Own):
        def forward(self, x):
            return number * super(Scaled, self).forward(x)  # noqa: UP008 (the class is taken from here, too)

    return Scaled


@dataclass(frozen=True)
class Slope:
    number: float

    def at(self, t):
        return self.number * t


def identity(**settings):
    chosen: dict[str, Any] = {"model": NMU, "task": TASK} | settings | {"seeds": (0,)}
    (key,) = Training(**chosen).run_keys()
    return key


def test_what_a_function_took_from_where_it_was_made_is_part_of_the_identity():
    def with_schedule(schedule):
        return identity(penalties=(Penalty(penalty, schedule),))

    assert with_schedule(constant(1.0)) == with_schedule(constant(1.0)) != with_schedule(constant(2.0))
    assert with_schedule(Slope(1.0).at) == with_schedule(Slope(1.0).at) != with_schedule(Slope(2.0).at)
    assert len({with_schedule(f) for f in [lambda t, c=c: c * t for c in (1.0, 2.0)]}) == 2
    assert identity(model=wide(4)) == identity(model=wide(4)) != identity(model=wide(5))
    assert identity(model=scaled(1)) == identity(model=scaled(1)) != identity(model=scaled(2))


def test_models_of_different_width_from_one_function_are_trained_apart(tmp_path):
    with Store(tmp_path / "a.sqlite") as store:
        train([Training(wide(hidden), TASK, **SHORT) for hidden in (3, 40)], store)
        shapes = [row.weights["final"]["0.weight"].shape for row in store.rows()]
    assert sorted(shapes) == [(3, 2)] * 3 + [(40, 2)] * 3


def times(number):
    def around(function):
        @functools.wraps(function)
        def inner(t):
            return number * function(t)

        return inner

    return around


def ones(t):
    return torch.ones_like(t)


def remembered(number):
    @functools.lru_cache
    def inner(t):
        return number * t

    return inner


def derived(base, number):
    class Derived(base):
        factor = number

        @staticmethod
        def scale():
            return number

        def back(self):
            return Other

    class Other(Derived):
        pass

    return Derived


BIASED = True


def of_module(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=BIASED)


def by_hand(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=BIASED)


by_hand.__module__ = "__main__"


def test_wrapped_functions_local_classes_and_numbers_of_the_module_are_told_apart(monkeypatch):
    def with_schedule(schedule):
        return identity(penalties=(Penalty(penalty, schedule),))

    assert len({with_schedule(f) for f in (ones, times(1.0)(ones), times(2.0)(ones))}) == 3
    assert with_schedule(remembered(1.0)) == with_schedule(remembered(1.0)) != with_schedule(remembered(2.0))
    bases = [(Own, 1), (Own, np.int64(2)), (nn.Linear, 1)]
    assert len({identity(model=derived(*chosen)) for chosen in bases}) == 3
    assert identity(model=derived(Own, 1)) == identity(model=derived(Own, 1))
    keys = []
    for biased in (True, False):
        monkeypatch.setitem(globals(), "BIASED", biased)
        models = by_hand, lambda i, o: nn.Linear(i, o, bias=BIASED), of_module
        keys.append([identity(model=model) for model in models])
    # what was typed in or made on the spot; a file that is imported tells its numbers itself
    assert [a != b for a, b in zip(*keys)] == [True, True, False]


class Loose:
    def at(self, t):
        return t


def test_a_method_of_what_cannot_be_written_down_is_refused():
    with pytest.raises(TypeError, match=r"Loose.at uses self, but .* cannot be written into a configuration; use"):
        identity(penalties=(Penalty(penalty, Loose().at),))


TYPED = """
from torch import nn

def helped(x):
    return x * {helped}

class Typed(nn.Linear):
    kinds = ({kind},)

    def __init__(self, inputs, outputs, factor={factor}):
        super().__init__(inputs, outputs)
        self.factor = factor

    def forward(self, x):
        return helped(super().forward(x) * self.factor * self.kinds[0]) * {number}
"""


def test_a_class_typed_in_anew_is_another_one(tmp_path):
    same = dict.fromkeys(("helped", "kind", "factor", "number"), 1.0)
    typed = []
    for settings in (same, *(same | {changed: 2.0} for changed in same)):
        typed.append({"__name__": "__main__"})
        exec(TYPED.format(**settings), typed[-1])
    models = [each["Typed"] for each in typed]
    assert len({identity(model=model) for model in models}) == 5
    with Store(tmp_path / "a.sqlite") as store:
        train([Training(model, TASK, **SHORT) for model in (models[0], models[-1])], store)
        assert len({row.scores["best_test"] for row in store.rows()}) == 6
