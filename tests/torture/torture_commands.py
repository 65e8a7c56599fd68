"""Fuzzed command lines: whatever is typed, the answer is text, an exit code of 0 or 2, and no traceback."""

import contextlib
import io
import sys
from unittest import mock

from torture_frame import Result, Setting

COMMANDS = [
    *("run", "report", "show", "list", "rows list", "rows export", "rows import", "rows rescue", "rows", "demo"),
    *("cache", "", "--version", "--help"),
]
WORDS = (
    COMMANDS
    + ["--size", "--seeds", "--units", "--ranges", "--device", "--backend", "--threads", "--out", "--experiment"]
    + ["--help", "--version", "--import", "-h", "--", "-", "", " ", "\t", "\n"]
    + ["smoke", "huge", "0", "-1", "1e9", "99999999999999999999", "NMU", "NAC•,NMU", ",", ";", "nosuch:Unit"]
    + ["os:system", "numerate.loops.native:library", "[1,2)", "[2,1)", "[[/b]", "[1,", "cpu", "cuda:9", "tpu"]
    + ["primer2022/table9", "nosuch", "..", "../../evil", "/dev/null", "/proc/self/mem", "a" * 5000, "\x1b[31m"]
    + ["results", "results.sqlite", "3f2a-0", "-0", "zzzz-1", "𝔘𝔫𝔦", "\udcff", "%s%n", "$(id)", "`id`", "units"]
)
TRAINS = {"run", "demo"}
"""Only with something that is refused: an attack trains nothing."""


def fuzzed_commands(setting: Setting) -> Result:
    codes: dict[str, int] = {}
    failures = []
    tried = setting.times(40, 2000)
    for _ in range(tried):
        some = [setting.draw.choice(COMMANDS), *setting.draw.choices(WORDS, k=setting.draw.randint(0, 4))]
        words = " ".join(some).split(" ")
        if TRAINS & set(words):
            words += ["--backend", "magic"]
        code, out = _called(words, setting)
        codes[f"exit {code}"] = codes.get(f"exit {code}", 0) + 1
        if code not in (0, 2):
            failures.append(f"numerate {words!r} ended with {code!r}: {out.strip()[-300:]}")
        elif "Traceback" in out or "\x1b" in out:
            failures.append(f"numerate {words!r} printed a traceback or a raw escape: {out.strip()[-300:]!r}")
    return Result(tried, codes, tuple(failures))


def _called(words: list[str], setting: Setting) -> tuple[object, str]:
    """Exit code and output of the command, called in this process."""
    from numerate.cli import main

    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape")
    with (
        mock.patch.object(sys, "argv", ["numerate", *words]),
        contextlib.chdir(setting.folder),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        try:
            code: object = main() or 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException as error:
            code = f"{type(error).__name__}: {error}"
        printed.flush()
    return code, printed.buffer.getvalue().decode(errors="replace")  # type: ignore[attr-defined]


ATTACKS = {"commands": fuzzed_commands}
