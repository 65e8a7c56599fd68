"""Tasks of truth values and comparisons against plain Python, example by example."""

import math
import operator

import pytest
import torch

from numerate.tasks import Compare, Count, Logic, Minimum, Piecewise, Relaxation
from numerate.tasks.logic import RULES

UNIFORMS = torch.rand(400, 64, generator=torch.Generator().manual_seed(0))
TRUTH = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": lambda a, b: not a,
    "xor": lambda a, b: a != b,
    "mul": operator.mul,
    "mean": lambda a, b: (a + b) / 2,
    "identity": lambda a, b: a,
    "constant": lambda a, b: 1,
}
SYMBOLS = {
    "<": operator.lt, ">": operator.gt, "=": operator.eq, "≠": operator.ne, "≤": operator.le, "≥": operator.ge,
}  # fmt: skip


def examples(task, split="train", draws=None):
    return task.examples(UNIFORMS[:, : draws or task.draws], task.constants(0, split))


@pytest.mark.parametrize("rule", RULES)
def test_rules_are_those_of_python(rule):
    for split, low, high in (("train", 0.0, 0.5), ("test", 0.5, 1.0)):
        x, y = examples(Logic(rule), split)
        for (a, b), found in zip(x.tolist(), y[:, 0].tolist()):
            assert found == pytest.approx(float(TRUTH[rule](a, b)), abs=1e-6)
        if rule in ("mul", "mean", "identity", "constant"):
            assert low <= x.min() < x.max() < high
        else:
            assert {tuple(pair) for pair in x.tolist()} == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("symbol", SYMBOLS)
def test_comparisons_are_those_of_python(symbol, integers):
    task = Compare(symbol, integers=integers)
    x, y = examples(task)
    for (a, b), found in zip(x.tolist(), y[:, 0].tolist()):
        assert found == SYMBOLS[symbol](a, b)
    assert 0.2 < (x[:, 0] == x[:, 1]).float().mean() < 0.5
    assert (x == x.round()).all() == integers
    assert x.abs().max() <= 9
    assert 500 < examples(task, "test")[0].abs().max() <= 1000


def test_pieces_meet_or_jump():
    for pieces, function in (
        ("distance", lambda a, b: abs(a - b)),
        ("jump", lambda a, b: a + b if a > b else a - b),
    ):
        task = Piecewise(pieces)
        x, y = examples(task, "test")
        assert y[:, 0].tolist() == pytest.approx([function(a, b) for a, b in x.tolist()], rel=1e-5, abs=1e-4)
        u = torch.rand(200_000, 2, generator=torch.Generator().manual_seed(1))
        square = (task.examples(u, task.constants(0, "test"))[1] ** 2).mean().item()
        assert task.threshold() == pytest.approx(1e-4 * square, rel=0.02)


def test_minimum_and_count_of_lists_of_any_length():
    task = Minimum(test_length=12)
    for split, length, size in (("train", 5, 10), ("test", 12, 100)):
        x, y = examples(task, split, length)
        assert y[:, 0].tolist() == [min(numbers) for numbers in x.tolist()]
        assert x.max() == size - 1
    counted = Count(test_length=12)
    for split, draws in (("train", 11), ("test", 25)):
        x, y = examples(counted, split, draws)
        assert y[:, 0].tolist() == [numbers[1:].count(numbers[0]) for numbers in x.tolist()]
    longer = counted.held_out("test", 7)
    assert longer is not None
    assert longer.shape == (7, 25)
    assert counted.held_out("validation", 7) is None


def test_relaxation_is_one_round_of_bellman_ford_at_a_node():
    x, y = examples(Relaxation())
    for (d, *pairs), found in zip(x.tolist(), y[:, 0].tolist()):
        assert found == min([d, *(a + w for a, w in zip(pairs[::2], pairs[1::2]))])
    assert 1 <= x[:, 2::2].min() <= x[:, 2::2].max() <= 10


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Logic("nand"), "rule must be one of and, or"),
        (lambda: Logic("and", limit=math.nan), "limit must be above 0"),
        (lambda: Compare("<>"), "symbol must be one of"),
        (lambda: Piecewise("three"), "pieces must be one of"),
        (lambda: Minimum(length=0), "length must be a positive whole number"),
        (lambda: Relaxation(neighbours=0), "neighbours must be a positive whole number"),
    ],
)
def test_bad_settings_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
