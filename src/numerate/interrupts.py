"""Ctrl-C while the command is still being imported: a clean end, whatever is half imported."""

import os
import signal
from types import FrameType

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell has it."""
SENTENCE = "stopped; the same command continues where it was"


def install() -> None:
    """Answer Ctrl-C from now on; not where it is ignored or somebody else answers it already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)


def _stop(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or end at once within an import, where an exception may be swallowed or disguised.

    Nothing is lost by that: a results file is safe against kill -9.
    """
    if _is_importing(frame):
        os.write(2, f"{SENTENCE}\n".encode())
        os._exit(INTERRUPTED)
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
