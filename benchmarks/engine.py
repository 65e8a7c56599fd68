"""Emitted training loops against a plain eager loop over seeds, one core, in one run: ``python -m benchmarks.engine``.

Processor time of one thread, so that other work on the machine counts little. A seed-step is one optimiser step of one
model on a fresh batch of 128. Evaluation: two sets of 10,000 examples after every 1000 steps, as share of training,
for the largest ensemble over the first 5000 steps, or ``--rounds 50`` for a whole run of the Primer. Start: tracing
and compiling, without the cache. The table is markdown.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from numerate.loops.cpp.loop import Cpp
from numerate.loops.step import Members, State
from numerate.tasks import PRIMER_RANGES, Arithmetic, SingleModule
from numerate.train import Adam, Penalty, Training, stack
from numerate.units import INALU, NALU, NAU, NMU, Growth, Ramp, RealNPU, apply_bounds_, l1, penalty

ENSEMBLES = (1, 25, 225, 1000)
SPARSE = (Penalty(penalty, Ramp(10.0, 20_000, 35_000)),)


class NauNmu(nn.Sequential):
    """The two-layer network of the arithmetic task."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(NAU(inputs, 2), NMU(2, outputs))


WORK = {
    "NAU +, 2 inputs": Training(NAU, SingleModule("add"), (0,), penalties=SPARSE),
    "NMU ×, 2 inputs": Training(NMU, SingleModule("mul"), (0,), penalties=SPARSE),
    "NALU ×, 2 inputs": Training(NALU, SingleModule("mul"), (0,)),
    "iNALU ×, 2 inputs": Training(INALU, SingleModule("mul"), (0,), Adam(clip="value", limit=0.1), SPARSE),
    "RealNPU ÷, 2 inputs": Training(RealNPU, SingleModule("div"), (0,), penalties=(Penalty(l1, Growth(1e-9, 1e-7)),)),
    "NAU +, 100 inputs": Training(NAU, SingleModule("add", inputs=100), (0,), penalties=SPARSE),
    "NAU→NMU, 100 inputs": Training(NauNmu, Arithmetic("mul"), (0,), penalties=SPARSE),
}


def eager_rate(training: Training, seconds: float) -> float:
    """Seed-steps per second of ordinary PyTorch: a module, ``torch.optim.Adam``, ``torch.rand``."""
    model, adam = training.build(0), training.optimiser
    optimizer = torch.optim.Adam(model.parameters(), lr=adam.rate, betas=adam.betas, eps=adam.eps)
    constants = training.task.constants(0, "train")
    weights = [(p, p.schedule(torch.arange(1.0)).item()) for p in training.penalties]
    steps, start = 0, time.process_time()
    while (spent := time.process_time() - start) < seconds:
        x, y = training.task.examples(torch.rand(training.batch, training.task.draws), constants)
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        for p, weight in weights:
            loss = loss + weight * p.function(model)
        loss.backward()
        if adam.clip == "value":
            nn.utils.clip_grad_value_(model.parameters(), adam.limit)
        optimizer.step()
        apply_bounds_(model)
        steps += 1
    return steps / spent


def ensemble(training: Training, size: int) -> tuple[Members, State, stack.PenaltyScales]:
    """Members of all ranges of the task, at their start."""
    ranges = list(PRIMER_RANGES) if isinstance(training.task, SingleModule) else [training.task.train_range]
    runs = [
        stack.Run(replace(training, task=replace(training.task, train_range=ranges[i * len(ranges) // size])), i)
        for i in range(size)
    ]
    runs = sorted(runs, key=stack.examples_of)
    start = {k: v.clamp(-1, 1) for k, v in stack.initial_parameters(runs).items()}
    return stack.members(runs), State.start(start), stack.PenaltyScales(runs)


def timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def emitted_rate(training: Training, loop: Cpp, size: int, seconds: float) -> float:
    """Seed-steps per second of an ensemble."""
    members, state, weights = ensemble(training, size)
    steps, spent = 8, 0.0
    while spent < seconds / 4:  # find out how many steps take long enough to be measured
        steps *= 2
        table = weights(state.step, steps, torch.ones(size))
        spent = timed(partial(loop.train, state, members, table, steps))
    return size * steps / min(timed(partial(loop.train, state, members, table, steps)) for _ in range(3))


def evaluation_share(training: Training, loop: Cpp, size: int, rate: float, rounds: int) -> float:
    """Time of both evaluations after every thousand steps of a run, as share of the time of these steps at ``rate``.

    Like the rate it is by the best of three, so that other work on the machine counts little.
    """
    members, state, weights = ensemble(training, size)
    uniforms = stack.evaluation_uniforms(training, "test")
    evaluated = 0.0
    for _ in range(rounds):
        loop.train(state, members, weights(state.step, 1000, torch.ones(size)), 1000)
        once = partial(loop.evaluate, state.parameters, members.constants, uniforms)
        evaluated += 2 * min(timed(once) for _ in range(3))
    return evaluated / (rounds * 1000 * size / rate)


def started(training: Training) -> tuple[Cpp, float]:
    """The loop, traced and compiled anew, and the processor time that took."""

    def spent() -> float:
        child = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + child.ru_utime + child.ru_stime

    with tempfile.TemporaryDirectory() as folder:
        os.environ["NUMERATE_CACHE"] = folder
        start = spent()
        return Cpp(stack.make_step(training)[0], threads=1), spent() - start


def thousands(rate: float) -> str:
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:.1f} k"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="processor time per measurement")
    parser.add_argument("--rounds", type=int, default=5, help="thousands of steps over which evaluation is measured")
    parser.add_argument("--only", nargs="*", help="rows whose name contains one of these")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = " | ".join(f"{size} members" for size in ENSEMBLES)
    print(f"| seed-steps per second | eager | {sizes} | ratio | evaluation | start |")
    print("|---|" + "---|" * (len(ENSEMBLES) + 4))
    started(WORK["NMU ×, 2 inputs"])  # the first trace in a process also imports
    for name, training in WORK.items():
        if arguments.only and not any(part in name for part in arguments.only):
            continue
        eager_rate(training, arguments.seconds / 4)
        plain = max(eager_rate(training, arguments.seconds) for _ in range(3))
        loop, start = started(training)
        rates = [emitted_rate(training, loop, size, arguments.seconds) for size in ENSEMBLES]
        share = evaluation_share(training, loop, ENSEMBLES[-1], rates[-1], arguments.rounds)
        columns = [thousands(plain), *map(thousands, rates), f"{rates[-1] / plain:,.0f}×", f"{share:.1%}"]
        line = f"| {name} | {' | '.join(columns)} | {start:.1f} s |"
        print(line, flush=True)


if __name__ == "__main__":
    main()
