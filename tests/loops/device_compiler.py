"""The compiler of the GPU's code, which works without a GPU."""

import pytest

from numerate.loops.toolchain import nvrtc
from numerate.loops.toolchain.native import NoCompiler

OPTIONS = (*nvrtc.OPTIONS, "--gpu-architecture=sm_90", "--ptxas-options=-v")


def there() -> bool:
    try:
        return bool(nvrtc.version())
    except NoCompiler:
        return False


needs_compiler = pytest.mark.skipif(not there(), reason="needs NVRTC")


def said_about(source: str) -> str:
    """What the compiler says: registers, and memory for what has no place there."""
    again = ("--no-cache",) if nvrtc.version() >= (12, 9) else ()  # what it has compiled before it says nothing about
    return nvrtc.compiled_with_log(source, (*OPTIONS, *again))[1]
