"""NSR: truth tables of the six comparisons, redundancy, and what its options change."""

import operator

import pytest
import torch

from numerate.units import NSR, comparison
from numerate.units.nsr import COMPARISONS, nsr

MEANING = {
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
    "≠": operator.ne,
    "≤": operator.le,
    "≥": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
}
PAIRS = torch.cartesian_prod(torch.arange(-3.0, 4.0), torch.arange(-3.0, 4.0))


@pytest.mark.parametrize("symbol", MEANING)
@pytest.mark.parametrize("paths", [1, 3])
def test_truth_table(symbol, paths):
    """Whole numbers differ by at least 1, so lambda = 10 makes every case clear."""
    unit = NSR(2, 1, scale=10.0, paths=paths).compare_(symbol)
    left, right = PAIRS.unbind(-1)
    expected = MEANING[symbol](left, right).float().unsqueeze(-1)
    torch.testing.assert_close(unit(PAIRS), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("symbol", COMPARISONS)
def test_weights_give_a_logit_of_plus_or_minus_the_sharpness(symbol):
    sign, zero, bias = comparison(symbol, sharpness=3.0)
    for (s, z), values in {(1, -1): (2, 1), (0, 1): (1, 1), (-1, -1): (1, 2)}.items():
        expected = 3.0 if MEANING[symbol](*values) else -3.0
        assert sign * s + zero * z + bias == expected


def test_unknown_comparison_is_named():
    with pytest.raises(ValueError, match=r"comparison must be one of '<', .* got '~'"):
        comparison("~")


def test_the_chosen_inputs_are_compared():
    unit = NSR(4, 2, scale=10.0).compare_("<", 2, 0).compare_("=", 1, 3, output=1)
    x = torch.tensor([[5.0, 1.0, 4.0, 1.0], [4.0, 1.0, 5.0, 2.0]])
    torch.testing.assert_close(unit(x), torch.tensor([[1.0, 1.0], [0.0, 0.0]]), rtol=0, atol=1e-6)
    assert unit.comparisons() == ["x1 > x3", "x2 = x4"]
    assert unit.comparisons("abcd") == ["a > c", "b = d"]


def test_pair_adds_the_negation():
    unit = NSR(3, 2, pair=True)
    y = unit(torch.randn(5, 3))
    assert y.shape == (5, 4)
    torch.testing.assert_close(y[:, :2] + y[:, 2:], torch.ones(5, 2))
    assert unit.formula().shape == (4, 1)


def test_paths_add_their_logits():
    unit, x = NSR(3, 2, paths=3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    first, second = unit.first.softmax(-1), unit.second.softmax(-1)
    logits = [
        nsr(x, first[[p]], second[[p]], unit.sign[[p]], unit.zero[[p]], unit.bias[[p]], unit.scale).logit()
        for p in range(3)
    ]
    torch.testing.assert_close(unit(x), torch.stack(logits).sum(0).sigmoid())


def test_scale_sharpens_the_bits():
    unit = NSR(2, 1).compare_("=")
    near = torch.tensor([0.0, 0.1])
    loose = unit(near).item()
    unit.scale = 100.0
    assert loose > 0.99
    assert unit(near).item() < 0.01


def test_gradient_of_the_difference_by_hand():
    """d logit / d a = lambda (1 - s^2) (w± - 4 s w0), s = tanh(lambda (a - b))."""
    unit = NSR(2, 1, scale=0.5, dtype=torch.float64).compare_(">", sharpness=2.0)
    x = torch.tensor([0.7, -0.4], dtype=torch.float64, requires_grad=True)
    unit(x).logit().sum().backward()
    s = torch.tensor(0.5 * 1.1, dtype=torch.float64).tanh()
    slope = 0.5 * (1 - s**2) * (2.0 - 4 * s * -1.0)
    torch.testing.assert_close(x.grad, torch.stack([slope, -slope]))


def test_what_an_output_decides_in_words():
    unit = NSR(3, 1, paths=2).compare_("≤", 0, 2)
    assert unit.comparisons() == ["x1 ≤ x3"]
    with torch.no_grad():
        unit.first[1, 0] = torch.tensor([0.0, 9.0, 0.0])
        unit.sign[1] = 1.0
    assert unit.comparisons() == ["several"]
    with torch.no_grad():
        unit.sign.zero_()
        unit.zero.zero_()
        unit.bias.fill_(1.0)
    assert unit.comparisons() == ["always"]
    with torch.no_grad():
        unit.bias.fill_(-1.0)
    assert unit.comparisons() == ["never"]


@pytest.mark.parametrize("symbol", COMPARISONS)
def test_an_input_compared_with_itself_is_always_or_never(symbol):
    unit = NSR(3, 1).compare_(symbol, 1, 1)
    assert unit.comparisons("abc") == ["always" if MEANING[symbol](1, 1) else "never"]
    assert unit(torch.randn(5, 3)).round().unique().tolist() == [float(MEANING[symbol](1, 1))]


def test_a_path_that_sees_no_difference_counts_as_a_constant():
    unit = NSR(3, 1, paths=2).compare_("<", 0, 2, sharpness=1.0)
    with torch.no_grad():
        unit.second[1, 0] = unit.first[1, 0]
        unit.zero[1] = 0.5
    assert unit.comparisons("abc") == ["a < c"]
    with torch.no_grad():
        unit.zero[1] = 5.0
    assert unit.comparisons("abc") == ["always"]


@pytest.mark.parametrize(("names", "count"), [("ab", 1), ("a b", 2), (["a"], 1), ("abcd", 1)])
def test_wrong_number_of_names(names, count):
    with pytest.raises(ValueError, match=f"names must give 3 input names, got {count}"):
        NSR(3, 1).comparisons(names)


def test_names_of_any_length():
    unit = NSR(3, 1).compare_("<", 0, 2)
    assert unit.comparisons("cost fee price") == unit.comparisons(["cost", "fee", "price"]) == ["cost < price"]


@pytest.mark.parametrize("symbol", ["<", "≥"])
def test_learns_an_order_and_extrapolates(symbol):
    generator = torch.Generator().manual_seed(0)
    unit = NSR(2, 1)
    unit.reset_parameters(generator)
    optimizer = torch.optim.Adam(unit.parameters(), lr=0.03)
    for _ in range(500):
        x = torch.randint(-9, 10, (64, 2), generator=generator).float()
        y = MEANING[symbol](x[:, :1], x[:, 1:]).float()
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy(unit(x), y).backward()
        optimizer.step()
    assert unit.comparisons() == [f"x1 {symbol} x2"]
    far = torch.randint(-10_000, 10_000, (1000, 2), generator=generator).float()
    assert torch.equal(unit(far) > 0.5, MEANING[symbol](far[:, :1], far[:, 1:]))


@pytest.mark.parametrize("option", [{"paths": 0}, {"scale": 0.0}, {"scale": float("nan")}], ids=str)
def test_wrong_options_are_named(option):
    with pytest.raises(ValueError, match=f"{next(iter(option))} must be"):
        NSR(2, 1, **option)


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        ({"left": 3}, "left must be from 0 to 2, got 3"),
        ({"right": -4}, "right must be from 0 to 2, got -4"),
        ({"output": 1}, "output must be from 0 to 0, got 1"),
    ],
)
def test_a_place_that_is_not_there_is_named(places, sentence):
    with pytest.raises(ValueError, match=sentence):
        NSR(3, 1).compare_("<", **places)
