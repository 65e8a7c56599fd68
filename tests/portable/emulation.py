"""Libraries of another processor: compiled by the compiler of ``ziglang``, run by ``qemu-aarch64``, called like ours.

A call is carried over with all memory it may touch: tensors and ctypes objects that its pointers lead to.
"""

import ctypes
import gc
import hashlib
import importlib.util
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from numerate.loops.toolchain import compiler, native

ZIG = (sys.executable, "-m", "ziglang")
TARGET = "aarch64-linux-musl"
OTHER_SYSTEMS = ("aarch64-macos", "x86_64-macos", "x86_64-windows-gnu")
_NEEDED = {"ziglang": importlib.util.find_spec("ziglang"), "qemu-aarch64": shutil.which("qemu-aarch64")}
missing = [name for name, there in _NEEDED.items() if not there]
"""What is not on this machine: the package ``ziglang``, Debian's ``qemu-user``."""


def compile_for(target: str, source: str, folder: Path, *flags: str) -> Path:
    """The object file of a C++ source for a target. Raises CalledProcessError."""
    name = hashlib.sha256("\0".join((target, source, *flags)).encode()).hexdigest()[:16]
    code, built = folder / f"{name}.cpp", folder / f"{name}.o"
    if not built.exists():
        code.write_text(source.replace('#include "prelude.hpp"', native.prelude()))
        call = [*ZIG, "cc", "-target", target, *compiler.FLAGS, *flags, "-c", code, "-o", built]
        subprocess.run(call, check=True, capture_output=True, text=True)
    return built


def macros(target: str, *flags: str) -> dict[str, str]:
    """What the prelude defines for a processor."""
    call = [*ZIG, "cc", "-target", target, *flags, "-x", "c++", "-E", "-dM", "-"]
    text = subprocess.run(call, input=native.prelude(), check=True, capture_output=True, text=True).stdout
    return dict(re.findall(r"^#define (\w+) (.*)$", text, re.MULTILINE))


class Emulated:
    """As :class:`~numerate.loops.toolchain.native.Library`, on another processor.

    ``products`` lists libraries with matrix products, whose functions a time loop is given.
    """

    calls = 0

    def __init__(self, source: str, folder: Path, products: "Callable[[], list[Emulated]]") -> None:
        self.names = re.findall(r'^extern "C" \w+ (\w+)\(.*(?<!;)$', source, re.MULTILINE)
        self.objects = [compile_for(TARGET, source, folder)]
        self.folder = folder
        self._products = products
        self.symbols: dict[int, str] = {}
        self._program: Path | None = None

    @property
    def has_products(self) -> bool:
        return "multiply" in self.names

    @property
    def others(self) -> "list[Emulated]":
        return self._products() if "forward" in self.names else []

    @property
    def program(self) -> Path:
        """The driver, linked with this library and the others."""
        if self._program is None:
            names = [name for library in (self, *self.others) for name in library.names]
            driver = f"#define FUNCTIONS(F) {' '.join(f'F({name})' for name in names)}\n"
            driver += Path(__file__).with_name("driver.cpp").read_text()
            flags = ("-ffreestanding", "-fno-builtin", "-fno-sanitize=all")
            objects = [compile_for(TARGET, driver, self.folder, *flags)]
            objects += [path for library in (self, *self.others) for path in library.objects]
            self._program = objects[0].with_name(f"{objects[1].stem}-{objects[0].stem}")
            link = [*ZIG, "ld.lld", "-static", *map(str, objects), "-o", str(self._program)]
            subprocess.run(link, check=True, capture_output=True, text=True)
        return self._program

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__.get("names", ()):
            raise AttributeError(name)
        if name == "multiply":  # handed over as a pointer to a function
            function: Any = ctypes.CFUNCTYPE(None)(lambda: None)
            self.symbols[ctypes.cast(function, ctypes.c_void_p).value or 0] = name
        else:
            function = Function(self, name)
        setattr(self, name, function)
        return function

    def call(self, name: str, arguments: tuple[Any, ...]) -> int:
        Emulated.calls += 1
        regions = Regions([self, *self.others])
        values = [regions.argument(argument) for argument in arguments]
        pointers = regions.follow()
        sizes = [size for _, size in regions.used]
        names = [each for library in (self, *self.others) for each in library.names]
        words = [names.index(name), len(values), len(sizes), len(pointers), *(w for value in values for w in value)]
        contents = b"".join(ctypes.string_at(base, size) for base, size in regions.used)
        tail = [w for buffer, place, target, shift in pointers
                for w in (buffer, place, target, names.index(shift) if isinstance(shift, str) else shift)]  # fmt: skip
        request = _packed([*words, *sizes]) + contents + _packed(tail)
        done = subprocess.run(["qemu-aarch64", self.program], input=request, capture_output=True, check=True)
        place = 8
        for (base, size), is_tensor in zip(regions.used, regions.are_tensors):
            if is_tensor:
                ctypes.memmove(base, done.stdout[place : place + size], size)
            place += size
        return struct.unpack_from("<q", done.stdout)[0]


def _packed(words: list[int]) -> bytes:
    return b"".join(struct.pack("<q", word if word < 2**63 else word - 2**64) for word in words)


class Function:
    """A function of an emulated library; ``restype`` is accepted and ignored."""

    restype: Any = None

    def __init__(self, library: Emulated, name: str) -> None:
        self.library, self.name = library, name

    def __call__(self, *arguments: Any) -> int:
        return self.library.call(self.name, arguments)


class Regions:
    """Memory that pointers may lead to: every CPU tensor and every ctypes array or structure that is alive."""

    def __init__(self, libraries: list[Emulated]) -> None:
        self.symbols = {address: name for library in libraries for address, name in library.symbols.items()}
        self.known: dict[int, tuple[int, Any]] = {}
        for thing in gc.get_objects():
            kind = type(thing)
            if kind in (torch.Tensor, torch.nn.Parameter) and thing.device.type == "cpu":
                with suppress(RuntimeError, NotImplementedError):  # some have no memory
                    storage = thing.untyped_storage()
                    self.known[storage.data_ptr()] = (storage.nbytes(), None)
            elif issubclass(kind, ctypes.Array | ctypes.Structure):
                self.known[ctypes.addressof(thing)] = (ctypes.sizeof(thing), thing)
        self.used: list[tuple[int, int]] = []
        self.are_tensors: list[bool] = []

    def argument(self, value: Any) -> tuple[int, int, int]:
        """Whether it is a pointer, the value or the number of the buffer, the place in the buffer."""
        if isinstance(value, ctypes.Array):
            return (1, *self.place(ctypes.addressof(value)))
        if hasattr(value, "_obj"):  # by reference
            return (1, *self.place(ctypes.addressof(value._obj)))
        if isinstance(value, ctypes.c_void_p):
            return (1, *self.place(value.value)) if value.value else (0, 0, 0)
        return 0, getattr(value, "value", value), 0

    def place(self, address: int) -> tuple[int, int]:
        for base, (size, _) in self.known.items():
            if base <= address < base + max(size, 1):
                if (base, size) not in self.used:
                    self.used.append((base, size))
                    self.are_tensors.append(self.known[base][1] is None)
                return self.used.index((base, size)), address - base
        raise LookupError(f"nothing known lies at {address:#x}")

    def follow(self) -> list[tuple[int, int, int, int | str]]:
        """Pointers inside of buffers: where they stand, and where they lead to."""
        found: list[tuple[int, int, int, int | str]] = []
        done = 0
        while done < len(self.used):
            thing = self.known[self.used[done][0]][1]
            for place, address in _pointers(thing):
                if address in self.symbols:
                    found.append((done, place, -1, self.symbols[address]))
                elif address:
                    found.append((done, place, *self.place(address)))
            done += 1
        return found


def _pointers(thing: Any) -> list[tuple[int, int]]:
    if isinstance(thing, ctypes.Array) and thing._type_ is ctypes.c_void_p:
        return [(8 * k, value or 0) for k, value in enumerate(thing)]
    if isinstance(thing, ctypes.Structure):
        kinds = [(field[0], field[1]) for field in thing._fields_]
        return [(getattr(type(thing), n).offset, getattr(thing, n) or 0) for n, t in kinds if t is ctypes.c_void_p]
    return []
