"""Hostile modules, a damaged cache, and many models in one process.

A module may do what it likes in its own code. What may not happen: an error that is not a sentence, a hang, a changed
setting that stays, another model's result that changes.
"""

import ctypes
import gc
import os
import random
import shutil
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torture_frame import Result, Setting


class Linear(nn.Module):
    """What the hostile ones are made from."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((outputs, inputs), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


class Narrow(Linear):
    """Says nothing of its width."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).expand(-1, 3)


class Flat(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).flatten()


class Scalar(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).sum()


class OtherBatch(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[1:])


class Text(Linear):
    def forward(self, x: Tensor) -> Any:
        return "42"


class Nothing(Linear):
    def forward(self, x: Tensor) -> Any:
        return None


class Doubles(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).double()


class Whole(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).long()


class Constant(Linear):
    """Has parameters and does not use them."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.ones(len(x), 1)


class Bare(nn.Module):
    """Has no parameters."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x.prod(-1, keepdim=True)


class Raises(Linear):
    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("mine")


class RaisesLater(Linear):
    """At its fifth call."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 4:
            raise LookupError("mine")
        return super().forward(x)


class Exits(Linear):
    def forward(self, x: Tensor) -> Tensor:
        raise SystemError("mine")


class Unmade(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        raise OSError("mine")


class Recursive(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return self.forward(x)


class Giant(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(10**13))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight[0]


class GiantInside(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.zeros(len(x), 10**12).sum(-1, keepdim=True)


class Mutates(Linear):
    """Changes its parameters while it computes."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.add_(1)
        return super().forward(x)


class Counts(Linear):
    """Another function at every call."""

    count = 0

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return super().forward(x) * self.count


class Appends(Linear):
    """Keeps every input it has seen."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        return super().forward(x) + 0 * self.seen[0][:1].sum()


class InPlace(Linear):
    """Writes into what it was given."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2) @ self.weight.T


class Draws(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + random.random()


class DrawsByTorch(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(1)


class Seeds(Linear):
    """Sets the seed of everything."""

    def forward(self, x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return super().forward(x) + torch.randn(len(x), 1)


class Branches(Linear):
    """Looks at the numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() > 0 else -super().forward(x)


class LooksAtBatch(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1 if len(x) % 2 else 2)


class Infinite(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 0


class Detached(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


class ByNumpy(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy().prod(-1, keepdims=True)) + 0 * super().forward(x)


class Threads(Linear):
    """Takes more threads than it was given."""

    def forward(self, x: Tensor) -> Tensor:
        torch.set_num_threads(3)
        return super().forward(x)


class NoGradients(Linear):
    """Turns gradients off and leaves them so."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        torch.set_grad_enabled(False)
        return y


class OtherDefault(Linear):
    """Leaves another default type behind."""

    def forward(self, x: Tensor) -> Tensor:
        torch.set_default_dtype(torch.float64)
        return super().forward(x)


class Long(Linear):
    """Thousands of operations."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        for k in range(500):
            y = y * 0.999 + k * 1e-6
        return y


class Tied(Linear):
    """The same module twice, one inside of the other's list."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.again = nn.ModuleList([Linear(inputs, outputs)] * 2)
        self.again[0].weight = self.weight


HOSTILE = [
    Narrow, Flat, Scalar, OtherBatch, Text, Nothing, Doubles, Whole, Constant, Bare, Raises, RaisesLater, Exits, Unmade,
    Recursive, Giant, GiantInside, Mutates, Counts, Appends, InPlace, Draws, DrawsByTorch, Seeds, Branches,
    LooksAtBatch, Infinite, Detached, ByNumpy, Threads, NoGradients, OtherDefault, Long, Tied,
]  # fmt: skip
ALWAYS = [Narrow, Raises, Mutates, Draws, NoGradients, OtherDefault, Recursive, Giant, Branches]
"""The ones of the small size."""
EXPECTED = (ValueError, TypeError, RuntimeError, NotImplementedError, MemoryError)


def hostile_modules(setting: Setting) -> Result:
    """Each is trained, or refused in a sentence; an honest unit trained afterwards has the bits it had before."""
    from numerate.units import NMU

    before, (_, honest) = _settings(), _trained(setting.folder / "before.sqlite", NMU)
    counts: dict[str, int] = {}
    failures = []
    modules = ALWAYS if setting.size == "small" else HOSTILE
    for k, module in enumerate(modules):
        outcome, result = _trained(setting.folder / f"{k}.sqlite", module)
        counts[outcome] = counts.get(outcome, 0) + 1
        if outcome == "broken":
            failures.append(f"{module.__name__}: {result}")
        for name, value in _settings().items():
            if value != before[name]:
                failures.append(f"{module.__name__} left {name} at {value}, which was {before[name]}")
    if _trained(setting.folder / "after.sqlite", NMU)[1] != honest:
        failures.append("an honest unit is trained to other numbers afterwards")
    return Result(len(modules), counts, tuple(failures))


def _trained(path: Path, module: Any) -> tuple[str, Any]:
    from numerate.results import Store
    from numerate.tasks import SingleModule
    from numerate.train import Training, train

    training = Training(module, SingleModule("mul"), (0, 1), steps=20, evaluate_every=10, evaluation_size=64, batch=16)
    try:
        with Store(path) as store:
            train([training], store)
            return "trained", [{k: v.tolist() for k, v in row.weights["final"].items()} for row in store.rows()]
    except EXPECTED as error:
        sentence = str(error).strip().splitlines()
        return ("refused", None) if sentence else ("broken", f"{type(error).__name__} without a word")
    except Exception as error:
        if traceback.extract_tb(error.__traceback__)[-1].filename == __file__:
            return "raised its own error", None
        return "broken", "".join(traceback.format_exception_only(error)).strip()


def _settings() -> dict[str, Any]:
    return {
        "the gradient mode": torch.is_grad_enabled(),
        "the default type": torch.get_default_dtype(),
        "the number of threads": torch.get_num_threads(),
        "the limit of recursion": sys.getrecursionlimit(),
    }


# ---------------------------------------------------------------- the cache


def damaged_cache(setting: Setting) -> Result:
    """A library from a damaged cache gives the right answer, and never another's."""
    from numerate.loops.toolchain import cache_folder, native

    counts: dict[str, int] = {}
    failures = []
    tried = setting.times(12, 600)
    folder = setting.folder / "cache"
    earlier = os.environ.get("NUMERATE_CACHE")
    os.environ["NUMERATE_CACHE"] = str(folder)
    try:
        for _ in range(tried):
            answers = {n: f'extern "C" int answer() {{ return {n}; }}' for n in (42, 43)}
            for source in answers.values():
                native.library(source)
            native._recent.clear()
            gc.collect()
            kind = setting.draw.choice(DAMAGES)
            kind(setting.draw, folder)
            counts[kind.__name__] = counts.get(kind.__name__, 0) + 1
            cache_folder._usable.cache_clear()
            for n, source in answers.items():
                found = native.library(source).answer()
                if found != n:
                    failures.append(f"{kind.__name__}: {found} in place of {n}")
            for path in (folder, *folder.glob("*")):
                path.chmod(0o700)
    finally:
        os.environ.pop("NUMERATE_CACHE")
        if earlier is not None:
            os.environ["NUMERATE_CACHE"] = earlier
        cache_folder._usable.cache_clear()
    return Result(tried, counts, tuple(failures))


def _file(draw: random.Random, folder: Path) -> Path:
    return draw.choice(sorted(path for path in folder.glob("*/*") if path.is_file()))


def truncate(draw: random.Random, folder: Path) -> None:
    path = _file(draw, folder)
    os.truncate(path, draw.randrange(path.stat().st_size))


def flip(draw: random.Random, folder: Path) -> None:
    path = _file(draw, folder)
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def remove(draw: random.Random, folder: Path) -> None:
    _file(draw, folder).unlink()


def exchange(draw: random.Random, folder: Path) -> None:
    """The library of one entry in the place of another's."""
    one, two = sorted(folder.glob("*/loop.so"))[:2]
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)


def link(draw: random.Random, folder: Path) -> None:
    one, two = draw.sample(sorted(folder.glob("*/loop.so")), 2)
    one.unlink()
    one.symlink_to(two)


def file_for_folder(draw: random.Random, folder: Path) -> None:
    entry = draw.choice(sorted(path for path in folder.iterdir() if path.is_dir()))
    shutil.rmtree(entry)
    entry.write_text("not a folder")


def open_to_all(draw: random.Random, folder: Path) -> None:
    draw.choice([folder, *folder.iterdir()]).chmod(0o777)


def empty(draw: random.Random, folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir(mode=0o700)


DAMAGES = [truncate, flip, remove, exchange, link, file_for_folder, open_to_all, empty]


# ---------------------------------------------------------------- many models


def soak(setting: Setting) -> Result:
    """Many models in one process: open files do not grow, memory by no more than a tenth of a megabyte for each."""
    from numerate.loops.cpp.loop import source
    from numerate.loops.toolchain import native
    from numerate.tasks import SingleModule
    from numerate.train import Training, stack
    from numerate.units import MLP

    def model(width: int) -> None:
        training = Training(partial(MLP, hidden=(width,), activation="tanh"), SingleModule("mul"), (0,))
        source(stack.make_step(training)[0])
        native.library(f'extern "C" int width() {{ return {width}; }}')

    first, tried = setting.times(3, 30), setting.times(8, 400)
    for width in range(1, first + 1):
        model(width)
    gc.collect()
    memory, files, started = _resident(), _open_files(), time.monotonic()
    loaded = len(native._loaded)  # what other tests hold on to
    for width in range(first + 1, first + tried + 1):
        model(width)
    gc.collect()
    grown, opened = _resident() - memory, _open_files() - files
    failures = []
    allowed = 40 + 0.1 * tried
    if grown > allowed:
        failures.append(f"memory grew by {grown:.0f} MB, more than {allowed:.0f}")
    if opened > 2:
        failures.append(f"{opened} files stay open")
    if len(native._loaded) > loaded + 3 * native.RECENT:
        failures.append(f"{len(native._loaded) - loaded} more libraries stay loaded")
    seconds = time.monotonic() - started
    return Result(tried, {"MB more": round(grown), "files more": opened, "seconds": round(seconds)}, tuple(failures))


def _resident() -> float:
    """Megabytes; what the allocator could give back is given back first."""
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


LINUX = {"soak": soak} if Path("/proc/self/statm").exists() else {}
ATTACKS = {"modules": hostile_modules, "cache": damaged_cache, **LINUX}
