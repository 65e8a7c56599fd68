"""Emitted CUDA training loops on the GPU at hand: ``python -m benchmarks.gpu_engine``.

A seed-step is one optimiser step of one model on a fresh batch of 128. Times are those of the device, between events,
with all tensors on it. Evaluation: two sets of 10,000 examples after every 1000 steps, as share of training. Start:
tracing, emitting and compiling, without the cache. The table is markdown.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable

import torch

from benchmarks.engine import WORK
from numerate.loops.cuda.loop import Cuda
from numerate.loops.step import State
from numerate.train import Training, stack

ENSEMBLES = {2: (225, 4950, 20_000), 100: (225, 1056, 4224)}
"""By the number of inputs."""
STEPS = {2: 5000, 100: 1000}


def seconds(work: Callable[[], object]) -> float:
    """Time of the device; the second of two runs. It sleeps while the host prepares what it is to do."""
    for _ in range(2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(50_000_000)  # cycles: some 30 ms
        start.record()
        work()
        end.record()
        end.synchronize()
    return start.elapsed_time(end) / 1000


def measure(training: Training, loop: Cuda, size: int, steps: int) -> tuple[float, float]:
    """Seed-steps per second of an ensemble, and the share of evaluation."""
    runs = [stack.Run(training, seed) for seed in range(25)]
    chosen = torch.arange(size) % len(runs)
    members = stack.members(runs).take(chosen)
    members.seeds = torch.arange(size)
    members = members.to("cuda")
    state = State.start({k: v[chosen].cuda() for k, v in stack.initial_parameters(runs).items()})
    weights = torch.full((len(training.penalties), 1, 1), 0.01, device="cuda").expand(-1, steps, size)
    uniforms = torch.rand(10_000, training.task.draws, device="cuda")
    spent = seconds(lambda: loop.train(state, members, weights, steps))
    evaluated = seconds(lambda: loop.evaluate(state.parameters, members.constants, uniforms))
    return size * steps / spent, 2 * evaluated / (1000 * spent / steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    chosen = parser.parse_args().only
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| model | members | million seed-steps/s | µs per step | evaluation | threads | registers | start, s |")
    print("|---|---|---|---|---|---|---|---|")
    for name, training in WORK.items():
        if chosen not in name:
            continue
        step, _ = stack.make_step(training)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["NUMERATE_CACHE"] = folder
            start = time.perf_counter()
            loop = Cuda(step)
            kernel, _ = loop.wait()
            started = time.perf_counter() - start
        for size in ENSEMBLES[training.task.inputs]:
            rate, share = measure(training, loop, size, STEPS[training.task.inputs])
            texts = f"{rate / 1e6:,.1f}", f"{size / rate * 1e6:.2f}", f"{share:.1%}", str(loop.training.threads)
            print("|", " | ".join([name, str(size), *texts, str(kernel.registers), f"{started:.1f}"]), "|", flush=True)


if __name__ == "__main__":
    main()
