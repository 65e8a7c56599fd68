"""Random small modules from the supported operations: emitted gradients against autograd's."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from small_steps import make_members, make_state, make_step
from torch import Tensor, nn

from numerate.loops.cpp.loop import Cpp
from numerate.loops.plain.eager import Eager
from numerate.loops.step import State

OPERATIONS = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "exp": lambda h: torch.exp(-h.abs()),
    "expm1": lambda h: torch.expm1(h.clamp(-2, 2)),
    "log": lambda h: torch.log(h * h + 0.3),
    "log1p": lambda h: torch.log1p(h.abs()),
    "sin": torch.sin,
    "cos": torch.cos,
    "sqrt": lambda h: torch.sqrt(h * h + 0.1),
    "rsqrt": lambda h: torch.rsqrt(h * h + 0.1),
    "reciprocal": lambda h: torch.reciprocal(h * h + 0.5),
    "erf": torch.erf,
    "atan2": lambda h: torch.atan2(h, 1 + h.flip(-1).abs()),
    "pow": lambda h: (h.abs() + 0.5) ** 1.7,
    "power of a tensor": lambda h: (h.abs() + 0.5) ** torch.sin(h.flip(-1)),
    "softplus": nn.functional.softplus,
    "elu": nn.functional.elu,
    "gelu": nn.functional.gelu,
    "softshrink": nn.functional.softshrink,
    "clamp": lambda h: h.clamp(-0.5, 0.7),
    "where": lambda h: torch.where(h > h.flip(-1), 2 * h, h * h),
    "minimum": lambda h: torch.minimum(h, h.flip(-1) * 0.7 + 0.1),
    "maximum": lambda h: torch.maximum(h, h.flip(-1) * 0.7 + 0.1),
    "logic": lambda h: h * ((h > 0.2) | ((h < 0) & (h.flip(-1) < 0.1))),
    "softmax": lambda h: torch.softmax(h, -1),
    "layer norm": lambda h: nn.functional.layer_norm(h, h.shape[-1:], eps=0.1),
    "product": lambda h: h + (0.5 + h * 0.3).prod(-1, keepdim=True),
    "running sum": lambda h: h.cumsum(-1) * 0.5,
    "running product": lambda h: (1 + h * 0.3).cumprod(-1),
    "largest": lambda h: h - h.amax(-1, keepdim=True),
    "smallest": lambda h: h - h.amin(-1, keepdim=True),
    "join": lambda h: torch.cat([h, h.sin()], -1) if h.shape[-1] < 8 else h,
    "halve": lambda h: h[:, ::2] if h.shape[-1] > 3 else h,
    "turn": lambda h: h.roll(1, -1),
    "outer": lambda h: (h.unsqueeze(-1) * h.unsqueeze(-2).tanh()).sum(-1),
    "sinh": lambda h: torch.sinh(h.clamp(-3, 3)),
    "sinh near zero": lambda h: torch.sinh(h * 1e-5) * 1e5,
    "cosh": lambda h: torch.cosh(h.clamp(-3, 3)),
    "tan": lambda h: torch.tan(h.clamp(-1, 1)),
    "asin": lambda h: torch.asin(0.9 * h.tanh()),
    "acos": lambda h: torch.acos(0.9 * h.tanh()),
    "log2": lambda h: torch.log2(h * h + 0.3),
    "log10": lambda h: torch.log10(h * h + 0.3),
    "exp2": lambda h: torch.exp2(-h.abs()),
    "square": torch.square,
    "whole numbers": lambda h: h * (1 + h.floor() + 2 * h.ceil() + 3 * h.round() + 4 * h.trunc() + h.sign()) * 0.1,
    "halves": lambda h: h + h.detach() // 0.5,
    "distributed": lambda h: h / (0.5 + h.std(-1, keepdim=True)) + h.var(-1, keepdim=True),
    "length": lambda h: h / (0.5 + torch.linalg.vector_norm(h, dim=-1, keepdim=True)),
    "parts": lambda h: torch.stack([a * b for a, b in zip(h.split(1, -1), reversed(h.split(1, -1)))], -1).flatten(1),
    "pad": lambda h: nn.functional.pad(h[:, 1:], (0, 1, 0, 0), value=0.3) + h,
    "chosen places": lambda h: h * h[:, [0, 2, 2, 1]] if h.shape[-1] == 4 else h,
    "changed places": lambda h: _changed(h.clone()),
    "repeat": lambda h: h.repeat(1, 2)[:, : h.shape[-1]] * h.unsqueeze(1).repeat(1, 3, 1).sum(1),
    "a list as factor": lambda h: h * torch.arange(1, h.shape[-1] + 1),
    "a list as exponent": lambda h: h ** torch.arange(1, h.shape[-1] + 1),
}


def _changed(h: Tensor) -> Tensor:
    h[:, [0, -1]] = h[:, [1, 0]] * 2
    return h


class Chain(nn.Module):
    """A linear layer followed by the named operations."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names
        self.linear = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.linear(x)
        for name in self.names:
            hidden = OPERATIONS[name](hidden)
        return hidden.mean(-1, keepdim=True)


class Sum(nn.Module):
    """Several chains, so that one compilation tries many operations."""

    def __init__(self, chains: list[list[str]]) -> None:
        super().__init__()
        self.chains = nn.ModuleList(Chain(names) for names in chains)

    def forward(self, x: Tensor) -> Tensor:
        return sum((chain(x) for chain in self.chains), torch.zeros(()))


@pytest.mark.parametrize("first", range(0, len(OPERATIONS), 8))
def test_gradients_of_each_operation(first):
    check_gradients([[name] for name in list(OPERATIONS)[first : first + 8]])


chain_names = st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=2, max_size=4)


quick = settings(max_examples=2, deadline=None, derandomize=True, database=None, phases=[Phase.generate])


@quick
@given(st.lists(chain_names, min_size=4, max_size=4))
def test_gradients_of_random_modules(chains):
    check_gradients(chains)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(quick, max_examples=30)
@given(st.lists(chain_names, min_size=4, max_size=4))
def test_gradients_of_many_random_modules(chains):
    check_gradients(chains)


def check_gradients(chains: list[list[str]]) -> None:
    torch.manual_seed(0)
    module = Sum(chains)
    step = make_step(module, inputs=3, batch=8, betas=(0.0, 0.0))  # then the first moment is the gradient
    members = make_members(4)
    states: list[State] = []
    for loop in (Eager(step), Cpp(step)):
        state = make_state(module, 4)
        loop.train(state, members, torch.empty(0, 1, 4), 1)
        states.append(state)
    for name, expected in states[0].exp_avg.items():
        scale = max(expected.abs().max().item(), 1e-2)
        torch.testing.assert_close(states[1].exp_avg[name], expected, rtol=1e-4, atol=2e-5 * scale)
