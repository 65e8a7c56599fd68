"""
A new unit against the published ones
=====================================

You have an idea for a unit. Is it better than the published ones? This page answers that for one idea in under a
minute: 270 models, each trained for 50,000 steps.

The idea: an NMU multiplies the factors ``w x + 1 - w``. For inputs near -1 the factor is zero at ``w = 1/2``, in the
middle of the range from which the weights are drawn. A weight that starts below cannot get past it. So start above.
"""

# %%
# A unit is a ``torch.nn.Module`` with the signature ``(in_features, out_features)``. This one inherits everything
# else from the NMU.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from numerate.results import Store
from numerate.tasks import SingleModule
from numerate.train import Adam, Penalty, Training, train
from numerate.units import NMU, NACMul, Ramp, penalty


class HighNMU(NMU):
    def reset_parameters(self, generator=None):
        torch.nn.init.uniform_(self.weight, 0.6, 0.9, generator=generator)


# %%
# The task of the Primer's Table 11: multiply two numbers, trained on one range and tested on another. Every unit sees
# the same data, seed by seed.

RANGES = [((-20, -10), (-40, -20)), ((-2, -1), (-6, -2)), ((-1.2, -1.1), (-6.1, -1.2)), ((-0.2, -0.1), (-2, -0.2))]
RANGES += [
    ((-2, 2), ((-6, -2), (2, 6))),
    ((0.1, 0.2), (0.2, 2)),
    ((1, 2), (2, 6)),
    ((1.1, 1.2), (1.2, 6)),
    ((10, 20), (20, 40)),
]
RECIPES = {
    NACMul: (Adam(1e-3), ()),
    NMU: (Adam(1e-3), (Penalty(penalty, Ramp(10, 20_000, 35_000)),)),
    HighNMU: (Adam(1e-3), (Penalty(penalty, Ramp(10, 20_000, 35_000)),)),
}
work = [
    Training(
        unit,
        SingleModule("mul", inside, outside),
        seeds=tuple(range(10)),
        optimiser=optimiser,
        penalties=penalties,
        steps=50_000,
        labels={"unit": unit.__name__, "range": str(list(inside))},
    )
    for unit, (optimiser, penalties) in RECIPES.items()
    for inside, outside in RANGES
]

# %%
# ``train`` emits a native loop for each unit, the new one included, and trains all seeds and ranges at once. Finished
# runs go to an SQLite file; an interrupted call continues where it stopped.

with tempfile.TemporaryDirectory() as folder, Store(Path(folder, "results.sqlite")) as store:
    train(work, store, experiment="high-nmu")
    rows = store.rows("high-nmu")
print(len(rows), "runs of 50,000 steps")

# %%
# Success: the error on the test range is below that of the exact solution with weights off by 1e-5.

names = [unit.__name__ for unit in RECIPES]
ranges = [str(list(inside)) for inside, _ in RANGES]
solved = {name: [0] * len(ranges) for name in names}
for row in rows:
    solved[row.labels["unit"]][ranges.index(row.labels["range"])] += row.scores["best_test"] < row.scores["threshold"]
for name in names:
    print(f"{name:8}", *(f"{count:3}" for count in solved[name]), " of 10 on each range")

figure, ax = plt.subplots(figsize=(6.4, 2.2), layout="constrained")
ax.imshow([solved[name] for name in names], vmin=0, vmax=10, cmap="viridis")
ax.set_xticks(range(len(ranges)), ranges, rotation=40, ha="right")
ax.set_yticks(range(len(names)), names)
for y, name in enumerate(names):
    for x, count in enumerate(solved[name]):
        ax.text(x, y, count, ha="center", va="center", color="white" if count < 7 else "black")
