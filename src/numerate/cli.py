"""The command line; everything heavy is imported when a command needs it."""

import inspect
import re
import shlex
import sys
import time as clock
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from numerate import __version__, completion, terminal
from numerate.interrupts import INTERRUPTED, SENTENCE

try:
    import typer
except ModuleNotFoundError:  # the units alone need no command line
    sys.exit("the numerate command needs its extra packages: pip install 'numerate[bench]'")

from numerate import cli_data, cli_progress, cli_rows
from numerate.cli_rows import Out, named_folder

if TYPE_CHECKING:
    from numerate.experiments import Options, Work
    from numerate.experiments.experiment import ReportResult
    from numerate.published import Range
    from numerate.results import Key

app = typer.Typer(add_completion=True, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
CLOSED_PIPE = 1
"""Exit code once the reader of a pipe has gone, as typer has it."""
FAILED_RUNS = 3
"""Exit code if some runs could not be trained; the others are finished and reported."""
app.add_typer(cli_rows.app, name="rows")
app.add_typer(cli_data.app, name="data")

SizeOption = Annotated[
    str,
    typer.Option(
        help="smoke (seconds), quick (minutes) or paper (the published setting).", autocompletion=completion.sizes
    ),
]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds (default: set by --size).")]
Steps = Annotated[int | None, typer.Option(help="Updates per run (default: set by --size).")]
Units = Annotated[
    list[str] | None,
    typer.Option(
        help="Units to run, separated by commas or semicolons; may be repeated. Your own: package.module:Name.",
        autocompletion=completion.unit_names,
    ),
]
Ranges = Annotated[str | None, typer.Option(help="Training ranges to run, such as '[1,2) [-2,-1)'.")]
Tasks = Annotated[
    list[str] | None,
    typer.Option(help="Tasks to run, where an experiment has several, such as 'parity; copying'; may be repeated."),
]
Ids = Annotated[
    list[str],
    typer.Argument(
        help="Experiments (see: numerate list). primer2022 means Tables 9 to 12; other papers (nau2020, nalu2018) mean "
        "all of their experiments.",
        autocompletion=completion.experiment_ids,
    ),
]


def main() -> None:
    """Entry point: bad input is one sentence and exit code 2, never a traceback."""
    terminal.prepare()
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):  # as earlier versions of typer have it
        code = INTERRUPTED
    except BrokenPipeError:
        terminal.discard_output()
        sys.exit(CLOSED_PIPE)
    except (ValueError, RuntimeError, OSError) as error:
        if type(error).__module__.split(".")[0] not in ("builtins", "numerate"):
            raise
        _fail(_sentence(error))
    except Exception as error:
        if hasattr(error, "format_message"):  # wrong options and arguments
            _fail(error.format_message())  # type: ignore[attr-defined]
        raise
    if code == INTERRUPTED:
        terminal.echo(SENTENCE, sys.stderr)
    sys.exit(code)


def _sentence(error: Exception) -> str:
    """What happened in words, without the system's number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _fail(sentence: str) -> NoReturn:
    terminal.echo(f"numerate: {sentence}", sys.stderr)
    sys.exit(2)


def _version(asked: bool) -> None:
    if asked:
        terminal.echo(f"numerate {__version__}")
        raise typer.Exit


@app.callback()
def numerate(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Exact arithmetic and long memory for neural networks: run the papers' experiments, find formulas in data."""
    del version


@app.command("list")
def list_(
    what: Annotated[
        str, typer.Argument(help="units, tasks or experiments", autocompletion=completion.kinds)
    ] = "experiments",
) -> None:
    """List experiments, units or tasks."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    if what == "experiments":
        from numerate.experiments import experiments

        table.add_column("experiment", no_wrap=True)
        table.add_column("what it shows")
        for experiment in experiments().values():
            table.add_row(experiment.id, Text(experiment.title))
    elif what in ("units", "tasks"):
        import importlib

        module = importlib.import_module(f"numerate.{what}")
        functions = {_squeezed(name): name for name in module.__all__ if inspect.isfunction(getattr(module, name))}
        table.add_column(what[:-1], no_wrap=True)
        if what == "units":
            table.add_column("function", no_wrap=True)
        table.add_column("what it is")
        for name in sorted(module.__all__, key=str.casefold):
            exported = getattr(module, name)
            if name not in ("Unit", "Task", "BatchTask") and _is_listed(exported, what):
                function = [functions.get(_squeezed(name), "")] if what == "units" else []
                table.add_row(name, *function, Text(_plain((exported.__doc__ or "").strip().splitlines()[0])))
    else:
        raise ValueError(f"'numerate list' takes units, tasks or experiments, not {what!r}")
    _print(table)


def _plain(text: str) -> str:
    """A docstring's first line up to its formula, without mark-up."""
    text = text.partition(":math:")[0]
    return re.sub(r":\w+:`([^`]*)`|``([^`]*)``", lambda m: m[1] or m[2], text).rstrip(" .,:") + "."


def _squeezed(name: str) -> str:
    """``NACMul`` and its function ``nac_mul`` have the same."""
    return name.replace("_", "").lower()


def _is_listed(exported: Any, what: str) -> bool:
    """Units are modules; tasks are classes with examples or batches, and functions that return one."""
    from torch import nn

    if what == "units":
        return isinstance(exported, type) and issubclass(exported, nn.Module)
    kind = inspect.signature(exported, eval_str=True).return_annotation if inspect.isfunction(exported) else exported
    return hasattr(kind, "examples") or hasattr(kind, "batch")


@app.command()
def run(
    ids: Ids,
    size: SizeOption = "quick",
    seeds: Seeds = None,
    units: Units = None,
    ranges: Ranges = None,
    tasks: Tasks = None,
    steps: Steps = None,
    device: Annotated[
        str, typer.Option(help="cpu, cuda (every visible GPU) or selected GPUs, such as cuda:0,2.")
    ] = "cpu",
    backend: Annotated[
        str, typer.Option(help="auto, emitted, stacked, compiled or eager.", autocompletion=completion.backends)
    ] = "auto",
    threads: Annotated[
        int | None, typer.Option(help="Cores to use (default: all); with --on, cores per worker (default: 1).")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Stop this many seconds after the start; the same command continues from there."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(help="Train on a cluster: ray (local), ray://host:port, auto (inside a Ray job) or slurm."),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="With --on: maximum number of workers.")] = None,
    out: Out = Path("results"),
) -> None:
    """Train the missing runs of an experiment and write its report; run it again after an interruption to continue."""
    if seconds is not None and not seconds >= 0:
        raise ValueError(f"--seconds must be 0 or more, got {seconds:g}")
    end = None if seconds is None else clock.monotonic() + seconds  # imports and the list of runs take some, too
    from numerate.experiments import select
    from numerate.experiments.running import LEAST, Unfinished, is_unfinished, run_work

    options = _options(size, seeds, units, ranges, tasks, steps)
    works, trained = [], False
    for experiment in select(ids):  # bad options of any experiment are rejected before training starts
        with _named(experiment.id, ids):
            works.append(experiment.work(options))
    failed = 0
    how = {"backend": backend, "device": device, "threads": threads, "on": on, "workers": workers}
    for work in works:
        left = None if end is None else max(end - clock.monotonic(), LEAST)
        if trained and left == LEAST:
            terminal.echo(f"{work.experiment.id}: the time is up; the same command goes on with it")
            continue
        try:
            trained |= left is not None and is_unfinished(work, out)
            with cli_progress.shown(work.experiment.id) as tell:
                result = run_work(work, out, **how, progress=tell, seconds=left)
        except Unfinished as nothing:
            if seconds is None:
                raise
            terminal.echo(str(nothing))  # the time asked for is over, which is no error
            continue
        _show(work.experiment.id, result, out)
        failed += result.failed
    if failed:
        terminal.echo(f"numerate: {failed:,} of the runs could not be trained; the report says why", sys.stderr)
        raise typer.Exit(FAILED_RUNS)


@app.command()
def demo(out: Out = Path("results")) -> None:
    """Take the tour: a formula from a network, the Primer's whole benchmark (5,175 runs), three laws from data."""
    from numerate.cli_fit import need_packages

    need_packages()  # known before anything is trained
    terminal.echo("1. A formula from numbers in [1, 2), tested up to a thousand times further out")
    run(["discover"], out=out)
    terminal.echo("2. The Primer's benchmark: every unit, four operations, nine ranges, 25 seeds, 50,000 steps each")
    run(["primer2022"], size="paper", out=out)
    terminal.echo("3. Kepler's, Leavitt's and Hubble's laws, from their measurements")
    laws(out)


def laws(out: Path) -> None:
    """Three laws from tables that come with the package."""
    from numerate import cli_fit
    from numerate.discover.laws import LAWS

    for law in LAWS:
        terminal.echo(f"{law.title}: {law.about}")
        wanted = cli_fit.Wanted(
            law.path, law.target, [law.input], None, None, law.units, 10.0, None, law.size, None, 0,
            out / "laws" / law.name,
        )  # fmt: skip
        cli_fit.run(wanted, _print)


@app.command()
def fit(
    data: Annotated[Path, typer.Argument(help="A table with column names: CSV, Parquet or Excel.")],
    target: Annotated[str | None, typer.Option(help="The column to explain.")] = None,
    inputs: Annotated[
        str | None, typer.Option(help="Input columns, separated by commas (default: all others).")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(help="Time column: find a differential equation for every other column, or for --inputs."),
    ] = None,
    trajectory: Annotated[
        str | None, typer.Option(help="With --time: the column that identifies the trajectory.")
    ] = None,
    units: Annotated[
        str | None, typer.Option(help="Units of the inputs in order, then of the target: 'm, s, kg m/s^2'.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="CPU time per formula; a law may be found much earlier.")] = 10.0,
    functions: Annotated[
        str | None, typer.Option(help="Functions a formula may contain, such as 'exp,log'; 'none' for powers only.")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Largest formula allowed, in operations, names and numbers.")] = None,
    relative: Annotated[
        bool | None,
        typer.Option("--relative/--absolute", help="Measure errors relative to the target (default: as the data say)."),
    ] = None,
    robust: Annotated[bool, typer.Option("--robust", help="Look for gross outliers and leave them out.")] = False,
    seed: Annotated[
        int, typer.Option(help="Seed of the search; the same seed gives the same formula unless time runs out.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(parser=named_folder, metavar="PATH", help="Folder of the report (default: results/fit/NAME)."),
    ] = None,
) -> None:
    """Find the formula behind a table; Ctrl-C returns the best so far."""
    from numerate import cli_fit

    wanted = cli_fit.Wanted(
        data, target, _words(inputs), time, trajectory, units, seconds, _words(functions), size, relative, seed,
        out or Path("results") / "fit" / data.stem, robust,
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
        str | None,
        typer.Option(
            help="smoke, quick or paper (default: the largest completed size).",
            autocompletion=completion.sizes,
        ),
    ] = None,
    seeds: Seeds = None,
    units: Units = None,
    ranges: Ranges = None,
    tasks: Tasks = None,
    steps: Steps = None,
    out: Out = Path("results"),
) -> None:
    """Write the report of an experiment from its finished runs, without training."""
    from numerate.experiments import select
    from numerate.experiments.running import complete_work, report_work

    options = _options(size or "quick", seeds, units, ranges, tasks, steps)
    for experiment in select(ids):
        with _named(experiment.id, ids):
            work = experiment.work(options) if size else complete_work(experiment, options, out)
            result = report_work(work, out)
        _show(experiment.id, result, out)
        if units is None and tasks is None:  # some tasks have units of their own
            _tell_others(work, out)


@contextmanager
def _named(experiment: str, asked: Sequence[str]) -> Iterator[None]:
    """Name the experiment in an error message, if more than one was asked for."""
    try:
        yield
    except ValueError as error:
        raise error if asked == [experiment] else ValueError(f"{experiment}: {error}") from None


def _show(name: str, result: "ReportResult", out: Path) -> None:
    if result.summary is not None:
        _print(result.summary)
    terminal.echo(f"{name}: {result.page}")
    if result.run is not None:
        place = shlex.quote(str(out))
        terminal.echo(f"one of its runs: numerate show {result.run.name} --out {place}")
        stored = _stored_with(name, result.run, out)
        what = "all of them" if stored == name else f"it is stored with the runs of {stored}"
        terminal.echo(f"{what}: numerate rows list --experiment {shlex.quote(stored)} --out {place}")


def _stored_with(name: str, run: "Key", out: Path) -> str:
    """The experiment that lists a run: ``name`` if it can, else the one that stored it."""
    from numerate.results import Store

    with Store(out / "results.sqlite", readonly=True) as store:
        if name in store.experiments():
            return name
        return store.rows(keys=[run])[0].experiment


def _tell_others(work: "Work", out: Path) -> None:
    """Name the units that have runs of an experiment and are in its reports only if they are asked for."""
    from numerate.results import Store

    if not work.experiment.units:
        return
    with Store(out / "results.sqlite", readonly=True) as store:
        others = {unit for labels in store.labels(work.experiment.id) if isinstance(unit := labels.get("unit"), str)}
    others -= {training.labels.get("unit") for training in work.trainings}
    if others := others - {training.labels.get("unit") for training in (work.published if others else ())}:
        names = ", ".join(sorted(others))
        terminal.echo(f"other units have runs, too: {names}; --units shows them (your own: package.module:Name)")


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="RUN", help="A run, such as 7c0623076e-0 (see: numerate rows list).")],
    import_: Annotated[
        bool,
        typer.Option(
            "--import", help="Import and call your own unit to print its formula; without this, only its name is shown."
        ),
    ] = False,
    out: Out = Path("results"),
) -> None:
    """Show one run: configuration, curves, weights and formula. Code named in the file runs only with --import."""
    from numerate.experiments.kinds import shown_kinds
    from numerate.report.single import find_run, show_run
    from numerate.results import Store
    from numerate.train.kinds import Importing, Maker

    with Store(out / "results.sqlite", readonly=True) as store:
        row = find_run(store, name)
    maker = Maker(shown_kinds())
    if import_ and (what := Importing(maker.allowed).says(row.config.get("model"))):
        terminal.echo(f"as --import asks: {what}", sys.stderr)
        sys.path.append(str(Path.cwd()))  # searched last
        maker = Importing(maker.allowed)
    _print(show_run(row, maker))


@app.command()
def page(
    out: Out = Path("results"),
    with_: Annotated[
        list[Path] | None, typer.Option("--with", help="Another results folder to compare with; may be repeated.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port on 127.0.0.1 (default: 8127, or a free one).")] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Show a results folder in the browser, live; read-only, and reachable from this machine only."""
    from numerate.page.serving import serve

    serve([out, *(with_ or [])], port, browser)


@app.command()
def doctor(
    out: Out = Path("results"),
    full: Annotated[bool, typer.Option("--full", help="Also test torch.compile, which takes half a minute.")] = False,
) -> None:
    """Check the installation: versions, compiler, GPU, cache and each backend; say how to fix what is missing."""
    from numerate.doctor import examine, report

    if not report(examine(out, full), terminal.echo):
        raise typer.Exit(1)


@app.command()
def cache(
    clear: Annotated[
        bool, typer.Option("--clear", help="Delete the cache; loops are compiled again when needed.")
    ] = False,
) -> None:
    """Show where compiled loops are stored and how much space they take, or clear the cache."""
    from numerate.loops.toolchain import cache_folder

    folder = cache_folder.current()
    if clear:
        terminal.echo(f"{folder.folder}: {folder.clear() / 1e6:.1f} MB removed")
    else:
        terminal.echo(f"{folder.folder}: {folder.summary()}")


def _options(
    size: str,
    seeds: int | None,
    units: Sequence[str] | None,
    ranges: str | None,
    tasks: Sequence[str] | None,
    steps: int | None,
) -> "Options":
    from numerate.experiments import Options

    spans = None if ranges is None else _ranges(ranges)
    chosen_units, chosen_tasks = (None if names is None else tuple(names) for names in (units, tasks))
    return Options(size, seeds, chosen_units, spans, steps, chosen_tasks)  # type: ignore[arg-type]


def _ranges(text: str) -> "tuple[Range, ...]":
    """``'[1,2) [-2,-1)'`` -> ((1, 2), (-2, -1))"""
    from numerate.published import parse_range

    text = text.replace("\N{MINUS SIGN}", "-")  # as in our own texts
    one = r"\[[^][()]*[])]"
    spans = [span for part in re.findall(one, text) if (span := parse_range(part)) is not None]
    if len(spans) != len(re.findall(one, text)) or not spans or re.sub(one, "", text).strip(" ,;"):
        raise ValueError(f"ranges are given as '[1,2) [-2,-1)', got {text!r}")
    return tuple(spans)


def _print(renderable: Any) -> None:
    terminal.show(renderable)
