"""What a user asks for: plain steps, native loops, or whatever pays."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, cast, get_args

Mode = Literal["auto", "plain", "native"]

SHORTEST = 16
"""With ``auto``, sequences of fewer steps take plain steps: compiling would take longer than they do."""

_mode: ContextVar[Mode | None] = ContextVar("numerate_loop", default=None)


@contextmanager
def use_loop(mode: Mode) -> Iterator[None]:
    """Choose the loop for the calls inside: ``plain`` steps, ``native`` wherever it exists, or ``auto``.

    The environment variable ``NUMERATE_LOOP`` does the same for a whole process.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, got {mode!r}")
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


def chosen_mode() -> Mode:
    """What :func:`use_loop` or the environment says."""
    mode = _mode.get() or os.environ.get("NUMERATE_LOOP", "auto")
    if mode not in get_args(Mode):
        raise ValueError(f"NUMERATE_LOOP must be one of {', '.join(get_args(Mode))}, got {mode!r}")
    return cast(Mode, mode)
