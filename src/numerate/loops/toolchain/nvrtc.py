"""Compile CUDA C++ at run time with the compiler that ships with torch, keep the result, and launch it."""

import ctypes
import hashlib
import sys
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from numerate.loops.toolchain import cache_folder
from numerate.loops.toolchain.build_lock import build_lock
from numerate.loops.toolchain.compiler import CompileError, NoCompiler

OPTIONS = ("--std=c++17", "--restrict", "--extra-device-vectorization")
"""Accurate division, square root and functions; products and sums may be fused where the source leaves it open."""

_MAX_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_REGISTERS = 4  # CU_FUNC_ATTRIBUTE_NUM_REGS


class CudaError(RuntimeError):
    """A call of the driver failed."""


class Kernel:
    """A function on the device that is launched with blocks of ``block`` threads and ``shared`` bytes each."""

    def __init__(self, cubin: bytes, name: str, device: torch.device, block: int, shared: int) -> None:
        self.device, self.block, self.shared = device, block, shared
        self._function = ctypes.c_void_p()
        module = ctypes.c_void_p()
        _use(device)
        _check(_driver().cuModuleLoadData(ctypes.byref(module), cubin))
        _check(_driver().cuModuleGetFunction(ctypes.byref(self._function), module, name.encode()))
        if shared > 48 * 1024:
            _check(_driver().cuFuncSetAttribute(self._function, _MAX_SHARED, shared))

    def launch(self, blocks: int, *arguments: Tensor | int, cooperative: bool = False) -> None:
        """Tensors are handed over by address, whole numbers as 64 bits; work is queued on the current stream.

        With ``cooperative`` all blocks run at the same time, so that they may wait for each other.
        """
        count = len(arguments)
        values = (ctypes.c_uint64 * count)(*[a.data_ptr() if isinstance(a, Tensor) else a for a in arguments])
        first = ctypes.addressof(values)
        addresses = (ctypes.c_void_p * count)(*range(first, first + 8 * count, 8))
        stream = ctypes.c_void_p(torch.cuda.current_stream(self.device).cuda_stream)
        sizes = (blocks, 1, 1, self.block, 1, 1, self.shared)
        here = self.device.index in (None, torch.cuda.current_device())
        with nullcontext() if here else torch.cuda.device(self.device):
            _use(self.device)
            if cooperative:
                _check(_driver().cuLaunchCooperativeKernel(self._function, *sizes, stream, addresses))
            else:
                _check(_driver().cuLaunchKernel(self._function, *sizes, stream, addresses, None))

    @property
    def registers(self) -> int:
        """Of one thread."""
        return self._attribute(_REGISTERS)

    def _attribute(self, which: int) -> int:
        value = ctypes.c_int()
        _check(_driver().cuFuncGetAttribute(ctypes.byref(value), which, self._function))
        return value.value


def kernel(source: str, name: str, device: torch.device, block: int, shared: int = 0) -> Kernel:
    """The kernel ``name`` of ``source``; compiled for the device on first use, then cached."""
    major, minor = torch.cuda.get_device_capability(device)
    options = (*OPTIONS, f"--gpu-architecture=sm_{major}{minor}")
    return Kernel(_cubin(source, options), name, device, block, shared)


def _cubin(source: str, options: tuple[str, ...]) -> bytes:
    """Machine code of a source, from the cache if it is there."""
    identity = "\0".join([source, *options, str(version())])
    key = hashlib.sha256(identity.encode()).hexdigest()[:32]
    try:
        folder = cache_folder.current()
        if found := folder.read(key, "loop.cubin"):
            return found
        with build_lock(folder.folder, key):
            return folder.read(key, "loop.cubin") or _kept(folder, key, source, compiled(source, options))
    except OSError:  # no place even for temporary files
        return compiled(source, options)


def _kept(folder: cache_folder.Cache, key: str, source: str, cubin: bytes) -> bytes:
    """``cubin``, which is kept for the next process, with the source beside it to read."""

    def write(entry: Path) -> None:
        (entry / "loop.cubin").write_bytes(cubin)
        (entry / "loop.cu").write_text(source)

    try:
        folder.add(key, write)
    except OSError as error:
        cache_folder.notice(f"kernels cannot be cached in {folder.folder} ({error.strerror}): compiled each time")
    return cubin


def shared_memory(device: torch.device) -> int:
    """Bytes that a block on the device can have; raises :class:`NoCompiler` where nothing can be compiled for it."""
    if not torch.cuda.is_available():
        raise NoCompiler("torch finds no CUDA device here")
    _nvrtc()
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def compiled(source: str, options: tuple[str, ...]) -> bytes:
    """Machine code (cubin) of a CUDA C++ source."""
    return compiled_with_log(source, options)[0]


def compiled_with_log(source: str, options: tuple[str, ...]) -> tuple[bytes, str]:
    """Machine code, and what the compiler says about it; a device is not needed."""
    library, program = _nvrtc(), ctypes.c_void_p()
    _accept(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"loop.cu", 0, None, None))
    try:
        texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        result = library.nvrtcCompileProgram(program, len(options), texts)
        log = _bytes(program, "ProgramLog").decode()
        if result != 0:
            raise CompileError(f"NVRTC did not accept the source:\n{log}")
        return _bytes(program, "CUBIN"), log
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@cache
def version() -> tuple[int, int]:
    """Of the compiler."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _accept(_nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _accept(getattr(_nvrtc(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _accept(getattr(_nvrtc(), f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


@cache
def _nvrtc() -> ctypes.CDLL:
    major = (torch.version.cuda or "").split(".")[0]
    beside = [path for entry in sys.path for path in sorted(Path(entry or ".").glob("nvidia/*/lib/libnvrtc.so.*"))]
    fitting = (str(path) for path in beside if path.suffix == f".{major}" or not major)
    names = [f"libnvrtc.so.{major}", *fitting, "libnvrtc.so"]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NoCompiler(f"libnvrtc.so.{major}, which comes with torch for CUDA, was not found")


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@cache
def _context(index: int) -> ctypes.c_void_p:
    """The context that torch uses on a device."""
    context = ctypes.c_void_p()
    torch.cuda.init()
    _check(_driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), index))
    return context


def _use(device: torch.device) -> None:
    """Make the device's context that of the calling thread."""
    index = torch.cuda.current_device() if device.index is None else device.index
    _check(_driver().cuCtxSetCurrent(_context(index)))


def _accept(result: int) -> None:
    if result != 0:
        text = _nvrtc().nvrtcGetErrorString
        text.restype = ctypes.c_char_p
        raise CompileError(f"NVRTC: {text(result).decode()}")


def _check(result: int) -> None:
    if result != 0:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(result, ctypes.byref(text))
        raise CudaError(f"CUDA: {(text.value or b'unknown error').decode()}")
