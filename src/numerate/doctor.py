"""What numerate finds on this machine, a short test of every backend, and what to do about what is missing."""

import importlib.util
import os
import platform
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

State = Literal["ok", "missing", "wrong"]
EXTRAS = {
    "bench": ("typer", "rich", "scipy", "polars", "matplotlib", "jinja2", "pint"),
    "formula": ("sklearn", "narwhals", "fastexcel", "pyarrow"),
    "page": ("fastapi", "uvicorn"),
    "cluster": ("ray", "submitit"),
    "tensorboard": ("tensorboardX",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}
"""Extra of the package -> modules that it brings."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for.

    Args:
        name: what.
        state: ``ok``, ``missing`` (something else does its work), or ``wrong``.
        text: what was found.
        advice: what to do, unless it is ok.
    """

    name: str
    state: State
    text: str
    advice: str = ""


def examine(out: Path, full: bool = False) -> Iterator[Finding]:
    """Everything, one after the other; ``full`` tests torch.compile too, which takes half a minute to start."""
    yield from versions()
    yield from extras()
    yield compiler()
    yield gpu()
    yield cache()
    yield results(out)
    yield from backends(full)


def versions() -> Iterator[Finding]:
    yield Finding("Python", "ok", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    for name in ("numerate", "torch", "numpy", "sympy"):
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            yield Finding(name, "wrong", "not installed", f"pip install {name}")
    import torch

    yield Finding("cores", "ok", f"{os.cpu_count()}, torch uses {torch.get_num_threads()}")


def extras() -> Iterator[Finding]:
    for extra, modules in EXTRAS.items():
        absent = [name for name in modules if importlib.util.find_spec(name) is None]
        if absent:
            yield Finding(extra, "missing", f"without {', '.join(absent)}", f"pip install 'numerate[{extra}]'")
        else:
            yield Finding(extra, "ok", "all packages of this extra are here")


def compiler() -> Finding:
    from numerate.loops.toolchain.compiler import NoCompiler, find_compiler, target

    try:
        command = find_compiler()
        flags, _ = target(command)
    except NoCompiler as error:
        advice = "install g++ or clang++, or: pip install 'numerate[compiler]'; until then the stacked loop is used"
        return Finding("C++ compiler", "missing", str(error), advice)
    return Finding("C++ compiler", "ok", shlex.join([*command, *flags]))


def gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        built = "this torch is built without CUDA" if torch.version.cuda is None else "no device is found"
        advice = "nothing, unless this machine has an NVIDIA GPU: then install a torch with CUDA, and its driver"
        return Finding("GPU", "missing", built, advice)
    properties = torch.cuda.get_device_properties(0)
    count = torch.cuda.device_count()
    text = f"{count} × {properties.name}, {properties.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
    try:
        from numerate.loops.toolchain.nvrtc import version as nvrtc_version

        major, minor = nvrtc_version()
    except (OSError, RuntimeError, AttributeError) as error:
        return Finding("GPU", "wrong", f"{text}; NVRTC cannot be loaded: {error}", "pip install nvidia-cuda-nvrtc-cu12")
    return Finding("GPU", "ok", f"{text}, NVRTC {major}.{minor}")


def cache() -> Finding:
    from numerate.loops.toolchain import cache_folder

    try:
        folder = cache_folder.current()
        if folder.folder not in (path.absolute() for path in cache_folder._wished()):
            advice = "set NUMERATE_CACHE to a folder of your own; until then every process compiles again"
            return Finding("cache folder", "wrong", f"{folder.folder}, for the time of one process", advice)
        return Finding("cache folder", "ok", f"{folder.folder}: {folder.summary()}")
    except OSError as error:
        return Finding("cache folder", "wrong", str(error), "set NUMERATE_CACHE to a folder that can be written")


def results(out: Path) -> Finding:
    from numerate.results import Store, StoreError

    path = out / "results.sqlite"
    if not path.exists():
        return Finding("results", "missing", f"there is no {path} yet", "numerate demo")
    try:
        with Store(path, readonly=True) as store:
            return Finding("results", "ok", f"{path}: {len(store.keys()):,} runs, the file is sound")
    except StoreError as error:
        return Finding("results", "wrong", str(error), "the sentence before says it")


# ---------------------------------------------------------------- a run on every backend


def backends(full: bool = False) -> Iterator[Finding]:
    """The same two runs on every backend: their errors must be those of the plain one."""
    import torch

    reference: list[float] = []
    for backend in ("eager", "stacked", "emitted", "compiled"):
        if backend == "compiled" and not full:
            text = "not tried: torch.compile takes half a minute to start"
            yield Finding("compiled on cpu", "missing", text, "numerate doctor --full")
            continue
        errors, finding = _tried(backend, "cpu", reference)
        reference = reference or errors
        yield finding
    if torch.cuda.is_available():
        for backend in ("stacked", "emitted"):
            yield _tried(backend, "cuda", reference)[1]


def _tried(backend: str, device: str, reference: list[float]) -> tuple[list[float], Finding]:
    name = f"{backend} on {device}"
    start = time.perf_counter()
    try:
        errors = _errors(backend, device)
    except Exception as error:  # whatever a compiler, a driver or torch raises: that is what is asked here
        sentence = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        state = "missing" if type(error).__name__ == "NoCompiler" else "wrong"
        return [], Finding(name, state, sentence, "see the lines on compiler and GPU; --backend stacked needs neither")
    seconds = time.perf_counter() - start
    if reference and not all(abs(a - b) <= 1e-3 * abs(b) for a, b in zip(errors, reference)):
        text = f"its errors {errors} are not those of the plain loop, {reference}"
        return errors, Finding(name, "wrong", text, "please report this, with all of these lines")
    agrees = ", the same errors as the plain loop" if reference else ""
    return errors, Finding(name, "ok", f"two runs of 100 steps in {seconds:.1f} s{agrees}")


def _errors(backend: str, device: str) -> list[float]:
    """The test errors of two short runs."""
    from numerate.results import Store
    from numerate.tasks import SingleModule
    from numerate.train import Training, train
    from numerate.units import NMU

    training = Training(NMU, SingleModule("mul"), (0, 1), steps=100, evaluate_every=100, batch=32, evaluation_size=128)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "results.sqlite") as store:
        train([training], store, backend=backend, device=device, threads=1)
        return [float(row.curves["test"][-1]) for row in store.rows()]


SIGNS = {"ok": "✓", "missing": "–", "wrong": "✗"}


def report(findings: Iterator[Finding], tell: Callable[[str], None]) -> bool:
    """Tell each finding as it comes; whether nothing is wrong."""
    sound = True
    for finding in findings:
        sound = sound and finding.state != "wrong"
        tell(f"{SIGNS[finding.state]} {finding.name}: {finding.text}")
        if finding.state != "ok":
            tell(f"    → {finding.advice}")
    return sound
