"""Recurrent layers against ``torch.nn.LSTM`` of the same hidden size: ``python -m benchmarks.recurrent``.

Forward and backward. On the CPU one thread and its processor time, so that other work on the machine counts little;
on a GPU (``--device cuda``) the time between events. Rounds are interleaved; a ratio is the median of the rounds'
ratios. The tables are markdown.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from numerate import recurrent
from numerate.recurrent.fast import use_loop


@dataclass(frozen=True)
class Setting:
    """Sizes of one comparison; ``memory`` is that of the NRU."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    memory: int
    rounds: int

    def __str__(self) -> str:
        return f"T={self.steps}, batch {self.batch}, hidden {self.hidden}"


CPU = (Setting(784, 100, 1, 200, 256, 5), Setting(120, 10, 10, 80, 64, 40))
CUDA = (*(Setting(s.steps, s.batch, s.inputs, s.hidden, s.memory, 10) for s in CPU), Setting(784, 100, 1, 512, 256, 10))
ALWAYS = ("LSTM", "CLSTM", "ULSTM", "RLSTM", "URLSTM", "GRU", "CGRU", "UGRU", "RGRU", "URGRU", "JANET", "NRU")
OTHERS = ("RNN", "UGRNN", "OLSTM", "ORLSTM", "OMLSTM", "UMLSTM", "OGRU", "ORGRU", "OMGRU", "UMGRU", "EURNN", "GORU")


def build(name: str, setting: Setting) -> nn.Module:
    """The layer of that name at a setting's sizes."""
    options: dict[str, object] = {}
    if name == "NRU":
        options = {"memory_size": setting.memory, "heads": 4}
    if name in ("CLSTM", "CGRU"):
        options = {"timescale": setting.steps}
    if name in ("OMLSTM", "UMLSTM", "OMGRU", "UMGRU"):
        options = {"downsize": 8}
    power = 1 << (setting.hidden.bit_length() - 1)  # rotations need a power of two: the next smaller
    hidden = power if name in ("EURNN", "GORU") else setting.hidden
    return getattr(recurrent, name)(setting.inputs, hidden, **options)


def trial(model: nn.Module, x: Tensor) -> Callable[[], None]:
    """One forward and backward pass with a loss on all outputs."""
    weights = torch.randn(x.shape[0], x.shape[1], model(x[:1])[0].shape[-1], device=x.device, dtype=x.dtype)

    def run() -> None:
        model.zero_grad()
        torch.autograd.backward(model(x)[0], weights)

    return run


def cpu_seconds(run: Callable[[], None]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def cuda_seconds(run: Callable[[], None]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def compare(
    runs: Mapping[str, Callable[[], None]], seconds: Callable[[Callable[[], None]], float], rounds: int
) -> dict[str, tuple[float, float]]:
    """Median seconds of each, and median ratio to the first."""
    first = next(iter(runs))
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(seconds(run))
    ratios = {name: [a / b for a, b in zip(found, times[first])] for name, found in times.items()}
    return {name: (statistics.median(times[name]), statistics.median(ratios[name])) for name in runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--all", action="store_true", help="all gates and cells, not only the common ones")
    parser.add_argument("--plain", action="store_true", help="also the plain loop of each layer")
    parser.add_argument("--only", nargs="*", help="these layers")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dtype = getattr(torch, arguments.dtype)
    names = arguments.only or (*ALWAYS, *(OTHERS if arguments.all else ()))
    seconds = cpu_seconds if arguments.device == "cpu" else cuda_seconds
    for setting in CPU if arguments.device == "cpu" else CUDA:
        x = torch.randn(setting.steps, setting.batch, setting.inputs, device=arguments.device, dtype=dtype)
        models = {"nn.LSTM": nn.LSTM(setting.inputs, setting.hidden), "nn.GRU": nn.GRU(setting.inputs, setting.hidden)}
        models |= {name: build(name, setting) for name in names}
        for model in models.values():
            model.to(arguments.device, dtype)
            if isinstance(model, nn.RNNBase):
                model.flatten_parameters()  # a move to another type leaves the weights scattered
        runs = {name: trial(model, x) for name, model in models.items()}
        if arguments.plain:
            for name in names:
                runs[f"{name}, plain"] = _plainly(runs[name])
        print(f"\n{setting}, {arguments.dtype}, {arguments.device}\n\n| layer | ms | ratio to nn.LSTM |\n|---|---|---|")
        for name, (median, ratio) in compare(runs, seconds, setting.rounds).items():
            print(f"| {name} | {1000 * median:.1f} | {ratio:.2f} |", flush=True)


def _plainly(run: Callable[[], None]) -> Callable[[], None]:
    def plainly() -> None:
        with use_loop("plain"):
            run()

    return plainly


if __name__ == "__main__":
    main()
