"""How to train: pick the loop that runs a step, and say which one it was."""

import logging
import re
import warnings
from collections.abc import Callable

import torch

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


def kind_of(device: str) -> str:
    """``cpu`` or ``cuda``, if there is such a device here."""
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu or cuda, got {device!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, but torch finds no CUDA device here; use cpu")
    return kind


def check(backend: str, device: str, threads: int | None) -> None:
    """One clear sentence for what no loop can be made with."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    kind_of(device)


def choose(
    make_step: Callable[[], Step],
    backend: str = "auto",
    device: str = "cpu",
    threads: int | None = None,
    trial: Callable[[Loop], None] | None = None,
    name: str = "this model",
) -> tuple[str, Loop]:
    """The loop for a step and its name. ``auto``: an emitted native loop where possible, else the stacked one.

    Each loop that is tried gets a step of its own, as tracing may leave something in a user's module. ``trial`` is for
    code from outside of this package: it raises if it finds that a loop cannot run that. Then ``auto`` goes on to the
    next loop, whatever the reason, at last to the plain one. ``name`` is what a notice calls the model.
    """
    check(backend, device, threads)
    kinds = ["emitted", "stacked", *(["eager"] if trial else [])] if backend == "auto" else [backend]
    failed: dict[str, str] = {}
    while True:  # until one works or the last one fails
        kind = kinds.pop(0)
        try:
            chosen, loop = _made(kind, make_step(), device, threads)
            if trial:
                with warnings.catch_warnings(action="ignore"):
                    trial(loop)
            break
        except Exception as reason:
            if not kinds or not (trial or isinstance(reason, _reasons())):
                raise
            failed["native" if kind == "emitted" else kind] = first_sentence(reason)
    if failed:
        without = " and no ".join(f"{which} loop ({reason})" for which, reason in failed.items())
        notice(f"no {without} for {name}; using the {kind} one, which is slower")
    return chosen, loop


def first_sentence(error: Exception) -> str:
    """What went wrong, without the advice that torch adds."""
    return re.split(r"\.?\n|\. ", (str(error) or repr(error)).strip())[0]


def evaluator(loop: Loop, step: Step, draws: int, device: str = "cpu") -> Loop:
    """``loop``, or the stacked one for examples of another length than the step's, which no emitted loop can take."""
    if draws == step.draws or isinstance(loop, Stacked | Eager):
        return loop
    return Stacked(step, device)


def _made(kind: str, step: Step, device: str, threads: int | None) -> tuple[str, Loop]:
    if kind == "emitted":
        return _emitted(step, device, threads)
    if kind == "eager":
        return "eager", Eager(step)
    return f"stacked-{kind_of(device)}", Stacked(step, device, compiled=kind == "compiled")


def _emitted(step: Step, device: str, threads: int | None) -> tuple[str, Loop]:
    if torch.device(device).type == "cuda":
        from numerate.loops.cuda.loop import Cuda

        return "emitted-cuda", Cuda(step, device)
    from numerate.loops.cpp.loop import Cpp

    return "emitted-cpu", Cpp(step, threads=threads)


def _reasons() -> tuple[type[Exception], ...]:
    from numerate.loops.toolchain.native import CompileError, NoCompiler
    from numerate.loops.tracing.trace import NotLowered

    return NotLowered, NoCompiler, CompileError


__all__: list[str] = ["BACKENDS", "check", "choose", "evaluator", "first_sentence", "kind_of", "notice"]
