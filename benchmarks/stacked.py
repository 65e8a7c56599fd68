"""Stacked training against a plain eager loop over seeds, one core, in one run: ``python -m benchmarks.stacked``."""

import argparse
import time

import torch

from numerate.loops.plain.stacked import Stacked
from numerate.loops.step import State
from numerate.tasks import PRIMER_RANGES, SingleModule
from numerate.train import Penalty, Training, stack
from numerate.units import NAU, NMU, Ramp, apply_bounds_, penalty


def eager_rate(training: Training, steps: int) -> float:
    """Seed-steps per CPU second of ordinary PyTorch: one module, ``torch.optim.Adam``, ``torch.rand``."""
    model, schedule = training.build(0), training.penalties[0].schedule
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    constants = training.task.constants(0, "train")
    weights = schedule(torch.arange(steps + 50, dtype=torch.float64)).tolist()
    for t in range(steps + 50):
        if t == 50:
            start = time.process_time()
        x, y = training.task.examples(torch.rand(training.batch, training.task.draws), constants)
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean() + weights[t] * penalty(model)
        loss.backward()
        optimizer.step()
        apply_bounds_(model)
    return steps / (time.process_time() - start)


def stacked_rate(trainings: list[Training], steps: int) -> float:
    """Seed-steps per CPU second of the stacked loop, random numbers included."""
    runs = [stack.Run(t, seed) for t in trainings for seed in t.seeds]
    step, _ = stack.make_step(trainings[0])
    loop, members = Stacked(step), stack.members(runs)
    state = State.start(stack.initial_parameters(runs))
    weights = stack.PenaltyScales(runs)(0, steps, torch.ones(len(runs)))
    loop.train(state, members, weights[:, :64], 64)
    start = time.process_time()
    loop.train(state, members, weights, steps)
    return steps * len(runs) / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=512)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    print(f"{'unit':<6} {'eager /s':>10} {'stacked, 225 runs /s':>22} {'ratio':>7}")
    for unit, operation in ((NAU, "add"), (NMU, "mul")):
        work = [
            Training(
                unit,
                SingleModule(operation, r, (2.0, 6.0)),
                tuple(range(25)),
                penalties=(Penalty(penalty, Ramp(10.0, 100, 400)),),
            )
            for r in PRIMER_RANGES
        ]
        plain = max(eager_rate(work[0], 4 * steps) for _ in range(3))
        stacked = max(stacked_rate(work, steps) for _ in range(3))
        print(f"{unit.__name__:<6} {plain:>10,.0f} {stacked:>22,.0f} {stacked / plain:>6.0f}x")


if __name__ == "__main__":
    main()
