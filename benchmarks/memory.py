"""Time and memory of a step as sequences grow: ``python -m benchmarks.memory --device cuda --csv FILE``.

Every unit of ``numerate run memory`` at 24,000 parameters, one layer with its readout: forward and backward. Time is
the median of some rounds: processor time of one thread, or between events on a GPU, where a pass is replayed as a CUDA
graph, as in training. Memory is what autograd keeps for the backward pass. ``--csv`` adds the lines to a file
(the report draws ``src/numerate/experiments/memory/cost.csv``), in place of those of the same machine and unit.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from numerate.experiments.memory.cost import Cost
from numerate.experiments.memory.units import FULL, SLOW, UNITS, hidden_size, layers
from numerate.experiments.models import sequence_model
from numerate.train.allocator import keep_freed_memory

INPUTS, OUTPUTS = 10, 9
LENGTHS = {"cpu": (64, 256, 1024, 4096), "cuda": (64, 256, 1024, 4096, 16_384)}
ROUNDS = {"cpu": 3, "cuda": 5}


def build(unit: str, length: int) -> nn.Module:
    torch.manual_seed(0)
    layer = partial(layers(length)[unit], hidden_size=hidden_size(unit, INPUTS, OUTPUTS))
    return sequence_model(INPUTS, OUTPUTS, layer=layer, hidden=FULL.readout)


def kept_bytes(model: nn.Module, x: Tensor) -> int:
    """What autograd keeps for the backward pass, parameters and inputs left out."""
    known = {value.untyped_storage().data_ptr() for value in (*model.parameters(), x)}
    found: dict[int, int] = {}

    def pack(value: Tensor) -> Tensor:  # all are alive until the backward pass, so no address comes twice
        storage = value.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = storage.nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        model(x).sum().backward()
    return sum(found.values())


def seconds(run: Callable[[], object], device: str, rounds: int) -> float:
    """Median time of a call."""
    run()
    times = []
    if device == "cpu":
        for _ in range(rounds):
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
        return statistics.median(times)
    replay = graph(run)
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return statistics.median(times)


def graph(run: Callable[[], object]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        run()
    return recorded.replay


def measure(unit: str, length: int, batch: int, device: str, machine: str) -> Cost:
    model = build(unit, length).to(device)
    x = torch.randn(length, batch, INPUTS, device=device)
    parameters = list(model.parameters())

    def run() -> object:
        return torch.autograd.grad(model(x).square().sum(), parameters)

    each = seconds(run, device, ROUNDS[device]) / length
    kept = kept_bytes(model, x) / length / batch / 1024
    return Cost(machine, unit, length, batch, round(1e6 * each, 3), round(kept, 3))


def write(path: Path, fresh: list[Cost]) -> None:
    names = [field.name for field in fields(Cost)]
    old = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.exists() else []
    now = {(cost.machine, cost.unit) for cost in fresh}
    kept = [line for line in old if (line["machine"], line["unit"]) not in now]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
        writer.writerows(asdict(cost) for cost in fresh)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--machine", help="what the machine is called")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--only", nargs="*", choices=UNITS, metavar="UNIT", help="these units")
    parser.add_argument("--lengths", nargs="*", type=int)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as training does
    machine = asked.machine or (torch.cuda.get_device_name() if asked.device == "cuda" else "one core")
    found: list[Cost] = []
    print("| unit | steps | µs a step | KiB a step and sequence |\n|---|---|---|---|")
    for unit in asked.only or [unit for unit in UNITS if unit not in SLOW]:
        for length in asked.lengths or LENGTHS[asked.device]:
            try:
                cost = measure(unit, length, asked.batch, asked.device, machine)
            except Exception as error:  # the others are still to be measured
                print(f"| {unit} | {length:,} | {type(error).__name__}: {str(error).splitlines()[0]} | |", flush=True)
                break
            found.append(cost)
            print(f"| {unit} | {length:,} | {cost.microseconds:.2f} | {cost.kilobytes:.2f} |", flush=True)
        if asked.csv:
            write(asked.csv, found)


if __name__ == "__main__":
    main()
