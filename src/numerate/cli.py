"""The command line; everything heavy is imported when a command needs it."""

import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

from numerate import __version__

try:
    import typer
except ModuleNotFoundError:  # the units alone need no command line
    sys.exit("the numerate command needs its extra packages: pip install 'numerate[bench]'")

app = typer.Typer(add_completion=True, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
INTERRUPTED = 130
"""What typer gives back after Ctrl-C."""
rows_app = typer.Typer(no_args_is_help=True, help="List finished runs, or move them between machines.")
app.add_typer(rows_app, name="rows")

Out = Annotated[Path, typer.Option("--out", help="Folder of the results file and the reports.")]
SizeOption = Annotated[str, typer.Option(help="smoke (seconds), quick (minutes) or paper (the published setting).")]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds, in place of the size's own.")]
Units = Annotated[str | None, typer.Option(help="Units, separated by commas; your own as package.module:Name.")]
Ranges = Annotated[str | None, typer.Option(help="Training ranges, such as '[1,2) [-2,-1)'.")]
Ids = Annotated[
    list[str],
    typer.Argument(
        help="Experiments (see: numerate list). primer2022 is its Tables 9 to 12; a paper that is not listed itself "
        "(nau2020, nalu2018) stands for all of its own."
    ),
]


def main() -> None:
    """Entry point: bad input is one sentence and exit code 2, never a traceback."""
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):  # as earlier versions of typer have it
        code = INTERRUPTED
    except (ValueError, RuntimeError, OSError) as error:
        if type(error).__module__.split(".")[0] not in ("builtins", "numerate"):
            raise
        _fail(_sentence(error))
    except Exception as error:
        if hasattr(error, "format_message"):  # wrong options and arguments
            _fail(error.format_message())  # type: ignore[attr-defined]
        raise
    if code == INTERRUPTED:
        typer.echo("stopped; the same command continues where it was", err=True)
    sys.exit(code)


def _sentence(error: Exception) -> str:
    """What happened in words, without the system's number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _fail(sentence: str) -> NoReturn:
    typer.echo(f"numerate: {sentence}", err=True)
    sys.exit(2)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"numerate {__version__}")
        raise typer.Exit


@app.callback()
def numerate(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Neural arithmetic, logic and long memory: units, and the experiments of the arithmetic papers."""
    del version


@app.command("list")
def list_(what: Annotated[str, typer.Argument(help="units, tasks or experiments")] = "experiments") -> None:
    """List what there is."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    if what == "experiments":
        from numerate.experiments import experiments

        table.add_column("experiment", no_wrap=True)
        table.add_column("what it shows")
        for experiment in experiments().values():
            table.add_row(experiment.id, experiment.title)
    elif what in ("units", "tasks"):
        import importlib

        module = importlib.import_module(f"numerate.{what}")
        functions = {_squeezed(name): name for name in module.__all__ if inspect.isfunction(getattr(module, name))}
        table.add_column(what[:-1], no_wrap=True)
        if what == "units":
            table.add_column("function", no_wrap=True)
        table.add_column("what it is")
        for name in sorted(module.__all__, key=str.casefold):
            found = getattr(module, name)
            if name not in ("Unit", "Task") and _is_listed(found, what):
                function = [functions.get(_squeezed(name), "")] if what == "units" else []
                table.add_row(name, *function, _plain((found.__doc__ or "").strip().splitlines()[0]))
    else:
        raise ValueError(f"'numerate list' knows units, tasks and experiments, not {what!r}")
    _print(table)


def _plain(text: str) -> str:
    """A docstring's first line up to its formula, without mark-up."""
    text = text.partition(":math:")[0]
    return re.sub(r":\w+:`([^`]*)`|``([^`]*)``", lambda m: m[1] or m[2], text).rstrip(" .,:") + "."


def _squeezed(name: str) -> str:
    """``NACMul`` and its function ``nac_mul`` have the same."""
    return name.replace("_", "").lower()


def _is_listed(found: Any, what: str) -> bool:
    """Units are modules; tasks are classes with examples, and functions that make one."""
    from torch import nn

    if what == "units":
        return isinstance(found, type) and issubclass(found, nn.Module)
    return hasattr(found, "examples") or inspect.isfunction(found)


@app.command()
def run(
    ids: Ids,
    size: SizeOption = "quick",
    seeds: Seeds = None,
    units: Units = None,
    ranges: Ranges = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    backend: Annotated[str, typer.Option(help="auto, emitted, stacked, compiled or eager.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="Cores to use (default: all).")] = None,
    out: Out = Path("results"),
) -> None:
    """Train what an experiment needs, and write its report; run it again to continue after an interruption."""
    from numerate import experiments

    options = _options(size, seeds, units, ranges)
    chosen = experiments.select(ids)
    for experiment in chosen:
        with _named(experiment.id, ids):
            experiment.work(options)  # what is wrong is said before anything is trained
    for experiment in chosen:
        with _progress(experiment.id) as tell:
            shown = experiments.run(
                experiment, options, out, backend=backend, device=device, threads=threads, progress=tell
            )
        _show(experiment.id, shown, out)


@app.command()
def demo(out: Out = Path("results")) -> None:
    """The tour: a formula from a network, the Primer's whole benchmark (5,175 runs), three laws from measurements."""
    typer.echo("1. A formula from numbers in [1, 2), tested up to a thousand times further out")
    run(["discover"], out=out)
    typer.echo("2. The Primer's benchmark: every unit, four operations, nine ranges, 25 seeds, 50,000 steps each")
    run(["primer2022"], size="paper", out=out)
    typer.echo("3. Kepler's, Leavitt's and Hubble's laws, from their measurements")
    laws(out)


def laws(out: Path) -> None:
    """Three laws from tables that come with the package."""
    from numerate import cli_fit
    from numerate.discover.laws import LAWS

    for law in LAWS:
        typer.echo(f"{law.title}: {law.about}")
        wanted = cli_fit.Wanted(
            law.path, law.target, [law.input], None, None, law.units, 10.0, None, law.size, law.relative, 0,
            out / "laws" / law.name,
        )  # fmt: skip
        cli_fit.run(wanted, _print)


@app.command()
def fit(
    data: Annotated[Path, typer.Argument(help="A table with column names: CSV, Parquet or Excel.")],
    target: Annotated[str | None, typer.Option(help="The column to explain.")] = None,
    inputs: Annotated[
        str | None, typer.Option(help="Columns to explain it by, separated by commas (default: all others).")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(help="Column of time: find a differential equation for every other column, or for --inputs."),
    ] = None,
    trajectory: Annotated[
        str | None, typer.Option(help="With --time: the column that tells trajectories apart.")
    ] = None,
    units: Annotated[
        str | None, typer.Option(help="Units of the inputs in order, then of the target: 'm, s, kg m/s^2'.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Processor time for each formula; a law may be found much earlier.")
    ] = 10.0,
    functions: Annotated[
        str | None, typer.Option(help="Functions a formula may contain, such as 'exp,log'; 'none' for powers only.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="The largest formula wanted, in operations, names and numbers.")
    ] = None,
    relative: Annotated[bool, typer.Option("--relative", help="Count errors relative to the target.")] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same formula.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of the report (default: results/fit/NAME).")] = None,
) -> None:
    """Find the formula behind a table; Ctrl-C gives the best so far."""
    from numerate import cli_fit

    wanted = cli_fit.Wanted(
        data, target, _words(inputs), time, trajectory, units, seconds, _words(functions), size, relative, seed,
        out or Path("results") / "fit" / data.stem,
    )  # fmt: skip
    cli_fit.run(wanted, _print)


def _words(text: str | None) -> list[str] | None:
    """``a, b`` -> [a, b]; ``none`` -> []"""
    if text is None:
        return None
    return [] if text.strip() == "none" else [word.strip() for word in text.split(",") if word.strip()]


@app.command()
def report(
    ids: Ids,
    size: Annotated[
        str | None, typer.Option(help="smoke, quick or paper; by default the largest of which every run is there.")
    ] = None,
    seeds: Seeds = None,
    units: Units = None,
    ranges: Ranges = None,
    out: Out = Path("results"),
) -> None:
    """Write the report of an experiment from the runs that are finished, without training."""
    from numerate import experiments

    options = _options(size or "quick", seeds, units, ranges)
    for experiment in experiments.select(ids):
        with _named(experiment.id, ids):
            found = size or experiments.complete_size(experiment, options, out)
            shown = experiments.report(experiment, replace(options, size=found), out)
        _show(experiment.id, shown, out)


@contextmanager
def _named(experiment: str, asked: Sequence[str]) -> Iterator[None]:
    """Say which experiment it was that something is wrong with, if more than one was asked for."""
    try:
        yield
    except ValueError as error:
        raise error if asked == [experiment] else ValueError(f"{experiment}: {error}") from None


def _show(name: str, shown: Any, out: Path) -> None:
    if shown.summary is not None:
        _print(shown.summary)
    typer.echo(f"{name}: {shown.page}")
    if shown.run is not None:
        folder = shlex.quote(str(out))
        typer.echo(f"one of its runs: numerate show {shown.run.name} --out {folder}")
        typer.echo(f"all of them: numerate rows list --experiment {name} --out {folder}")


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="RUN", help="A run: the first digits of its key, '-' and the seed; run names one.")
    ],
    out: Out = Path("results"),
) -> None:
    """One run: its configuration, curves, weights and formula."""
    from numerate.report.single import show_run
    from numerate.results import Store

    with Store(out / "results.sqlite", readonly=True) as store:
        _print(show_run(store, name))


@rows_app.command("list")
def rows_list(
    experiment: Annotated[str | None, typer.Option(help="Only runs of this experiment.")] = None,
    out: Out = Path("results"),
) -> None:
    """The finished runs, a line each: the name that `numerate show` knows, labels, and how it went."""
    from numerate.published import show_range
    from numerate.report.comparison import judge
    from numerate.results import Store

    with Store(out / "results.sqlite", readonly=True) as store:
        if experiment is not None and experiment not in store.experiments():
            known = ", ".join(store.experiments()) or "none"
            raise ValueError(f"there are no runs of {experiment!r} in {store.path}; there are runs of: {known}")
        for row in store.rows(experiment, lenient=True):
            shown = {
                k: show_range(tuple(v)) if isinstance(v, list) and len(v) == 2 else v for k, v in row.labels.items()
            }
            labels = ", ".join(f"{k} {v}" for k, v in shown.items())
            result = judge(row)
            solved = f"solved at step {result.solved_at:,}" if result.solved else "not solved"
            typer.echo(f"{row.key.name:14}  {row.experiment}: {labels}, seed {row.seed}: {solved}")


@rows_app.command("export")
def rows_export(
    path: Annotated[Path, typer.Argument(help="Results file to write or add to.")],
    experiment: Annotated[str | None, typer.Option(help="Only runs of this experiment.")] = None,
    out: Out = Path("results"),
) -> None:
    """Copy finished runs into a file that can be carried to another machine."""
    from numerate.results import Store

    with Store(out / "results.sqlite", readonly=True) as store:
        typer.echo(f"{path}: {store.export(path, experiment)}")


@rows_app.command("import")
def rows_import(
    path: Annotated[Path, typer.Argument(help="Results file to read.")], out: Out = Path("results")
) -> None:
    """Add the finished runs of another results file to this one; runs already there are left as they are."""
    from numerate.results import Store

    with Store(path, readonly=True), Store(out / "results.sqlite") as store:  # no store is made for what is not there
        typer.echo(f"{out / 'results.sqlite'}: {store.import_(path)}")


def _options(size: str, seeds: int | None, units: str | None, ranges: str | None) -> Any:
    from numerate.experiments import Options
    from numerate.published import parse_range

    spans = None
    if ranges is not None:
        ranges = ranges.replace("\N{MINUS SIGN}", "-")  # as in our own texts
        one = r"\[[^][()]*[])]"
        spans = tuple(map(parse_range, re.findall(one, ranges)))
        if None in spans or not spans or re.sub(one, "", ranges).strip(" ,;"):
            raise ValueError(f"ranges are given as '[1,2) [-2,-1)', got {ranges!r}")
    chosen = None if units is None else tuple(unit.strip() for unit in units.split(",") if unit.strip())
    return Options(size, seeds, chosen, spans)  # type: ignore[arg-type]


def _print(renderable: Any) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=160)  # a file or a pipe has no width; lines are not to be cut at 80
    console.print(renderable)


class _progress:
    """A line that says how many runs are done, how many succeeded and how long it will take."""

    def __init__(self, title: str) -> None:
        from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column
        from rich.text import Text

        class Label(ProgressColumn):
            """What is trained now; all that shrinks where the terminal is narrow."""

            def render(self, task: Any) -> Text:
                return Text(f"{title}  {task.fields['label']}", no_wrap=True, overflow="ellipsis")

        whole = Column(no_wrap=True)
        self.bar = Progress(
            BarColumn(bar_width=12, table_column=whole),
            TextColumn("{task.fields[runs]}", table_column=whole),
            TimeElapsedColumn(table_column=whole),
            TextColumn("{task.fields[left]}", table_column=whole),
            Label(),
        )
        self.task = self.bar.add_task(title, total=1.0, runs="", left="", label="")

    def __enter__(self) -> Callable[[Any], None]:
        self.bar.start()
        return self.tell

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def tell(self, now: Any) -> None:
        left = "" if not now.remaining else f"{now.remaining:.0f} s left"
        of = f" of {now.trained:,} now trained" if now.trained < now.finished else ""  # the others were there before
        rate = f", {now.solved / now.trained:.0%}{of} solved" if now.trained else ""
        text = f"{now.finished:,} of {now.total:,} runs{rate}"
        self.bar.update(self.task, completed=now.fraction, runs=text, left=left, label=now.label)
