"""``numerate rows``: finished runs, listed, moved between machines, rescued, or handed to other programs."""

from pathlib import Path
from typing import Annotated

import typer

from numerate import terminal

app = typer.Typer(no_args_is_help=True, help="List finished runs, move them between machines, or rescue them.")
Out = Annotated[Path, typer.Option("--out", help="Folder of the results file and the reports.")]


@app.command("list")
def rows_list(
    experiment: Annotated[str | None, typer.Option(help="Only runs of this experiment.")] = None,
    out: Out = Path("results"),
) -> None:
    """The finished runs, a line each: the name that `numerate show` knows, labels, and how it went."""
    from numerate.report.single import label_text, outcome_text
    from numerate.results import Store

    with Store(out / "results.sqlite", readonly=True) as store:
        if experiment is not None and experiment not in store.experiments():
            known = ", ".join(store.experiments()) or "none"
            raise ValueError(f"there are no runs of {experiment!r} in {store.path}; there are runs of: {known}")
        for row in store.rows(experiment, lenient=True):
            labels = ", ".join(f"{name} {label_text(value)}" for name, value in row.labels.items())
            line = f"{row.key.name:14}  {row.experiment}: {labels}, seed {row.seed}: {outcome_text(row)}"
            terminal.echo(" ".join(line.splitlines()))


@app.command("tensorboard")
def rows_tensorboard(
    folder: Annotated[Path, typer.Argument(help="Folder for the event files: tensorboard --logdir FOLDER.")],
    experiment: Annotated[str | None, typer.Option(help="Only runs of this experiment.")] = None,
    out: Out = Path("results"),
) -> None:
    """Write the curves of finished runs as TensorBoard event files, a folder for each run."""
    from numerate.report.tensorboard import write_events
    from numerate.results import Store

    with Store(out / "results.sqlite", readonly=True) as store:
        count = write_events(store.rows(experiment, lenient=True), folder)
    terminal.echo(f"{folder}: {count:,} runs")


@app.command("export")
def rows_export(
    path: Annotated[Path, typer.Argument(help="Results file to write or add to.")],
    experiment: Annotated[str | None, typer.Option(help="Only runs of this experiment.")] = None,
    out: Out = Path("results"),
) -> None:
    """Copy finished runs into a file that can be carried to another machine."""
    from numerate.results import Store

    with Store(out / "results.sqlite", readonly=True) as store:
        terminal.echo(f"{path}: {store.export(path, experiment)}")


@app.command("import")
def rows_import(
    path: Annotated[Path, typer.Argument(help="Results file to read.")], out: Out = Path("results")
) -> None:
    """Add the finished runs of another results file to this one; runs already there are left as they are."""
    from numerate.results import Store

    with Store(path, readonly=True), Store(out / "results.sqlite") as store:  # no store is made for what is not there
        terminal.echo(f"{out / 'results.sqlite'}: {store.import_(path)}")


@app.command("rescue")
def rows_rescue(
    path: Annotated[Path, typer.Argument(help="Damaged results file; it is only read.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the results file that takes the good runs.")],
) -> None:
    """Bring every good run out of a damaged results file: cut off, with destroyed pages or a destroyed header."""
    from numerate.results import Store, StoreError, rescue

    if not path.is_file():
        raise StoreError(f"there is no results file {path}")
    with Store(out / "results.sqlite") as store:
        terminal.echo(f"{store.path}: {rescue(path, store)}")
