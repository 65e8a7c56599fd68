"""An NAU→NMU head on an ordinary MLP, trained by an ordinary loop.

A tank's level is seen in a picture, a price and a fee are plain numbers; the target is level * (price + fee). The MLP
learns to read the level, the head learns the arithmetic, and so the model holds for prices it has never seen.
"""

import argparse

import torch
from torch import Tensor, nn

from numerate.units import NAU, NMU, Ramp, bound_after_step, formula, penalty

PIXELS = 16


def draw(rows: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures (rows, PIXELS), prices and fees (rows, 2) from U[0, 5] times ``scale``, targets (rows, 1)."""
    level, costs = torch.rand(rows, 1), scale * 5 * torch.rand(rows, 2)
    picture = torch.sigmoid(level * PIXELS - torch.arange(PIXELS)) + 0.02 * torch.randn(rows, PIXELS)
    return picture, costs, level * costs.sum(-1, keepdim=True)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(PIXELS, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
        self.head = nn.Sequential(NAU(3, 2), NMU(2, 1))

    def forward(self, picture: Tensor, costs: Tensor) -> Tensor:
        return self.head(torch.cat([self.body(picture), costs], -1))


def train(steps: int, seed: int = 0) -> Model:
    torch.manual_seed(seed)
    model = Model()
    rates = [{"params": model.body.parameters(), "lr": 0.003}, {"params": model.head.parameters(), "lr": 0.1}]
    optimizer = torch.optim.Adam(rates)
    bound_after_step(optimizer, model)  # after every step: NAU's weights to [-1, 1], NMU's to [0, 1]
    sparsity = Ramp(1.0, start=steps // 2, end=3 * steps // 4)  # the weight of the penalty: first fit, then decide
    for step in range(steps):
        picture, costs, target = draw(128)
        error = (model(picture, costs) - target).square().mean()
        loss = error + sparsity(torch.tensor(step)) * penalty(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for unit in model.head:
        unit.snap_()  # the weights are close to whole numbers by now: take those
    return model


def relative_error(model: Model, scale: float) -> float:
    """Mean absolute error over the mean target, for costs ``scale`` times as large as in training."""
    picture, costs, target = draw(2000, scale)
    return ((model(picture, costs) - target).abs().mean() / target.mean()).item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An NAU→NMU head on an MLP.")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # a network this small runs fastest on one thread
    trained = train(arguments.steps, arguments.seed)
    print("the head computes:", formula(trained.head, "level price fee"))
    for scale in (1.0, 100.0):
        print(f"relative error, costs {scale:g} times those of training: {relative_error(trained, scale):.2%}")
