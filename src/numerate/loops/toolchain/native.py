"""Native code in this process: load a compiled source, call it on several cores; the random streams as native code."""

import ctypes
import gc
import hashlib
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from numerate.locks import ForkSafeLock
from numerate.loops.toolchain import cache_folder, compiler, tracing_memory
from numerate.loops.toolchain.build_lock import build_lock
from numerate.loops.toolchain.compiler import CompileError, NoCompiler, available, find_compiler

RECENT = 32
"""Libraries that stay loaded although nothing uses them."""

_loading = ForkSafeLock()
_loaded: "weakref.WeakValueDictionary[str, Library]" = weakref.WeakValueDictionary()
_recent: "OrderedDict[str, Library]" = OrderedDict()
_collected = RECENT


class Library(ctypes.CDLL):
    """A shared library that is unloaded when nothing refers to it: neither a loop nor a function being called."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        weakref.finalize(self, _unload, self._handle).atexit = False


def _unload(handle: int) -> None:
    if sys.platform == "win32":
        ctypes.WinDLL("kernel32").FreeLibrary(ctypes.c_void_p(handle))
    else:
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(handle))


def prelude() -> str:
    """The C++ that all sources start with."""
    return Path(__file__).with_name("prelude.hpp").read_text()


def library(source: str) -> Library:
    """The shared library of a C++ ``source`` that may include ``"prelude.hpp"``; compiled on first use, then cached.

    Raises NoCompiler or CompileError.
    """
    command = find_compiler()
    native_flags, identity = compiler.target(command)
    source = source.replace('#include "prelude.hpp"', prelude())
    flags = (*compiler.FLAGS, *native_flags)
    key = hashlib.sha256("\0".join([source, *flags, *command, identity]).encode()).hexdigest()[:32]
    with _loading:
        found = _loaded.get(key)
        if found is None:
            tracing_memory.trim()
    if found is None:
        found = _load(key, command, flags, source)
    with _loading:
        return _remember(key, found)


def _remember(key: str, found: Library) -> Library:
    """Keep a library loaded; forget the one that was asked for least recently."""
    found = _loaded.setdefault(key, found)
    _recent[key] = found
    _recent.move_to_end(key)
    if len(_recent) > RECENT:
        _recent.popitem(last=False)
        _collect()
    return found


def _collect() -> None:
    """Unload what nothing uses; a library and its functions refer to each other, so only the collector finds them."""
    global _collected
    if len(_loaded) >= _collected + RECENT:
        gc.collect()
        _collected = len(_loaded)


def _load(key: str, command: tuple[str, ...], flags: tuple[str, ...], source: str) -> Library:
    """From the cache, or built; what a full disk or a folder without execution does not hold, in a temporary folder."""

    def write(folder: Path) -> None:
        code = folder / "loop.cpp"  # stays beside the library, to read
        code.write_text(source)
        compiler.build(command, flags, code, folder / "loop.so")

    try:
        kept = cache_folder.current()
        try:
            return _built(kept, key, write)
        except OSError as error:
            if kept is cache_folder.temporary():
                raise
            reason = error.strerror or str(error).removeprefix(f"{kept.path(key, 'loop.so')}: ")
            cache_folder.notice(
                f"libraries cannot be cached in {kept.folder} ({reason}); set NUMERATE_CACHE to another folder"
            )
            return _built(cache_folder.temporary(), key, write)
    except OSError as error:
        raise CompileError(f"no library can be built or loaded ({error.strerror or error})") from None


def _built(kept: cache_folder.Cache, key: str, write: Callable[[Path], None]) -> Library:
    """Raises OSError if the cache cannot hold the library or it cannot be loaded from there."""
    path = kept.path(key, "loop.so")
    if kept.read(key, path.name) is None:
        with build_lock(kept.folder, key):
            if kept.read(key, path.name) is None:
                kept.add(key, write)
    return Library(path)


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
    seeds: Tensor, domain: int, step0: int, steps: int, count: int, threads: int | None = None, first: int = 0
) -> Tensor:
    """:func:`numerate.streams.uniform` for several steps at once, equal bit for bit.

    seeds: (S,) int64 -> (steps, S, count) float32
    """
    out = torch.empty(steps, len(seeds), count)
    words = seeds.to("cpu", torch.int32).contiguous()  # keeps the low 32 bits, as the key does
    fill = _philox().fill
    head = (pointer(words), ctypes.c_int64(len(words)), ctypes.c_uint32(domain), ctypes.c_uint64(step0))
    tail = (ctypes.c_int64(first), ctypes.c_int64(count), pointer(out))

    def rows(first: int, last: int) -> None:
        fill(*head, ctypes.c_int64(first), ctypes.c_int64(last), *tail)

    over_parts(rows, steps * len(words), threads)
    return out


def stream_uniform(seed: Tensor, domain: int, step: Tensor, count: int, first: int = 0) -> Tensor:
    """As :func:`numerate.streams.uniform`, for numbers on the CPU and not under ``vmap``; (...) -> (..., count)"""
    rows = philox_uniform(seed.reshape(-1), domain, int(step), 1, count, threads=1, first=first)
    return rows.view(*seed.shape, count)


__all__ = [
    "CompileError",
    "Library",
    "NoCompiler",
    "available",
    "draws",
    "find_compiler",
    "library",
    "over_parts",
    "philox_uniform",
    "pointer",
    "prelude",
    "stream_uniform",
]
