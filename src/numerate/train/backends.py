"""How to train: pick the loop that runs a step, and say which one it was."""

import logging
import re
import warnings
from collections.abc import Callable

from numerate.devices import CPU, CUDA, DeviceKind, available_kind, kind_of
from numerate.loops.plain.eager import Eager
from numerate.loops.plain.stacked import Stacked
from numerate.loops.step import Loop, Step

log = logging.getLogger("numerate")

BACKENDS = ("auto", "emitted", "stacked", "compiled", "eager")
_told: set[str] = set()


def notice(text: str) -> None:
    """Say something once per process."""
    if text not in _told:
        _told.add(text)
        log.warning(text)


def check(backend: str, device: str, threads: int | None) -> None:
    """Raise ValueError for what no loop can be made with."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    available_kind(device)


def choose(
    make_step: Callable[[], Step],
    backend: str = "auto",
    device: str = "cpu",
    threads: int | None = None,
    preflight: Callable[[Loop], None] | None = None,
    name: str = "this model",
) -> tuple[str, Loop]:
    """The loop for a step and its name.

    Args:
        make_step: makes a new step for each loop that is tried, as tracing may leave something in a user's module.
        backend: ``auto`` takes an emitted native loop where possible, else the stacked one.
        device: where to train.
        threads: of the native loop.
        preflight: for code from outside this package; raises if a loop cannot run it. ``auto`` then takes the next
            loop, whatever the reason, in the end the plain one.
        name: what a notice calls the model.
    """
    check(backend, device, threads)
    kinds = ["emitted", "stacked", *(["eager"] if preflight else [])] if backend == "auto" else [backend]
    failed: dict[str, str] = {}
    while True:  # until one works or the last one fails
        kind = kinds.pop(0)
        try:
            label, loop = _make(kind, make_step(), device, threads)
            if preflight:
                with warnings.catch_warnings(action="ignore"):
                    preflight(loop)
            break
        except Exception as reason:
            if not kinds or not (preflight or isinstance(reason, _expected_errors())):
                raise
            failed["native" if kind == "emitted" else kind] = first_sentence(reason)
    if failed:
        without = " and no ".join(f"{which} loop ({reason})" for which, reason in failed.items())
        notice(f"no {without} for {name}; using the {kind} one, which is slower")
    return label, loop


def first_sentence(error: Exception) -> str:
    """What went wrong, without the advice that torch adds."""
    return re.split(r"\.?\n|\. ", (str(error) or repr(error)).strip())[0]


def evaluator(loop: Loop, step: Step, draws: int, device: str = "cpu") -> Loop:
    """``loop``, or the stacked one for examples of another length than the step's, which no emitted loop can take."""
    if draws == step.draws or isinstance(loop, Stacked | Eager):
        return loop
    return Stacked(step, device)


def _make(kind: str, step: Step, device: str, threads: int | None) -> tuple[str, Loop]:
    if kind == "emitted":
        return f"emitted-{kind_of(device).name}", EMITTED[kind_of(device)](step, device, threads)
    if kind == "eager":
        return "eager", Eager(step)
    return f"stacked-{kind_of(device).name}", Stacked(step, device, compiled=kind == "compiled")


def _cpp(step: Step, device: str, threads: int | None) -> Loop:
    from numerate.loops.cpp.loop import Cpp

    return Cpp(step, threads=threads)


def _cuda(step: Step, device: str, threads: int | None) -> Loop:
    from numerate.loops.cuda.loop import Cuda

    return Cuda(step, device)


EMITTED: dict[DeviceKind, Callable[[Step, str, int | None], Loop]] = {CPU: _cpp, CUDA: _cuda}
"""Kind of device -> what makes its native loop."""


def _expected_errors() -> tuple[type[Exception], ...]:
    """Why there may be no native loop for a step of ours."""
    from numerate.loops.toolchain.native import CompileError, NoCompiler
    from numerate.loops.tracing.trace import NotLowered

    return NotLowered, NoCompiler, CompileError


__all__: list[str] = ["BACKENDS", "check", "choose", "evaluator", "first_sentence", "notice"]
