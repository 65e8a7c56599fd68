"""
An arithmetic unit inside a model of your own
=============================================

A network reads the level of a tank from a picture. The bill is ``level * (price + fee)``. An ordinary network learns
the bill for the prices it has seen. Put an NAU and an NMU behind the reading part, and the model is right for any
price.
"""

# %%
# The data: pictures of 16 pixels, a price and a fee. ``scale`` makes both larger than in training.

import matplotlib.pyplot as plt
import torch
from torch import nn

from numerate.units import NAU, NMU, Ramp, bound_after_step, formula, penalty

torch.set_num_threads(1)  # a network this small runs fastest on one thread
PIXELS = 16


def draw(rows, scale=1.0):
    level, costs = torch.rand(rows, 1), scale * 5 * torch.rand(rows, 2)
    picture = torch.sigmoid(level * PIXELS - torch.arange(PIXELS)) + 0.02 * torch.randn(rows, PIXELS)
    return picture, costs, level * costs.sum(-1, keepdim=True)


# %%
# Two models with the same reading part. One ends in an ordinary network, the other in an NAU, which adds, and an NMU,
# which multiplies. Both units are plain ``torch.nn.Module`` objects.


class Model(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(PIXELS, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
        self.head = head

    def forward(self, picture, costs):
        return self.head(torch.cat([self.body(picture), costs], -1))


# %%
# The training loop is the usual one with two additions:
#
# - ``bound_after_step`` clamps the units' weights after each optimiser step (NAU to [-1, 1], NMU to [0, 1]);
# - ``penalty`` pulls the weights to whole numbers. Its weight ramps up late: fit first, then decide.


def train(head, rate, steps=2000):
    torch.manual_seed(0)
    model = Model(head())
    groups = [{"params": model.body.parameters(), "lr": 0.003}, {"params": model.head.parameters(), "lr": rate}]
    optimizer = torch.optim.Adam(groups)
    bound_after_step(optimizer, model)
    scale = Ramp(1.0, start=steps // 2, end=3 * steps // 4)
    for step in range(steps):
        picture, costs, target = draw(128)
        loss = (model(picture, costs) - target).square().mean() + scale(torch.tensor(step)) * penalty(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


mlp = train(lambda: nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1)), rate=0.003)
exact = train(lambda: nn.Sequential(NAU(3, 2), NMU(2, 1)), rate=0.1)

# %%
# After training the weights are close to whole numbers. ``snap_`` rounds them, and the head can say what it computes.

for unit in exact.head:
    unit.snap_()
print("the head computes:", formula(exact.head, "level price fee"))

# %%
# Now raise the prices far beyond those of training.


def relative_error(model, scale):
    picture, costs, target = draw(5000, scale)
    with torch.no_grad():
        return ((model(picture, costs) - target).abs().mean() / target.mean()).item()


scales = [1, 2, 5, 10, 20, 50, 100]
errors = {"MLP head": mlp, "NAU and NMU head": exact}
errors = {name: [relative_error(model, scale) for scale in scales] for name, model in errors.items()}
for name, values in errors.items():
    print(f"{name:17}" + "".join(f"{value:8.1%}" for value in values))

figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, values in errors.items():
    ax.plot(scales, values, marker="o", label=name)
ax.set(xscale="log", yscale="log", xlabel="prices, in units of those in training", ylabel="relative error")
ax.legend(frameon=False)

# %%
# The error that remains comes from reading a noisy picture. The arithmetic is exact, so it does not grow.
#
# Three habits make such heads work:
#
# - **Fit first, then decide.** A penalty from the first step freezes whatever weights chance gave.
# - **Leave no freedom of scale.** A body that can scale its output lets the head rest on any weight. Here a sigmoid
#   keeps the level in [0, 1], so only weights of 1 reproduce the target.
# - **Round at the end**, and keep the rounded weights if the validation error is no worse.
