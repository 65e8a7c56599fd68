"""The command ``numerate fit`` on a terminal: progress, what was found, where the page is."""

import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

INTERRUPTED = 130


@dataclass(frozen=True)
class Wanted:
    """What was asked for on the command line."""

    data: Path
    target: str | None
    inputs: list[str] | None
    time: str | None
    trajectory: str | None
    units: str | None
    seconds: float
    functions: list[str] | None
    size: int | None
    relative: bool | None
    seed: int
    out: Path
    robust: bool = False

    def command(self) -> str:
        """The command that makes this report."""
        words = ["numerate", "fit", str(self.data)]
        for name in ("target", "inputs", "time", "trajectory", "units", "seconds", "functions", "size", "seed"):
            value = getattr(self, name)
            if isinstance(value, list):
                value = ",".join(value) or "none"
            if value is not None and (name, value) not in (("seconds", 10.0), ("seed", 0)):
                words += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
        words += {None: [], True: ["--relative"], False: ["--absolute"]}[self.relative]
        words += ["--robust"] if self.robust else []
        return shlex.join(words)

    def check(self) -> None:
        """Raises ValueError if options do not go together."""
        if self.target is None and self.time is None:
            raise ValueError("name the column to explain: --target NAME (or --time NAME for trajectories)")
        if self.target is not None and self.time is not None:
            raise ValueError("--target and --time cannot be combined; with --time every state gets an equation")
        if self.trajectory is not None and self.time is None:
            raise ValueError("--trajectory needs --time")
        if self.units is not None and self.time is not None:
            raise ValueError("--units needs --target; differential equations are found without units")
        if self.robust and self.time is not None:
            raise ValueError("--robust needs --target")
        if not self.seconds > 0:
            raise ValueError(f"--seconds must be positive, got {self.seconds:g}")

    @property
    def settings(self) -> dict[str, str]:
        functions = "all" if self.functions is None else ", ".join(self.functions) or "none"
        return {"seconds": f"{self.seconds:g} of processor time", "functions": functions, "seed": str(self.seed)}


Print = Callable[[Any], None]


def run(wanted: Wanted, show: Print) -> None:
    """Find, print and write what was asked for."""
    wanted.check()
    need_packages()
    if wanted.time is not None:
        _run_equations(wanted, show)
    else:
        _run_formula(wanted, show)


def need_packages() -> None:
    """Raises RuntimeError if a package is missing that the search or its report needs."""
    from importlib.util import find_spec

    needed = ("scipy", "threadpoolctl", "polars", "matplotlib", "jinja2")
    if missing := [name for name in needed if find_spec(name) is None]:
        raise RuntimeError(f"formulas from data need {', '.join(missing)}: pip install 'numerate[formula]'")


def _check_folder(out: Path) -> None:
    """Raises ValueError, before the search, if the report could not be written."""
    from numerate.results.folders import refusal

    if why := refusal(out):
        raise ValueError(f"cannot write a report to the folder {out}: {why}")


def _run_formula(wanted: Wanted, show: Print) -> None:
    from numerate import fit
    from numerate.discover.physical_units import parse_units
    from numerate.discover.table import read_table

    assert wanted.target is not None
    table = read_table(wanted.data, wanted.target, wanted.inputs)
    units = None if wanted.units is None else parse_units(wanted.units, table.names, table.target)
    said = "" if units is None else "; units: " + ", ".join(f"{name} [{unit.text}]" for name, unit in units.items())
    _check_folder(wanted.out)
    typer.echo(f"{wanted.data}: {len(table):,} rows; {table.target} from {', '.join(table.names)}{said}")
    with _progress(table.target, wanted.seconds) as tell:
        found = fit.fit_table(
            table,
            seconds=wanted.seconds,
            functions=wanted.functions,
            units=units,
            size=wanted.size,
            relative=wanted.relative,
            robust=wanted.robust,
            seed=wanted.seed,
            progress=tell,
        )
    show(_summary(found))
    page = fit.write_report(
        found, wanted.data, wanted.out, seconds=wanted.seconds, settings=wanted.settings, command=wanted.command()
    )
    typer.echo(f"report: {page}")


def _summary(fit: Any) -> Any:
    """Formula, verdict, facts, runners-up."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from numerate.discover import export
    from numerate.report.text import number

    best, target = fit.found.best, fit.table.target
    sign = "=" if best.exact else "≈"
    head = Text.assemble((f"{target} {sign} {export.text(best.expression)}", "bold"))
    verdict = Text(f"  {fit.verdict}", style="green" if best.exact else "yellow")
    facts = [f"  {name}: {value}" for name, value in fit.facts[:2]]
    facts += [f"  constant {note}" for note in fit.constants]
    facts += [f"  dimensionless group: {group}" for group in fit.groups]
    facts += [f"  left out as outliers: {fit.outliers}"] if fit.found.outliers else []
    cut = "; the time ran out, another run may find another formula" if fit.found.cut else ""
    facts += [f"  hint: {hint}" for hint in fit.hints]
    facts.append(f"  found in {fit.found.seconds:.1f} s{cut}")
    others = Table("size", "relative error", "formula", box=None, pad_edge=False, header_style="dim")
    for each in fit.runners_up:
        others.add_row(str(each.size), number(each.relative_error), export.text(each.expression))
    rest = [Text("runners-up", style="dim"), others] if fit.runners_up else []
    return Group(head, verdict, *map(Text, facts), *rest)


def _run_equations(wanted: Wanted, show: Print) -> None:
    from numerate import fit_equations

    assert wanted.time is not None
    data = fit_equations.read_trajectories(wanted.data, wanted.time, wanted.inputs, wanted.trajectory)
    _check_folder(wanted.out)
    typer.echo(f"{wanted.data}: {data.summary}")
    with _progress(", ".join(data.names), wanted.seconds) as tell:
        found = fit_equations.find_equations(
            data,
            seconds=wanted.seconds,
            functions=wanted.functions,
            seed=wanted.seed,
            progress=lambda name, best, elapsed: tell(best, elapsed, f"d{name}/dt"),
        )
    show(fit_equations.summary(found))
    page = fit_equations.write_report(found, data, wanted.data, wanted.out, wanted.settings, wanted.command())
    typer.echo(f"report: {page}")


@contextmanager
def _progress(target: str, seconds: float) -> Iterator[Callable[..., None]]:
    """A line with the best formula so far; after Ctrl-C the search gives that one back."""
    from rich.console import Console
    from rich.markup import escape

    from numerate.discover import export
    from numerate.report.text import number

    stopped = []

    def stop(*_: Any) -> None:
        if stopped:
            raise SystemExit(INTERRUPTED)
        stopped.append(True)
        raise KeyboardInterrupt

    console = Console(stderr=True)
    with console.status(f"looking for {escape(target)}, {seconds:g} s at most (Ctrl-C: best so far)") as status:

        def tell(best: Any, elapsed: float, name: str = target) -> None:
            shown = export.text(best.expression, 4)
            shown = shown if len(shown) <= 70 else shown[:69] + "…"
            line = f"{elapsed:.1f} s  {name} ≈ {shown}  (relative error {number(best.relative_error)})"
            status.update(escape(line))

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield tell
        except KeyboardInterrupt:
            typer.echo("stopped before a formula was found", err=True)
            sys.exit(INTERRUPTED)
        finally:
            signal.signal(signal.SIGINT, before)
    if stopped:
        typer.echo("stopped early; this is the best so far", err=True)
