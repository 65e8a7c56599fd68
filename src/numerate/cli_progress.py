"""How far training is: a line in a terminal that is kept up to date, and lines of a log where there is no terminal."""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from numerate import terminal
from numerate.labels import printable

if TYPE_CHECKING:
    from numerate.train import Progress

PAUSE = 60.0
"""Seconds between two lines of a log."""


def shown(title: str) -> "AbstractContextManager[Callable[[Progress], None]]":
    """What to tell progress to, by where the output goes."""
    from rich.console import Console

    return Bar(title) if Console().is_terminal else Lines(title)


def counted(now: "Progress") -> str:
    """How many runs are done, and how many of them are solved."""
    of = f" of {now.trained:,} now trained" if now.trained < now.finished else ""  # the others were there before
    rate = f", {now.solved / now.trained:.0%}{of} solved" if now.trained else ""
    text = f"{now.finished:,} of {now.total:,} runs{rate}"
    if now.workers is not None:
        text += f", {now.busy:,}/{now.workers:,} workers busy, {now.rate:,.1f} runs/s"
    return text


def left(now: "Progress") -> str:
    return f"{rounded(now.remaining)} left" if now.remaining else ""


def rounded(seconds: float) -> str:
    """100 s, 11 min, 5 h, 11 days"""
    return next(
        f"{seconds / length:.0f} {unit}"
        for unit, length, most in (
            ("s", 1, 120),
            ("min", 60, 7200),
            ("h", 3600, 172_800),
            ("days", 86_400, float("inf")),
        )
        if seconds < most
    )


class Bar:
    """A line in the terminal, kept up to date."""

    def __init__(self, title: str) -> None:
        from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column
        from rich.text import Text

        class Label(ProgressColumn):
            """What is trained now; the only column that shrinks where the terminal is narrow."""

            def render(self, task: Any) -> Text:
                return Text(printable(f"{title}  {task.fields['label']}"), no_wrap=True, overflow="ellipsis")

        whole = Column(no_wrap=True)
        self.bar = Progress(
            BarColumn(bar_width=12, table_column=whole),
            TextColumn("{task.fields[runs]}", table_column=whole),
            TimeElapsedColumn(table_column=whole),
            TextColumn("{task.fields[left]}", table_column=whole),
            Label(),
        )
        self.task = self.bar.add_task(title, total=1.0, runs="", left="", label="")

    def __enter__(self) -> "Callable[[Progress], None]":
        self.bar.start()
        return self.tell

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def tell(self, now: "Progress") -> None:
        self.bar.update(self.task, completed=now.fraction, runs=counted(now), left=left(now), label=now.label)


class Lines:
    """A line on standard error once a minute: share of all updates, runs, time left, what is trained now."""

    def __init__(self, title: str, pause: float = PAUSE) -> None:
        self.title, self.pause, self.told = title, pause, time.monotonic()

    def __enter__(self) -> "Callable[[Progress], None]":
        return self.tell

    def __exit__(self, *_: object) -> None:
        pass

    def tell(self, now: "Progress") -> None:
        if time.monotonic() - self.told < self.pause:
            return
        self.told = time.monotonic()
        parts = f"{now.fraction:.1%}", counted(now), left(now), now.label
        terminal.echo(f"{self.title}: {', '.join(filter(None, parts))}", sys.stderr)
