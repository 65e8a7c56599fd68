"""EURNN and GORU: the transition is orthogonal (unitary) whatever the angles."""

import math
from typing import Any

import pytest
import torch

from numerate.recurrent import EURNN, GORU
from numerate.recurrent.eurnn import EURNNCell
from numerate.recurrent.rotation import (
    mod_relu,
    mod_relu_complex,
    neighbours,
    reset_angle_,
    rotate,
    rotate_complex,
    rotate_neighbours,
    rotation_matrix,
)
from numerate.recurrent.rotation_loops import sizes

f64 = torch.float64


def unitary_matrix(angle, phase, diagonal):
    """The real matrix on [re; im]."""
    re, im = torch.eye(2 * len(diagonal), dtype=f64).chunk(2, -1)
    return torch.cat(rotate_complex(re, im, angle, phase, diagonal), -1).mT


@pytest.mark.parametrize("size", [2, 4, 16, 64])
def test_the_transition_is_orthogonal(size):
    angle = reset_angle_(torch.empty(int(math.log2(size)), size // 2, dtype=f64))
    matrix = rotation_matrix(angle)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(size, dtype=f64))
    torch.testing.assert_close(torch.linalg.det(matrix), torch.ones((), dtype=f64))
    assert size == 2 or (matrix != 0).all()  # every unit reaches every other in one step


def test_levels_pair_units_at_falling_strides():
    """Built again as a product of matrices: level l pairs j with j xor d / 2^(l + 1)."""
    size = 8
    angle = reset_angle_(torch.empty(3, 4, dtype=f64))
    product = torch.eye(size, dtype=f64)
    for level in range(3):
        stride = size >> (level + 1)
        pairs = [j for j in range(size) if not j & stride]
        matrix = torch.zeros(size, size, dtype=f64)
        for j, t in zip(pairs, angle[level]):
            matrix[j, j], matrix[j, j ^ stride] = t.cos(), -t.sin()
            matrix[j ^ stride, j], matrix[j ^ stride, j ^ stride] = t.sin(), t.cos()
        product = matrix @ product
    torch.testing.assert_close(rotation_matrix(angle), product)
    h = torch.randn(5, size, dtype=f64)
    torch.testing.assert_close(rotate(h, angle), h @ product.T)


def test_the_complex_transition_is_unitary():
    angle, phase = (reset_angle_(torch.empty(3, 4, dtype=f64)) for _ in range(2))
    both = unitary_matrix(angle, phase, reset_angle_(torch.empty(8, dtype=f64)))
    torch.testing.assert_close(both @ both.T, torch.eye(16, dtype=f64))
    matrix = torch.complex(both[:8, :8], both[8:, :8])
    torch.testing.assert_close(matrix @ matrix.mH, torch.eye(8, dtype=torch.complex128))
    torch.testing.assert_close(both[:8, 8:], -both[8:, :8])


@pytest.mark.parametrize("size", [2, 5, 8])
@pytest.mark.parametrize("capacity", [1, 2, 7])
def test_the_tunable_transition_is_orthogonal_and_a_product_of_neighbours(size, capacity):
    even, odd = (reset_angle_(torch.empty(shape, dtype=f64)) for shape in neighbours(size, capacity))
    product = torch.eye(size, dtype=f64)
    for level in range(capacity):
        matrix = torch.eye(size, dtype=f64)
        for j, t in enumerate((odd if level % 2 else even)[level // 2]):
            a = 2 * j + level % 2
            matrix[a, a], matrix[a, a + 1], matrix[a + 1, a], matrix[a + 1, a + 1] = t.cos(), -t.sin(), t.sin(), t.cos()
        product = matrix @ product
    matrix = rotate_neighbours(torch.eye(size, dtype=f64), even, odd).T
    torch.testing.assert_close(matrix, product)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(size, dtype=f64))
    reach = (matrix.abs() > 0).sum(0).max()
    assert reach <= min(2**capacity, 2 * capacity, size)  # a unit meets few others in few levels


def test_full_capacity_is_as_many_angles_as_rotations_have():
    for size in (2, 5, 8):
        even, odd = neighbours(size, size)
        assert even[0] * even[1] + odd[0] * odd[1] == size * (size - 1) // 2


def test_the_tunable_complex_transition_is_unitary():
    layer = EURNN(1, 6, complex=True, capacity=4, dtype=f64)
    assert isinstance(layer.cell, EURNNCell)
    both = layer.cell.recurrent_weight(layer.parts())
    torch.testing.assert_close(both @ both.T, torch.eye(12, dtype=f64))
    torch.testing.assert_close(both[:6, 6:], -both[6:, :6])


@pytest.mark.parametrize("options", [{}, {"complex": True}, {"capacity": 5}, {"capacity": 2, "complex": True}], ids=str)
def test_without_input_the_norm_of_the_state_is_kept(options):
    layer = EURNN(1, 16, dtype=f64, **options)
    start = tuple(torch.randn(1, 3, 16, dtype=f64) for _ in layer.cell.state_shapes)
    _, end = layer(torch.zeros(200, 3, 1, dtype=f64), start)
    norms = [sum(entry.square().sum(-1) for entry in state) for state in (start, end)]
    torch.testing.assert_close(*norms)


@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (EURNN, {}),
        (EURNN, {"complex": True}),
        (EURNN, {"capacity": 3}),
        (EURNN, {"capacity": 3, "complex": True}),
        (GORU, {}),
    ],
    ids=["EURNN", "complex", "tunable", "tunable complex", "GORU"],
)
def test_rotating_level_by_level_is_the_dense_product(layer, options):
    one, two = layer(3, 8, dtype=f64, **options), layer(3, 8, dtype=f64, dense=False, **options)
    two.load_state_dict(one.state_dict())
    x = torch.randn(4, 2, 3, dtype=f64)
    gradients = []
    for model in (one, two):
        output, state = model(x)
        (output.sin().sum() + state[0].square().sum()).backward()
        gradients.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(one(x), two(x))
    torch.testing.assert_close(*gradients)


def test_a_loop_that_rotates_stays_where_its_tensors_are():
    layer, x = EURNN(3, 16), torch.randn(20, 2, 3)
    expected = layer(x)[0]
    sizes._pairs.cache_clear()
    sizes._units.cache_clear()
    with torch.device("meta"):
        assert torch.equal(layer(x)[0], expected)


@pytest.mark.parametrize(("dense", "rotates"), [(None, True), (False, True), (0, True), (True, False), (1, False)])
def test_dense_says_whether_loops_rotate(dense, rotates):
    cell = EURNN(3, 16, dense=dense).cell
    assert isinstance(cell, EURNNCell)
    assert (cell.rotation_sizes is not None) == rotates
    assert cell.multiplied_out == (dense is None or bool(dense))
    assert EURNNCell(3, 4096).rotation_sizes is None  # a GPU's block has no room for the angles


def test_complex_recurrence_is_that_of_complex_numbers():
    layer = EURNN(3, 4, complex=True, bias=True, dtype=f64)
    p = layer.parts()
    with torch.no_grad():
        p["modrelu_bias"].copy_(torch.randn(4) * 0.1)
    both = unitary_matrix(p["angle"], p["phase"], p["diagonal"])
    matrix = torch.complex(both[:4, :4], both[4:, :4])
    weight, h = torch.complex(*p["weight_ih"].chunk(2)), torch.zeros(2, 4, dtype=torch.complex128)
    x, outputs = torch.randn(5, 2, 3, dtype=f64), []
    for x_t in x:
        v = h @ matrix.T + x_t.to(h.dtype) @ weight.T
        h = v / v.abs() * (v.abs() + p["modrelu_bias"]).relu()
        outputs.append(h.real)
    torch.testing.assert_close(layer(x)[0], torch.stack(outputs))


def test_mod_relu_keeps_the_sign_and_shortens():
    v, b = torch.tensor([-3.0, -0.5, 0.0, 2.0]), torch.tensor(-1.0)
    assert mod_relu(v, b).tolist() == [-2.0, 0.0, 0.0, 1.0]
    assert mod_relu(v, b, eps=0.5).tolist() == [-2.5, 0.0, 0.0, 1.5]
    re, im = mod_relu_complex(torch.tensor([3.0, 0.0]), torch.tensor([4.0, 0.0]), b)
    torch.testing.assert_close((re, im), (torch.tensor([2.4, 0.0]), torch.tensor([3.2, 0.0])))


def test_goru_is_its_equations():
    layer = GORU(3, 4, dtype=f64)
    x, h = torch.randn(2, 3, dtype=f64), torch.randn(2, 4, dtype=f64)
    p = layer.parts()
    ur, ug, uc = p["weight_ih"].chunk(3)
    wr, wg = p["weight_hh"].chunk(2)
    br, bg = p["bias_ih"].chunk(2)
    assert br.eq(2).all()
    r, g = (x @ ur.T + h @ wr.T + br).sigmoid(), (x @ ug.T + h @ wg.T + bg).sigmoid()
    c = mod_relu(x @ uc.T + r * (h @ rotation_matrix(p["angle"]).T), p["modrelu_bias"])
    output, _ = layer(x[None], h[None])
    torch.testing.assert_close(output[0], g * h + (1 - g) * c)


def test_sizes_that_cannot_be_get_one_clear_sentence():
    for layer in (EURNN, GORU):
        with pytest.raises(ValueError, match="power of two, got 6"):
            layer(3, 6)
        for name, value in (("weight_init", "xavier_normal"), ("recurrent_bias", True)):  # the start is the paper's
            options: dict[str, Any] = {name: value}
            with pytest.raises(TypeError, match=f"{layer.__name__} has no keyword '{name}'"):
                layer(3, 4, **options)
    EURNN(3, 6, capacity=2)
    with pytest.raises(ValueError, match="capacity must be a positive whole number"):
        EURNN(3, 6, capacity=0)
    with pytest.raises(ValueError, match="at least 2, got 1"):
        EURNN(3, 1, capacity=2)
