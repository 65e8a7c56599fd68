"""Adam as native code: the numbers of the plain form, and of torch."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from numerate.loops.toolchain import native
from numerate.train.networks import adam
from numerate.train.specification import Adam

needs_compiler = pytest.mark.skipif(not native.available(), reason="needs a C++ compiler")
DEVICES = [
    pytest.param("cpu", marks=needs_compiler),
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")),
]


def native_update(device: str) -> Callable[..., None]:
    from numerate.train.networks import cpu_adam, cuda_adam

    return (cuda_adam if device == "cuda" else cpu_adam).update_


def moved(device: str, *tensors: Tensor) -> list[Tensor]:
    return [tensor.to(device) for tensor in tensors]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [96, 37])  # whole vectors, and a rest
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("limited", [False, True])
def test_native_code_updates_as_the_plain_form(device: str, width: int, limited: bool, own: bool) -> None:
    torch.manual_seed(0)
    low, high = moved(device, torch.full((width,), -0.1), torch.full((width,), 0.2))
    limits = (low, high) if limited else None
    plain = adam.State.start(torch.randn(4, width).to(device))
    plain.frozen[2] = True
    betas, rate = moved(device, torch.tensor([0.9, 0.999]), torch.full((4, 1), 0.01))
    if own:  # settings for each number
        betas = betas.unsqueeze(-1) * torch.linspace(0.5, 1, width).to(device)
        rate = 0.02 * torch.rand(4, width).to(device)
    found = adam.State(*(value.clone() for value in vars(plain).values()))
    for step in range(5):
        gradient = torch.randn(4, width).to(device)
        gradient[1, 7] = torch.inf if step == 3 else 0.0
        at = torch.tensor(step).to(device)
        rest = gradient, at, rate, 1 - betas ** (step + 1), Adam(), limits, betas if own else None
        adam.update_(plain, *rest)
        native_update(device)(found, *rest)
    for name, value in vars(plain).items():
        torch.testing.assert_close(getattr(found, name), value, rtol=1e-5, atol=1e-7)
    assert found.ended.tolist() == [-1, 3, -1, -1]


@needs_compiler
def test_native_code_updates_as_torch() -> None:
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(70, dtype=torch.float64))
    state = adam.State.start(parameter.detach().float().unsqueeze(0))
    torch_adam = torch.optim.Adam([parameter], lr=0.01, betas=(0.8, 0.99))
    for step in range(20):
        gradient = torch.randn(70)
        parameter.grad = gradient.double()
        torch_adam.step()
        corrections = 1 - torch.tensor([0.8, 0.99]) ** (step + 1)
        rest = torch.tensor(step), torch.tensor([[0.01]]), corrections, Adam(0.01, betas=(0.8, 0.99)), None
        native_update("cpu")(state, gradient.unsqueeze(0), *rest)
    torch.testing.assert_close(state.parameters[0].double(), parameter.detach(), rtol=1e-5, atol=1e-6)
