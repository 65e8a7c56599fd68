"""Discover (a + b)(a + b + c + d) from numbers between 1 and 2, and see how it fares a hundred times further out."""

import torch
from torch import nn

from numerate.units import NAU, NMU, bound_after_step, formula, penalty


def target(x):
    return (x[:, :1] + x[:, 1:2]) * x.sum(1, keepdim=True)


def train(model, lr):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    bound_after_step(optimizer, model)
    for step in range(2000):
        x = 1 + torch.rand(128, 4)
        loss = (model(x) - target(x)).square().mean() + min(step / 1000, 1) * penalty(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


torch.set_num_threads(1)  # so small a network is fastest on one
torch.manual_seed(0)
units = train(nn.Sequential(NAU(4, 2), NMU(2, 1)), lr=0.1)
mlp = train(nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1)), lr=0.003)

print("discovered:", formula(units, "a b c d"))
for name, low, high in [("seen, [1, 2]", 1, 2), ("far, [100, 200]", 100, 200)]:
    x = low + (high - low) * torch.rand(1000, 4)
    errors = [((model(x) - target(x)) / target(x)).abs().mean().item() for model in (units, mlp)]
    print(f"mean relative error, {name:16} units {errors[0]:.4%}   MLP {errors[1]:.4%}")
