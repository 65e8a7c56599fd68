"""The C++ compiler of this machine: which one, with which flags, and one call of it."""

import errno
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

FLAGS = (
    "-std=c++17", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-lax-vector-conversions",
    "-Wno-psabi",
)  # fmt: skip
"""No rounding is left to the compiler: products and sums are fused only where the source says so."""

_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))


class NoCompiler(RuntimeError):
    """This machine has no C++ compiler that works."""


class CompileError(RuntimeError):
    """A source could not be compiled, or the library not loaded; the first line says why."""


def find_compiler() -> tuple[str, ...]:
    """Command of a C++ compiler: ``$CXX``, g++, clang++, or the one in the ``ziglang`` package."""
    chosen = os.environ.get("CXX", "").strip()
    if chosen:
        command = _words(chosen)
        if shutil.which(command[0]):
            return command
        raise NoCompiler(f"CXX is set to {chosen!r}, which is not an executable; unset it or name a C++ compiler")
    for name in ("g++", "clang++"):
        if path := shutil.which(name):
            return (path,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "cc")  # cc: no C++ runtime is needed, and building one takes a minute
    raise NoCompiler("no C++ compiler found (g++, clang++); install one, or: pip install 'numerate[compiler]'")


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise NoCompiler(f"CXX is set to {command!r}, which is not a command ({error})") from None


@cache
def available() -> bool:
    """Whether there is a compiler that works."""
    try:
        target(find_compiler())
    except NoCompiler:
        return False
    return True


@cache
def target(command: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Flags for this processor, and a digest of all that the compiler says about itself and the processor.

    Raises NoCompiler if the command does not answer as a C++ compiler does.
    """
    complaint = "its answer is not that of a compiler"
    for flags in (("-march=native",), ("-mcpu=native",), ()):
        query = [*command, *flags, "-x", "c++", "-E", "-dM", os.devnull]
        try:
            answer = _called(query, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoCompiler(f"{shlex.join(command)} does not work as a C++ compiler: {error}") from None
        if answer.returncode == 0 and "#define __cplusplus " in answer.stdout:
            return flags, hashlib.sha256(answer.stdout.encode()).hexdigest()
        complaint = _complaint(answer.stderr) if answer.returncode else complaint
    raise NoCompiler(f"{shlex.join(command)} does not work as a C++ compiler: {complaint}")


def build(command: tuple[str, ...], flags: tuple[str, ...], code: Path, library: Path) -> None:
    """Compile the source file ``code`` to a shared library; scratch files lie beside it.

    Raises CompileError if the compiler does, and OSError if the disk is full.
    """
    call = [*command, *flags, "-shared", "-fPIC", str(code), "-o", str(library)]
    done = _called(call, TMPDIR=str(code.parent))
    messages = done.stderr.replace(f"{code.parent}/", "")
    if done.returncode == 0 and library.is_file():
        return
    if any(text in messages for text in _FULL):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(code.parent))
    reason = _complaint(messages) if done.returncode else "it wrote no library"
    raise CompileError(f"{shlex.join(command)} failed: {reason}\n{shlex.join(call)}\n{messages}")


def _called(call: list[str], timeout: float | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command without input; its messages are in English, so that they can be read here."""
    return subprocess.run(
        call,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=os.environ | {"LC_ALL": "C"} | environment,
        timeout=timeout,
        check=False,
    )


def _complaint(text: str) -> str:
    """The line of a compiler's messages that says what is wrong."""
    lines = text.strip().splitlines() or ["it says nothing"]
    return next((line for line in lines if "error" in line), lines[0]).strip()
