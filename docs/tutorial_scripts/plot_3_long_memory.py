"""
Long memory in place of ``nn.LSTM``
===================================

``URLSTM`` and ``NRU`` are called like ``torch.nn.LSTM``. Replace one name, and the layer remembers for longer.

The adding problem: a sequence of 100 random numbers, two of them marked. At the end, say the sum of the two. A layer
that forgets can only answer 1, the mean, and has a squared error of 1/6.
"""

# %%
# The data: numbers beside marks, (T, B, 2), and the sums, (B,).

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F

from numerate.recurrent import NRU, URLSTM

torch.set_num_threads(1)  # a network this small runs fastest on one thread
LENGTH, BATCH, HIDDEN, UPDATES = 100, 32, 64, 700


def adding(generator):
    numbers = torch.rand(LENGTH, BATCH, generator=generator)
    first = torch.randint(LENGTH // 2, (BATCH,), generator=generator)
    second = torch.randint(LENGTH // 2, LENGTH, (BATCH,), generator=generator)
    marks = F.one_hot(first, LENGTH) + F.one_hot(second, LENGTH)
    x = torch.stack((numbers, marks.T.float()), -1)
    return x, x.prod(-1).sum(0)


# %%
# The same loop for three layers. All take ``(T, B, I)`` and return the outputs ``(T, B, H)`` and the final state.


def train(layer, seed=0):
    torch.manual_seed(seed)
    readout, data = nn.Linear(HIDDEN, 1), torch.Generator().manual_seed(seed)
    parameters = [*layer.parameters(), *readout.parameters()]
    optimizer, losses = torch.optim.Adam(parameters, lr=3e-3), []
    for _ in range(UPDATES):
        x, y = adding(data)
        outputs, _state = layer(x)
        loss = (readout(outputs[-1]).squeeze(-1) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


torch.manual_seed(0)
layers = {
    "nn.LSTM": nn.LSTM(2, HIDDEN),
    "URLSTM": URLSTM(2, HIDDEN),
    "NRU": NRU(2, HIDDEN, memory_size=64),
}
curves = {name: train(layer) for name, layer in layers.items()}
for name, losses in curves.items():
    print(f"{name:8} squared error of the last 50 updates: {sum(losses[-50:]) / 50:.4f}")

# %%

figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, losses in curves.items():
    means = torch.tensor(losses).unfold(0, 50, 5).mean(-1)
    ax.plot(range(50, UPDATES + 1, 5), means, label=name)
ax.axhline(1 / 6, color="0.5", linestyle="--", label="always 1")
ax.set(xlabel="update", ylabel="squared error", yscale="log", ylim=(5e-4, 1))
ax.legend(frameon=False)

# %%
# What made the difference can be looked at. ``inspect`` returns what the gates did; the timescale of a unit is the
# number of steps after which it has forgotten: ``1 / (1 - forget gate)``.

x, _ = adding(torch.Generator().manual_seed(1))
start, trained = URLSTM(2, HIDDEN), layers["URLSTM"]
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for name, layer in {"at the start": start, "trained": trained}.items():
    forget = layer.inspect(x).activations[-1]["forget"].mean((0, 1))
    ax.hist((1 / (1 - forget)).log10().tolist(), bins=20, alpha=0.6, label=name)
ax.set(xlabel="timescale of a unit, log10 of steps", ylabel="units")
ax.legend(frameon=False)
