"""The elementary functions of the C++ prelude against torch in double precision."""

import ctypes
import math

import pytest
import torch
from torch import Tensor

from numerate.loops.toolchain import native

inf, nan = math.inf, math.nan
SPECIAL = torch.tensor([
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, inf, -inf, nan, 1e-45, -1e-45, 1e-38, -1e-39, 3.4e38, -3.4e38, 1e-8, -1e-8, 2.0,
    3.0, -2.0, -3.0, 1.5, 2.5, -2.5, 20.0, -20.0, 86.99, 88.72, 88.73, 89.0, 100.0, -87.4, -100.0, -103.9, -104.0,
    -110.0, 9999.9, 1e4, 1e5, 1e10, 1e30, 8388609.0, 0.99999994, 1.0000001,
])  # fmt: skip

UNARY = {  # function -> largest error in units of the last place
    "exp": 1.1, "expm1": 1.5, "log": 1.0, "log1p": 1.5, "sin": 1.6, "cos": 1.6, "tanh": 2.5, "atan": 2.8, "erf": 1.1,
    "sqrt": 0.5, "abs": 0, "sign": 0, "floor": 0, "ceil": 0, "round": 0, "trunc": 0,
}  # fmt: skip
BINARY = {"pow": 0.6, "atan2": 3.1, "minimum": 0, "maximum": 0}


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    lines = ['#include "prelude.hpp"']
    lines += [
        f'extern "C" void call_{name}(const float *x, const float *, float *out, int64_t count) {{ '
        f"for (int64_t i = 0; i < count; i += LANES) store(out + i, {name}(load(x + i))); }}"
        for name in (*UNARY, "sigmoid")
    ]
    lines += [
        f'extern "C" void call_{name}(const float *x, const float *y, float *out, int64_t count) {{ '
        f"for (int64_t i = 0; i < count; i += LANES) store(out + i, {name}(load(x + i), load(y + i))); }}"
        for name in BINARY
    ]
    return native.library("\n".join(lines))


def call(library: ctypes.CDLL, name: str, x: Tensor, y: Tensor | None = None) -> Tensor:
    y = x if y is None else y
    padded = [torch.cat([v, v[:1].expand(-len(v) % 16)]).contiguous() for v in (x, y)]
    out = torch.empty_like(padded[0])
    library[f"call_{name}"](*map(native.pointer, (*padded, out)), ctypes.c_int64(len(out)))
    return out[: len(x)]


def units_in_the_last_place(found: Tensor, exact: Tensor) -> Tensor:
    """Distance from the exact value, measured in spacings of float32 there; 0 where the nearest float32 was found."""
    nearest = exact.float()
    spacing = 2.0 ** (torch.frexp(nearest.abs())[1].clamp(min=-125).double() - 24)
    distance = (found.double() - exact).abs() / spacing
    right = (found == nearest) | (found.isnan() & nearest.isnan())
    return distance.nan_to_num(nan=inf).masked_fill(right, 0)


def arguments() -> Tensor:
    torch.manual_seed(0)
    spread = torch.exp(torch.randn(50_000) * 30)
    quarters = torch.arange(6400) * (math.pi / 2)
    pieces = [torch.randn(50_000) * scale for scale in (1e-3, 3, 50)]
    return torch.cat([SPECIAL, *pieces, spread, -spread, torch.rand(50_000) * 2e4 - 1e4, quarters])


@pytest.mark.parametrize("name", UNARY)
def test_function_of_one_number(library, name):
    x = arguments()
    error = units_in_the_last_place(call(library, name, x), getattr(torch, name)(x.double()))
    assert error.max() <= UNARY[name], x[error.argmax()]


def test_tanh_reaches_one_where_it_should(library):
    """1 - tanh² is a gradient: it is right to one spacing of float32 at 1, and 0 from 9.0109 on, not before."""
    x = torch.linspace(5, 10, 160_000)
    found, exact = call(library, "tanh", x), torch.tanh(x.double()).float()
    assert torch.equal(found == 1, exact == 1)
    assert (found - exact).abs().max() <= 2**-24
    assert call(library, "tanh", torch.tensor([8.7, 9.0, 9.02])).tolist() == [1 - 2**-24, 1 - 2**-24, 1]


def test_sigmoid_down_to_the_smallest_normal_number(library):
    x = arguments()
    x = x[~(x < -87)]
    error = units_in_the_last_place(call(library, "sigmoid", x), torch.sigmoid(x.double()))
    assert error.max() <= 2.6
    assert call(library, "sigmoid", torch.tensor([-200.0, -inf])).tolist() == [0, 0]


@pytest.mark.parametrize("name", BINARY)
def test_function_of_two_numbers(library, name):
    torch.manual_seed(0)
    corners = torch.cartesian_prod(SPECIAL, SPECIAL).unbind(-1)
    x = torch.cat([corners[0], torch.exp(torch.randn(50_000) * 5), torch.randn(50_000)])
    y = torch.cat([corners[1], torch.randn(50_000) * 10, torch.randn(50_000).mul(4).round()])
    error = units_in_the_last_place(call(library, name, x, y), getattr(torch, name)(x.double(), y.double()))
    assert error.max() <= BINARY[name], (x[error.argmax()], y[error.argmax()])


@pytest.mark.parametrize("name", ["exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "sigmoid", "erf", "pow"])
def test_bits_do_not_depend_on_the_other_lanes(library, name):
    """A neighbour with a special argument sends all lanes the long way."""
    torch.manual_seed(0)
    x = torch.rand(1600) * 10 + 0.01
    disturbed = x.clone()
    disturbed[::16] = SPECIAL.repeat(3)[:100]
    kept = torch.ones(1600, dtype=torch.bool)
    kept[::16] = False
    y = torch.full_like(x, 1.7)
    assert torch.equal(call(library, name, x, y)[kept], call(library, name, disturbed, y)[kept])
