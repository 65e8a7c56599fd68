"""Many models of one layer at once against one, or against a loop: ``python -m benchmarks.models``.

An update is forward, cross entropy, backward, clipping of each model's gradient and Adam. On a GPU it is a CUDA graph
of all models under ``vmap``, and the gain is the throughput of all models over that of one model in its own graph.

On a CPU the rival is a loop over models of ``torch.nn.LSTM``, with one thread or with all, whichever is faster. Ours
are all models under ``vmap``, and the trainer of ``numerate run``, which makes its data and keeps its log, each model
by itself and processes over models. Rounds of all alternate, and a ratio is the median of the rounds' ratios. With
``--threads 1`` processor time is taken, which other work on the machine disturbs little, else the time on the clock.
First the gradients of stacked models are compared with those of single ones. The tables are markdown.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count, pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from numerate import recurrent
from numerate.tasks import Copying
from numerate.torch_internals import set_cudnn_rnn_precision
from numerate.train import Adam, NetworkTraining
from numerate.train.allocator import keep_freed_memory
from numerate.train.networks.group import NetworkGroup
from numerate.train.networks.specification import NetworkRun
from numerate.train.networks.workers import Workers
from numerate.train.sink import InMemory

Update = Callable[[], None]
PER_ROUND = 50
"""Updates of a round on a CPU, about as many as the trainer computes before it looks at the clock."""


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
        return SequenceReader(getattr(recurrent, self.layer)(self.inputs, self.hidden, **self.options), self.outputs)


NRU = {"memory_size": 64, "heads": 4}
ON_GPU = (
    Case("copying LSTM 70", "LSTM", 70, 120, 10, (1, 13, 26, 104)),
    Case("copying NRU 80", "NRU", 80, 120, 10, (1, 13, 26), options=NRU),
    Case("copying JANET 101", "JANET", 101, 120, 10, (1, 13)),
    Case("copying GORU 128", "GORU", 128, 120, 10, (1, 13)),
    Case("copying EURNN 1024", "EURNN", 1024, 120, 10, (1, 4)),
    Case("copying RNN 143 with layer norm", "RNN", 143, 120, 10, (1, 13), options={"layer_norm": True}),
    Case("copying SRU 55", "StatisticalRU", 55, 120, 10, (1, 13), options={"statistics_size": 48, "summary_size": 32}),
    Case("psMNIST SRU 87", "StatisticalRU", 87, 784, 100, (1,), 1, 10, {"statistics_size": 200, "summary_size": 64}),
    Case(
        "PTB NRU 1229 with ReLU heads",
        "NRU",
        1229,
        150,
        128,
        (1,),
        50,
        50,
        {"memory_size": 256, "heads": 4, "relu_heads": True},
    ),
    Case("copying 500 UR-LSTM 256", "URLSTM", 256, 500, 10, (1, 4)),
    Case("copying 500 O-LSTM 256", "OLSTM", 256, 500, 10, (1, 4)),
)
ON_CPU = (
    Case("copying LSTM 70", "LSTM", 70, 120, 10, (8, 13)),
    Case("copying NRU 80", "NRU", 80, 120, 10, (8, 13), options=NRU),
)


class SequenceReader(nn.Module):
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
    layers = [SequenceReader(nn.LSTM(case.inputs, case.hidden), case.outputs) for _ in range(models)]
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


def trained(case: Case, models: int, threads: int) -> Update:
    """Updates of all models by the trainer, on the task of copying: PER_ROUND, as one chunk."""
    model = partial(copying_model, layer=getattr(recurrent, case.layer), hidden=case.hidden, **case.options)
    task = Copying(case.steps - 20, case.batch)
    training = NetworkTraining(model, task, tuple(range(models)), Adam(1e-3, clip="norm", limit=1.0))
    runs = {key: NetworkRun(training, seed) for key, seed in zip(training.run_keys(), training.seeds)}
    group = NetworkGroup(runs, InMemory(), "benchmark", "cpu", threads, started(threads))
    group.prepare()
    group.warm, done = True, count()

    def update() -> None:
        start = PER_ROUND * next(done)
        group._over_stacks(lambda k, _: group.computed(group.stacks[k], "chunk", start, PER_ROUND, [0.0]))

    return update


@cache
def started(threads: int) -> Workers | None:
    """The processes of the trainer, once they are there; it starts them when it has trained for a while."""
    if threads == 1:
        return None
    workers = Workers(threads)
    workers.start()
    workers.wait()
    return workers


def copying_model(inputs: int, outputs: int, layer: Any, hidden: int, **options: Any) -> nn.Module:
    return SequenceReader(layer(inputs, hidden, **options), outputs)


def several(update: Update, threads: int) -> Update:
    """The same PER_ROUND times, with so many threads."""

    def updates() -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        for _ in range(PER_ROUND):
            update()
        torch.set_num_threads(before)

    return updates


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


def cpu_milliseconds(runs: Sequence[Update], clock: Callable[[], float], rounds: int) -> list[list[float]]:
    """The time of an update in every round, for each run."""
    for run in (*runs, *runs):
        run()
    found: list[list[float]] = []
    for _ in range(rounds):
        edges = [clock()]
        for run in runs:
            run()
            edges.append(clock())
        found.append([1000 * (end - start) / PER_ROUND for start, end in pairwise(edges)])
    return [list(times) for times in zip(*found)]


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
    names = "trainer, ms | ratio | under vmap, ms | ratio | gradients differ by (by rounding x)"
    print(f"| case | models | loop over nn.LSTM, ms (threads) | {names} |\n|---|---|---|---|---|---|---|---|")
    for case in cases:
        for models in case.counts:
            torch.manual_seed(0)
            error = difference(case, models, "cpu")
            loop, together = looped(case, models), several(stacked(case, models, "cpu"), threads)
            ours = trained(case, models, threads), together
            rivals = [several(loop, n) for n in sorted({1, threads})]
            found = cpu_milliseconds((*ours, *rivals), clock, rounds)
            middles = [statistics.median(times) for times in found]
            best = min(range(len(ours), len(found)), key=middles.__getitem__)
            row = f"{middles[best]:.2f} ({(1, threads)[best - len(ours)]})"
            for mine, middle in zip(found, middles[: len(ours)]):
                ratio = statistics.median(rival / own for rival, own in zip(found[best], mine))
                row += f" | {middle:.2f} | {ratio:.2f}"
            print(f"| {case.name} | {models} | {row} | {error} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default="", help="part of the names of the cases")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="on a CPU, of both")
    parser.add_argument("--rounds", type=int, default=9, help="on a CPU")
    arguments = parser.parse_args()
    cases = ON_GPU if arguments.device == "cuda" else ON_CPU
    chosen = tuple(case for case in cases if arguments.only in case.name)
    if arguments.device == "cuda":
        on_gpu(chosen)
    else:
        on_cpu(chosen, arguments.threads, arguments.rounds)


if __name__ == "__main__":
    from benchmarks import models

    models.main()  # by its name, by which processes find the network
