"""Printing to whatever the terminal is: text from files never acts on it, and one without UTF-8 gets ASCII marks."""

import codecs
import logging
import os
import sys
import unicodedata
from typing import Any, TextIO

from numerate.labels import printable

MARKS = dict(zip("▁▂▃▄▅▆▇█", "_.:-=+%#"))
MARKS |= {"−": "-", "–": "-", "—": "-", "‑": "-", "·": "*", "•": "*", "×": "x", "≈": "~", "≤": "<=", "≥": ">="}
MARKS |= {"∪": "u", "∞": "inf", "…": "...", "“": '"', "”": '"', "‘": "'", "’": "'", "±": "+-", "→": "->", "√": "sqrt"}
MARKS |= {"ε": "eps", "τ": "tau", "π": "pi", "χ": "chi", "✓": "yes", "✗": "no", "━": "-", "╸": "-", "╺": "-", "∘": "o"}
POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def visible(text: str) -> str:
    """``text`` with the replacement character for what a terminal would act on; line ends and tabs stay."""
    return printable(text, keep="\n\t")


def prepare() -> None:
    """Have both streams write what they can: signs that their encoding lacks become ASCII marks."""
    codecs.register_error("numerate-marks", _marks)
    logger = logging.getLogger("numerate")
    if _NOTICES not in logger.handlers:
        logger.addHandler(_NOTICES)
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (for the rest of the process)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="numerate-marks")


def _marks(error: UnicodeError) -> tuple[str, int]:
    """The error handler of a stream: ASCII for signs that cannot be encoded."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    if (power := lacking.translate(POWERS)).isascii():
        return f"^{power}", error.end
    return "".join(map(_mark, lacking)), error.end


def _mark(sign: str) -> str:
    plain = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode()
    return MARKS.get(sign) or plain or "?"


class _Notices(logging.Handler):
    """The notices of the package, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        echo(record.getMessage(), sys.stderr)


_NOTICES = _Notices()


def echo(text: str, stream: TextIO | None = None) -> None:
    """Print a line."""
    print(visible(text), file=stream or sys.stdout, flush=True)


def show(renderable: Any) -> None:
    """Print a rich renderable; square brackets in text are no mark-up."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    console = Console(markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(markup=False, emoji=False, width=160)  # a file has no width; lines are not to be cut at 80
    segments = [Segment(visible(part.text), part.style, part.control) for part in console.render(renderable)]
    console.print(Segments(segments))


def discard_output() -> None:
    """After the reader of a pipe has gone: write to nowhere, so that nothing complains at the end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        pass  # a stream without a file behind it
