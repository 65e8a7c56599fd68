"""Compile C++ on this machine, keep the result, call it on several cores; and the random streams as native code."""

import ctypes
import hashlib
import importlib.util
import logging
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

log = logging.getLogger("numerate")

FLAGS = (
    "-std=c++17", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-lax-vector-conversions",
    "-Wno-psabi",
)  # fmt: skip
"""No rounding is left to the compiler: products and sums are fused only where the source says so."""


class NoCompiler(RuntimeError):
    """This machine has no C++ compiler that can be found."""


class CompileError(RuntimeError):
    """A source could not be compiled, or what was compiled not loaded; the first line says why."""


def find_compiler() -> tuple[str, ...]:
    """Command of a C++ compiler: ``$CXX``, g++, clang++, or the one in the ``ziglang`` package."""
    chosen = os.environ.get("CXX", "").strip()
    if chosen:
        command = tuple(shlex.split(chosen))
        if shutil.which(command[0]):
            return command
        raise NoCompiler(f"CXX is set to {chosen!r}, which is not an executable; unset it or name a C++ compiler")
    for name in ("g++", "clang++"):
        if path := shutil.which(name):
            return (path,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "cc")  # cc: no C++ runtime is needed, and building one takes a minute
    raise NoCompiler("no C++ compiler found (g++, clang++); install one, or: pip install 'numerate[compiler]'")


@cache
def available() -> bool:
    """Whether there is a compiler that works."""
    try:
        _target(find_compiler())
    except NoCompiler:
        return False
    return True


@cache
def _target(command: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Flags for this processor, and a digest of all that the compiler says about itself and the processor."""
    for flags in (("-march=native",), ("-mcpu=native",), ()):
        query = [*command, *flags, "-x", "c++", "-E", "-dM", os.devnull]
        answer = subprocess.run(query, capture_output=True, check=False)
        if answer.returncode == 0:
            return flags, hashlib.sha256(answer.stdout).hexdigest()
    raise NoCompiler(f"{shlex.join(command)} does not work as a C++ compiler: {_complaint(answer.stderr.decode())}")


def _complaint(text: str) -> str:
    """The line of a compiler's messages that says what is wrong."""
    lines = text.strip().splitlines() or ["it says nothing"]
    return next((line for line in lines if "error" in line), lines[0]).strip()


def cache_folder() -> Path:
    """Where compiled libraries are kept: ``$NUMERATE_CACHE``, else ``numerate`` in the user's cache folder.

    If nothing can be written there, a folder for the time of this process.
    """
    chosen = os.environ.get("NUMERATE_CACHE")
    return _usable(Path(chosen or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "numerate")))


@cache
def _usable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        text = "nothing can be kept in the cache folder %s (%s): loops are compiled anew; set NUMERATE_CACHE to another"
        log.warning(text, folder, error.strerror)
        return Path(_temporary().name)


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """Removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="numerate-")


def prelude() -> str:
    """The C++ that all sources start with."""
    return Path(__file__).with_name("prelude.hpp").read_text()


def library(source: str) -> ctypes.CDLL:
    """The shared library of a C++ ``source`` that may include ``"prelude.hpp"``; compiled on first use, then cached.

    A file in the cache that cannot be loaded is built once more.
    """
    command = find_compiler()
    native_flags, identity = _target(command)
    source = source.replace('#include "prelude.hpp"', prelude())
    flags = (*FLAGS, *native_flags)
    digest = hashlib.sha256("\0".join([source, *flags, *command, identity]).encode()).hexdigest()[:32]
    path = cache_folder() / f"{digest}.so"
    if path.exists():
        with suppress(OSError):
            return ctypes.CDLL(str(path))
    _compile(command, flags, source, path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        reason = str(error).removeprefix(f"{path}: ")
        text = f"libraries cannot be loaded from {path.parent} ({reason}); set NUMERATE_CACHE to another folder"
        raise CompileError(text) from None


def _compile(command: tuple[str, ...], flags: tuple[str, ...], source: str, path: Path) -> None:
    """Build in a folder of our own, then move into place: two processes may do the same at once, and either wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=path.parent) as folder:
        code, built = Path(folder, "loop.cpp"), Path(folder, "loop.so")
        code.write_text(source)
        build = [*command, *flags, "-shared", "-fPIC", str(code), "-o", str(built)]
        done = subprocess.run(build, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            messages = done.stderr.replace(f"{folder}/", "")
            raise CompileError(f"{shlex.join(command)} failed: {_complaint(messages)}\n{shlex.join(build)}\n{messages}")
        os.replace(code, path.with_suffix(".cpp"))  # kept beside the library, to read
        os.replace(built, path)


def write_whole(content: bytes, path: Path) -> None:
    """Write a file as a whole: two processes may do the same at once, and either wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix="build-", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(name, path)


def pointer(tensor: Tensor) -> ctypes.c_void_p:
    """Address of a contiguous CPU tensor's data."""
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError(f"needs a contiguous CPU tensor, got strides {tensor.stride()} on {tensor.device}")
    return ctypes.c_void_p(tensor.data_ptr())


def over_parts(work: Callable[[int, int], object], count: int, threads: int | None = None) -> None:
    """Call ``work(first, last)`` on consecutive parts of range(count), in parallel; native calls release the lock."""
    threads = min(threads or torch.get_num_threads(), count)
    if threads <= 1:
        work(0, count)
        return
    edges = [count * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, first, last) for first, last in pairwise(edges)]:
            done.result()


@cache
def _philox() -> ctypes.CDLL:
    return library(Path(__file__).with_name("philox.cpp").read_text())


@cache
def draws() -> bool:
    """Whether random numbers can be drawn natively here."""
    try:
        return _philox() is not None
    except (NoCompiler, CompileError):
        return False


def philox_uniform(
    seeds: Tensor, domain: int, step0: int, steps: int, count: int, threads: int | None = None
) -> Tensor:
    """:func:`numerate.streams.uniform` for several steps at once, equal bit for bit.

    seeds: (S,) int64 -> (steps, S, count) float32
    """
    out = torch.empty(steps, len(seeds), count)
    words = seeds.to("cpu", torch.int32).contiguous()  # keeps the low 32 bits, as the key does
    fill = _philox().fill
    head = (pointer(words), ctypes.c_int64(len(words)), ctypes.c_uint32(domain), ctypes.c_uint64(step0))
    tail = (ctypes.c_int64(count), pointer(out))

    def rows(first: int, last: int) -> None:
        fill(*head, ctypes.c_int64(first), ctypes.c_int64(last), *tail)

    over_parts(rows, steps * len(words), threads)
    return out
