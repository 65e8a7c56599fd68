"""Which of the ten symbols a trained network does not recall: ``python -m benchmarks.symbols RESULTS --unit NRU``.

Of each stored run of a copying task, the share of validation sequences in which each symbol is wrong. Runs must have
been stored with their weights.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from numerate.experiments import Options, select
from numerate.results import Row, Store
from numerate.tasks import Copying, VariableCopying
from numerate.tasks.copying import BLANK, ITEMS
from numerate.train import NetworkTraining


def networks(path: Path, task: str, unit: str) -> Iterator[tuple[Row, nn.Module, Copying | VariableCopying]]:
    """The stored runs of a unit on a task of nru2019/figure3, with their last weights."""
    (figure3,) = select(["nru2019/figure3"])
    (training,) = figure3.work(Options("paper", units=(unit,), tasks=(task,))).trainings
    assert isinstance(training, NetworkTraining)
    assert isinstance(training.task, Copying | VariableCopying)
    with Store(path, readonly=True) as store:
        rows = store.rows(keys=training.run_keys())
    for row in rows:
        model = training.build(row.seed)
        model.load_state_dict({k: torch.from_numpy(np.array(w)) for k, w in row.stored_weights("final").items()})
        yield row, model.eval(), training.task


@torch.no_grad()
def wrong(model: nn.Module, task: Copying | VariableCopying) -> Tensor:
    """The share of validation sequences in which each symbol is not recalled, (ITEMS,)."""
    shares = []
    for index in range(task.evaluations("validation")):
        batch = task.evaluation("validation", index, {})
        output = model(batch.x)
        guessed = (output[0] if isinstance(output, tuple) else output).argmax(-1)
        asked = (batch.y != BLANK).all(1)  # a batch has one lag
        shares.append((guessed != batch.y)[asked].float().mean(1))
    return torch.stack(shares).mean(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, help="results.sqlite")
    parser.add_argument("--task", default="variable copying, T = 100")
    parser.add_argument("--unit", default="NRU")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| seed | validation loss | {' | '.join(str(1 + k) for k in range(ITEMS))} |")
    print("|---|---|" + "---|" * ITEMS)
    for row, model, task in networks(asked.results, asked.task, asked.unit):
        shares = " | ".join(f"{share:.0%}" for share in wrong(model, task))
        print(f"| {row.seed} | {row.curves['validation'][-1]:.4f} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
