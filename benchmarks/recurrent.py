"""Recurrent layers against ``torch.nn.LSTM`` of the same hidden size: ``python -m benchmarks.recurrent``.

Forward and backward. On the CPU one thread and its processor time, so that other work on the machine counts little;
on a GPU (``--device cuda``) the time between events. Rounds are interleaved; a ratio is the median of the rounds'
ratios. A layer that fails has its error in its row. The tables are markdown.
"""

import argparse
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from numerate import recurrent
from numerate.recurrent.dispatch import choose, use_loop
from numerate.units import NAU

Run = Callable[[], None]


@dataclass(frozen=True)
class Setting:
    """Sizes of one comparison; ``memory`` is that of NRU and LMU."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    memory: int
    rounds: int

    def __str__(self) -> str:
        return f"T={self.steps}, batch {self.batch}, hidden {self.hidden}"


LONG = Setting(16_384, 8, 1, 200, 256, 3)  # for the modern layers alone
FLASHRNN = Setting(1024, 16, 768, 768, 256, 5)  # of its paper's figures, for what it has
WIDE = Setting(120, 10, 10, 1024, 256, 5)  # of the EURNN in the NRU paper's copying tasks
CPU = (Setting(784, 100, 1, 200, 256, 5), Setting(120, 10, 10, 80, 64, 40), LONG, WIDE)
CUDA = (
    Setting(784, 100, 1, 200, 256, 5), Setting(120, 10, 10, 80, 64, 20), Setting(784, 100, 1, 512, 256, 5),
    LONG, FLASHRNN, WIDE,
)  # fmt: skip
ALWAYS = ("LSTM", "CLSTM", "ULSTM", "RLSTM", "URLSTM", "GRU", "CGRU", "UGRU", "RGRU", "URGRU", "JANET", "NRU")
MODERN = ("SLSTM", "LMU", "MinGRU", "MinLSTM", "LRU", "S4D", "S5", "S6")
ALONE = {LONG: MODERN, FLASHRNN: ("LSTM", "GRU", "SLSTM"), WIDE: ("EURNN",)}
"""Settings at which only these layers are measured."""
ON_CUDA = ("OLSTM", "OMLSTM")  # whose blocks wait for each other twice a step
BY_CUDNN = ("LSTM", "ULSTM", "GRU")  # also measured with torch's operation, which they can take
TORCH: dict[str, Callable[[int, int], nn.RNNBase]] = {"nn.LSTM": nn.LSTM, "nn.GRU": nn.GRU}
OTHERS = ("RNN", "UGRNN", "OLSTM", "ORLSTM", "OMLSTM", "UMLSTM", "OGRU", "ORGRU", "OMGRU", "UMGRU", "EURNN", "GORU")
TWO_PRODUCTS = ("StatisticalRU",)  # whose loop makes one after the other
STEPWISE = ("UnitRNN", "RMC", "DNC")  # plain steps everywhere


def build(name: str, setting: Setting) -> nn.Module:
    """The layer of that name at a setting's sizes."""
    options: dict[str, object] = {}
    if name == "NRU":
        options = {"memory_size": setting.memory, "heads": 4}
    if name in ("CLSTM", "CGRU"):
        options = {"timescale": setting.steps}
    if name in ("OMLSTM", "UMLSTM", "OMGRU", "UMGRU"):
        options = {"downsize": 8}
    if name == "UnitRNN":
        options = {"unit": NAU}
    if name == "LMU":
        options = {"memory_size": setting.memory, "theta": setting.steps}
    return getattr(recurrent, name)(setting.inputs, width(name, setting), **options)


def width(name: str, setting: Setting) -> int:
    """Hidden size of a layer (of a slot, for the RMC); rotations need a power of two, the next smaller."""
    return 1 << (setting.hidden.bit_length() - 1) if name in ("EURNN", "GORU") else setting.hidden


def compact(layer: nn.RNNBase) -> None:
    """Let the weights of a torch layer lie in one piece of memory, as cuDNN wants them.

    ``flatten_parameters`` does that for the types of number in torch's own list, which lacks bfloat16.
    """
    layer.flatten_parameters()
    weights: Any = layer._flat_weights
    if weights[0].is_cuda and len({weight.untyped_storage().data_ptr() for weight in weights}) > 1:
        mode = import_module("torch.backends.cudnn.rnn").get_cudnn_mode(layer.mode)
        sizes = (layer.input_size, mode, layer.hidden_size, 0, layer.num_layers, layer.batch_first, layer.bidirectional)
        try:
            with torch.no_grad():
                torch._cudnn_rnn_flatten_weight(weights, 4, *sizes)
        except RuntimeError as error:
            warnings.warn(f"{layer.mode} runs with scattered weights: {error}", stacklevel=2)


def trial(model: nn.Module, x: Tensor) -> Run:
    """One forward and backward pass with a loss on all outputs."""
    weights = torch.randn(x.shape[0], x.shape[1], model(x[:1])[0].shape[-1], device=x.device, dtype=x.dtype)

    def run() -> None:
        model.zero_grad()
        torch.autograd.backward(model(x)[0], weights)

    return run


def cpu_seconds(run: Run) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def cuda_seconds(run: Run) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()  # so that no earlier work is on the way when the clock starts
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def compare(
    runs: Mapping[str, Run], seconds: Callable[[Run], float], rounds: int, baselines: Mapping[str, str]
) -> dict[str, tuple[float, float]]:
    """Median seconds of each, and median ratio to its baseline."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(seconds(run))
    ratios = {name: [a / b for a, b in zip(found, times[baselines[name]])] for name, found in times.items()}
    return {name: (statistics.median(times[name]), statistics.median(ratios[name])) for name in runs}


def ways(name: str, setting: Setting, x: Tensor, plain: bool) -> dict[str, Run]:
    """What to measure of a layer: itself, and other loops over time that it could take."""
    model = TORCH[name](setting.inputs, setting.hidden) if name in TORCH else build(name, setting)
    model.to(x.device, x.dtype)
    if isinstance(model, nn.RNNBase):
        compact(model)
    found = {name: trial(model, x)}
    if isinstance(model, recurrent.Recurrent):
        if plain:
            found[f"{name}, plain"] = _plainly(found[name])
        if name == "EURNN":
            matrix = recurrent.EURNN(setting.inputs, width(name, setting), dense=True).to(x.device, x.dtype)
            found["EURNN, multiplied out"] = trial(matrix, x)
        if x.is_cuda and name in BY_CUDNN:
            found[f"{name} by cuDNN"] = _by_cudnn(found[name])
    return found


def measure(setting: Setting, names: Sequence[str], device: str, dtype: torch.dtype, plain: bool) -> None:
    """Print the table of one setting. On a GPU each layer is measured by itself beside ``nn.LSTM``, on a CPU all."""
    x = torch.randn(setting.steps, setting.batch, setting.inputs, device=device, dtype=dtype)
    print(f"\n{setting}, {str(dtype).removeprefix('torch.')}, {device}\n")
    print("| layer | ms | ratio to nn.LSTM |\n|---|---|---|")
    runs: dict[str, Run] = {}
    baselines: dict[str, str] = {}  # nn.LSTM of the same hidden size
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always")
        for name in (*TORCH, *names):
            way = name
            try:
                size = width(name, setting)
                baseline = "nn.LSTM" if size == setting.hidden else f"nn.LSTM, hidden {size}"
                if baseline not in runs:
                    runs[baseline] = ways("nn.LSTM", replace(setting, hidden=size), x, False)["nn.LSTM"]
                    baselines[baseline] = baseline
                for way, run in ways(name, setting, x, plain).items():
                    for _ in range(3 if x.is_cuda else 1):  # compile and warm up
                        run()
                    runs[way], baselines[way] = run, baseline
                    if x.is_cuda:
                        pair = {baseline: runs[baseline], way: run}
                        show(way, *compare(pair, cuda_seconds, setting.rounds, baselines)[way])
            except Exception as error:  # whatever it is, the other layers are still to be measured
                print(f"| {way} | {type(error).__name__}: {(str(error) or '?').splitlines()[0]} | |", flush=True)
        if not x.is_cuda:
            for way, numbers in compare(runs, cpu_seconds, setting.rounds, baselines).items():
                show(way, *numbers)
    for text in sorted({str(notice.message).splitlines()[0] for notice in noticed}):
        print(f"\nnoticed: {text}", flush=True)


def show(way: str, median: float, ratio: float) -> None:
    print(f"| {way} | {1000 * median:.2f} | {ratio:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", nargs="+", default=["float32"], choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--all", action="store_true", help="all gates and cells, not only the common ones")
    parser.add_argument("--plain", action="store_true", help="also the plain loop of each layer")
    parser.add_argument("--only", nargs="*", help="these layers")
    parser.add_argument("--setting", type=int, help="this one of the settings")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    more = ON_CUDA if arguments.device == "cuda" else ()
    names = (*ALWAYS, *MODERN, *((*OTHERS, *TWO_PRODUCTS, *STEPWISE) if arguments.all else more))
    settings = CPU if arguments.device == "cpu" else CUDA
    start = time.perf_counter()
    for k, setting in enumerate(settings):
        if arguments.setting is None and arguments.device == "cuda":
            # by itself, since a kernel that fails takes the device from its process
            subprocess.run(
                [sys.executable, "-m", "benchmarks.recurrent", *sys.argv[1:], "--setting", str(k)], check=False
            )
        elif arguments.setting in (None, k):
            if arguments.device == "cuda":
                print(
                    f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"
                )
            chosen = arguments.only or ALONE.get(setting, names)
            for dtype in arguments.dtype:
                measure(setting, chosen, arguments.device, getattr(torch, dtype), arguments.plain)
    if arguments.setting is None:
        print(f"\n{time.perf_counter() - start:.0f} seconds in all")


def _plainly(run: Run) -> Run:
    def plainly() -> None:
        with use_loop("plain"):
            run()

    return plainly


def _by_cudnn(run: Run) -> Run:
    """The operation of torch that the layer takes where it has no loop of its own."""

    def fused() -> None:
        with mock.patch.object(choose, "compiled_loop", return_value=None):
            run()

    return fused


if __name__ == "__main__":
    main()
