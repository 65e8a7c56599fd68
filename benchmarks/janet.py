"""What the shift of JANET's input gate does to characters: ``python -m benchmarks.janet``.

With β = 1 forget and input gate sum to more than 1, up to e times for long timescales, so that the recurrence gains
by as much. First: how far a state that was moved by 0.001 is from the other after some steps of random characters, at
the start and at the size of the NRU paper's Table 2. Then, with ``--train``: bits a character of the test text along
1,000 updates of 160 units (needs ``numerate data get ptb``). The tables are markdown.
"""

import argparse
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import Tensor

from numerate.experiments.models import sequence_model
from numerate.recurrent import JANET
from numerate.results import Store
from numerate.tasks import Characters
from numerate.train import Adam, NetworkTraining, train

SHIFTS = (1.0, 0.0)
STEPS = (50, 150, 300, 600)
TIMESCALE = 50


@torch.no_grad()
def distances(beta: float, x: Tensor, hidden: int = 1000) -> list[float]:
    """Root mean square between two states after each number of steps."""
    torch.manual_seed(0)
    layer = JANET(x.shape[-1], hidden, timescale=TIMESCALE, beta=beta)
    first, _ = layer(x)
    second, _ = layer(x, (0.001 * torch.randn(1, x.shape[1], hidden),))
    return [float((first[step - 1] - second[step - 1]).square().mean().sqrt()) for step in STEPS]


def bits() -> dict[float, list[float]]:
    """β -> bits a character, after every hundred updates."""
    task, adam = Characters(32, 50, evaluated=20), Adam(1e-3, clip="norm", limit=1.0)
    work = []
    for beta in SHIFTS:
        layer = partial(JANET, hidden_size=160, timescale=TIMESCALE, beta=beta)
        model = partial(sequence_model, layer=layer, carries=True)
        work.append(NetworkTraining(model, task, (0,), adam, steps=1000, evaluate_every=100, labels={"beta": beta}))
    with TemporaryDirectory() as folder, Store(Path(folder) / "janet.sqlite") as store:
        train(work, store)
        return {row.labels["beta"]: [float(value) for value in row.curves["test"]] for row in store.rows()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--train", action="store_true", help="also train small units on Penn Treebank")
    asked = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    x = F.one_hot(torch.randint(50, (max(STEPS), 16), generator=generator), 50).float()
    print("| β | " + " | ".join(f"{step} steps" for step in STEPS) + " |")
    print("|---|" + "---|" * len(STEPS))
    for beta in SHIFTS:
        print(f"| {beta:g} | " + " | ".join(f"{value:.2g}" for value in distances(beta, x)) + " |", flush=True)
    if asked.train:
        found = bits()
        print("\n| β | after 200 | 500 | 1,000 updates |\n|---|---|---|---|")
        for beta in SHIFTS:
            print(f"| {beta:g} | " + " | ".join(f"{found[beta][k]:.2f}" for k in (2, 5, 10)) + " |")


if __name__ == "__main__":
    main()
