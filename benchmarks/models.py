"""Many models of one layer at once, by ``vmap``, against one: ``python -m benchmarks.models``.

An update is forward, cross entropy, backward, clipping of each model's gradient and Adam. On a GPU it is a CUDA graph,
and the gain is the throughput of all models over that of one model in its own graph. On a CPU the rival is a loop over
models of ``torch.nn.LSTM``; rounds of both alternate, and the ratio is the median of the rounds' ratios. With
``--threads 1`` processor time is taken, which other work on the machine disturbs little, else the time on the clock.
First the gradients of stacked models are compared with those of single ones. The tables are markdown.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from numerate import recurrent
from numerate.torch_internals import set_cudnn_rnn_precision
from numerate.train.allocator import keep_freed_memory

Update = Callable[[], None]


@dataclass(frozen=True)
class Case:
    """A layer with a linear readout at every step, on random sequences; ``counts``: of models."""

    name: str
    layer: str
    hidden: int
    steps: int
    batch: int
    counts: tuple[int, ...]
    inputs: int = 10
    outputs: int = 9
    options: dict[str, Any] = field(default_factory=dict)

    def build(self) -> nn.Module:
        return Sequence(getattr(recurrent, self.layer)(self.inputs, self.hidden, **self.options), self.outputs)


NRU = {"memory_size": 64, "heads": 4}
COPYING = (
    Case("copying LSTM 70", "LSTM", 70, 120, 10, (1, 13, 26, 104)),
    Case("copying NRU 80", "NRU", 80, 120, 10, (1, 13, 26), options=NRU),
    Case("copying JANET 101", "JANET", 101, 120, 10, (1, 13)),
    Case("copying GORU 128", "GORU", 128, 120, 10, (1, 13)),
    Case("copying EURNN 1024", "EURNN", 1024, 120, 10, (1, 4)),
    Case("copying RNN 143 with layer norm", "RNN", 143, 120, 10, (1, 13), options={"layer_norm": True}),
    Case("copying 500 UR-LSTM 256", "URLSTM", 256, 500, 10, (1, 4)),
    Case("copying 500 O-LSTM 256", "OLSTM", 256, 500, 10, (1, 4)),
)
ON_CPU = (
    Case("copying LSTM 70", "LSTM", 70, 120, 10, (8, 13)),
    Case("copying NRU 80", "NRU", 80, 120, 10, (8, 13), options=NRU),
)


class Sequence(nn.Module):
    """A recurrent layer and a readout; x: (T, B, I) -> (T, B, O)."""

    def __init__(self, layer: nn.Module, outputs: int) -> None:
        super().__init__()
        size: Any = getattr(layer, "output_size", None) or layer.hidden_size
        self.layer, self.readout = layer, nn.Linear(size, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.layer(x)[0])


def sequences(case: Case, models: int, device: str) -> tuple[Tensor, Tensor]:
    """Inputs (M, T, B, I) and targets (M, T, B)."""
    shape = (models, case.steps, case.batch)
    x = torch.randn(*shape, case.inputs, device=device)
    return x, torch.randint(case.outputs, shape, device=device)


def loss_of(model: nn.Module, p: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(functional_call(model, p, (x,)).flatten(0, 1), y.flatten())


def clip(gradients: list[Tensor], limit: float = 1.0) -> None:
    """Scale the gradient of each model to a norm of at most ``limit``."""
    norm = sum((g.flatten(1).square().sum(1) for g in gradients), gradients[0].new_zeros(())).sqrt()
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(gradients, [scale.view(-1, *[1] * (g.dim() - 1)) for g in gradients])


def stacked(case: Case, models: int, device: str) -> Update:
    """An update of all models together."""
    layers = [case.build().to(device) for _ in range(models)]
    p, _ = stack_module_state(layers)
    values, (x, y) = list(p.values()), sequences(case, models, device)
    adam = torch.optim.Adam(values, lr=1e-3, fused=True, capturable=device == "cuda")

    def update() -> None:
        adam.zero_grad()
        loss = vmap(partial(loss_of, layers[0]))(p, x, y)
        loss.sum().backward()
        clip([value.grad for value in values if value.grad is not None])
        adam.step()

    return update


def looped(case: Case, models: int) -> Update:
    """Updates of ``nn.LSTM``, one model after the other, on a CPU."""
    layers = [Sequence(nn.LSTM(case.inputs, case.hidden), case.outputs) for _ in range(models)]
    optimisers = [torch.optim.Adam(layer.parameters(), lr=1e-3, fused=True) for layer in layers]
    x, y = sequences(case, models, "cpu")

    def update() -> None:
        for layer, adam, one, target in zip(layers, optimisers, x, y):
            adam.zero_grad()
            loss = F.cross_entropy(layer(one).flatten(0, 1), target.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
            adam.step()

    return update


def difference(case: Case, models: int, device: str) -> str:
    """The largest relative difference between a gradient of stacked models and that of one of them alone.

    Beside it, the largest one if a model alone sees inputs that are one rounding off.
    """
    layers = [case.build().to(device) for _ in range(models)]
    p, _ = stack_module_state(layers)
    x, y = sequences(case, models, device)
    together = torch.autograd.grad(vmap(partial(loss_of, layers[0]))(p, x, y).sum(), list(p.values()))
    found, rounded = [], []
    for k, layer in enumerate(layers):
        alone, moved = (
            torch.autograd.grad(F.cross_entropy(layer(one).flatten(0, 1), y[k].flatten()), list(layer.parameters()))
            for one in (x[k], x[k] * (1 + torch.finfo(x.dtype).eps))
        )
        found.append(largest([g[k] for g in together], alone))
        rounded.append(largest(moved, alone))
    return f"{max(found):.1e} ({max(rounded):.1e})"


def largest(gradients: Iterable[Tensor], others: Iterable[Tensor]) -> float:
    return max(float((g - own).norm() / own.norm().clamp_min(1e-30)) for g, own in zip(gradients, others))


def captured(update: Update) -> Callable[[], None]:
    """The update as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            update()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        update()
    return graph.replay


def cuda_milliseconds(run: Callable[[], object], seconds: float = 0.3) -> float:
    """Median over rounds of the time of one replay, many in a row."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    repeats, rounds = 1, []
    for _ in range(5):
        start.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        each = start.elapsed_time(end) / repeats
        rounds.append(each)
        repeats = max(1, int(seconds / 5 * 1000 / each))
    return statistics.median(rounds[1:])


def cpu_milliseconds(runs: tuple[Update, Update], clock: Callable[[], float], rounds: int) -> tuple[float, ...]:
    """Medians of both, and of the second over the first, round by round."""
    for run in (*runs, *runs):
        run()
    found: list[list[float]] = []
    for _ in range(rounds):
        edges = [clock()]
        for run in runs:
            run()
            edges.append(clock())
        found.append([1000 * (end - start) for start, end in pairwise(edges)])
    ratio = statistics.median(second / first for first, second in found)
    return *(statistics.median(times) for times in zip(*found)), ratio


def on_gpu(cases: tuple[Case, ...]) -> None:
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    set_cudnn_rnn_precision("ieee")
    print("| case | models | update, ms | of one model, ms | gain | gradients differ by (by rounding x) |")
    print("|---|---|---|---|---|---|")
    for case in cases:
        single = 0.0
        for models in case.counts:
            try:
                torch.manual_seed(0)
                error = difference(case, models, "cuda")
                time = cuda_milliseconds(captured(stacked(case, models, "cuda")))
            except RuntimeError as failure:
                print(
                    f"| {case.name} | {models} | {type(failure).__name__}: {str(failure).splitlines()[0]} |", flush=True
                )
                continue
            single = single or time
            gain = single * models / time
            print(f"| {case.name} | {models} | {time:.3f} | {time / models:.4f} | {gain:.2f} | {error} |", flush=True)


def on_cpu(cases: tuple[Case, ...], threads: int, rounds: int) -> None:
    torch.set_num_threads(threads)
    keep_freed_memory()  # as training does
    clock = time.process_time if threads == 1 else time.perf_counter
    print("| case | models | update, ms | loop over nn.LSTM, ms | ratio | gradients differ by (by rounding x) |")
    print("|---|---|---|---|---|---|")
    for case in cases:
        for models in case.counts:
            torch.manual_seed(0)
            error = difference(case, models, "cpu")
            pair = stacked(case, models, "cpu"), looped(case, models)
            together, rival, ratio = cpu_milliseconds(pair, clock, rounds)
            row = f"{together:.2f} | {rival:.2f} | {ratio:.2f} | {error}"
            print(f"| {case.name} | {models} | {row} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default="", help="part of the names of the cases")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="on a CPU, of both")
    parser.add_argument("--rounds", type=int, default=25, help="on a CPU")
    arguments = parser.parse_args()
    cases = COPYING if arguments.device == "cuda" else ON_CPU
    chosen = tuple(case for case in cases if arguments.only in case.name)
    if arguments.device == "cuda":
        on_gpu(chosen)
    else:
        on_cpu(chosen, arguments.threads, arguments.rounds)


if __name__ == "__main__":
    main()
