"""Discover (a + b)(a + b + c + d) from numbers between 1 and 2, and use it a hundred times further out."""

import torch
from torch import nn

from numerate.units import NAU, NMU, bound_after_step, formula, penalty


def target(x):
    return (x[:, :1] + x[:, 1:2]) * x.sum(1, keepdim=True)


torch.set_num_threads(1)  # a network this small runs fastest on one thread
torch.manual_seed(0)
model = nn.Sequential(NAU(4, 2), NMU(2, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
bound_after_step(optimizer, model)
for step in range(2000):
    x = 1 + torch.rand(128, 4)
    loss = (model(x) - target(x)).square().mean() + min(step / 1000, 1) * penalty(model)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("discovered:", formula(model, "a b c d"))
x = 100 + 100 * torch.rand(1000, 4)
print(f"mean relative error on [100, 200]: {((model(x) - target(x)) / target(x)).abs().mean():.3%}")
