"""``numerate rows``: finished runs, listed, moved between machines, rescued, or handed to other programs."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from numerate import terminal

if TYPE_CHECKING:
    from numerate.results import Row, Store

app = typer.Typer(no_args_is_help=True, help="List finished runs, move them between machines, or rescue them.")


def named_folder(text: str | Path) -> Path:
    """The folder that an option names; no name is not the current folder."""
    if text == "":
        raise typer.BadParameter("name a folder; '.' is the current one")
    return Path(text)


Out = Annotated[
    Path, typer.Option("--out", parser=named_folder, metavar="PATH", help="Folder of results.sqlite and the reports.")
]


@app.command("list")
def rows_list(
    experiment: Annotated[str | None, typer.Option(help="Only runs of this experiment or paper.")] = None,
    out: Out = Path("results"),
) -> None:
    """List finished runs, one per line: name (for `numerate show`), labels and outcome."""
    from numerate.report.single import label_text, outcome_text
    from numerate.results import Store

    with Store(out / "results.sqlite", readonly=True) as store:
        for row in _rows(store, experiment):
            labels = ", ".join(
                [*(f"{name} {label_text(value)}" for name, value in row.labels.items()), f"seed {row.seed}"]
            )
            line = f"{row.key.name:14}  {row.experiment or 'no experiment'}: {labels}: {outcome_text(row)}"
            terminal.echo(" ".join(line.splitlines()))


def _rows(store: "Store", asked: str | None) -> "Iterator[Row]":
    """The runs of an experiment, of all experiments of a paper, or all."""
    if asked is None:
        yield from store.rows(lenient=True)
        return
    known = store.experiments()
    chosen = [asked] if asked in known else [name for name in known if name.startswith(f"{asked}/")]
    if not chosen:
        there = ", ".join(known) or "none"
        raise ValueError(f"there are no runs of {asked!r} in {store.path}; there are runs of: {there}")
    for name in chosen:
        yield from store.rows(name, lenient=True)


@app.command("tensorboard")
def rows_tensorboard(
    folder: Annotated[Path, typer.Argument(help="Folder for the event files: tensorboard --logdir FOLDER.")],
    experiment: Annotated[str | None, typer.Option(help="Only runs of this experiment or paper.")] = None,
    out: Out = Path("results"),
) -> None:
    """Write the curves of finished runs as TensorBoard event files, one folder per run."""
    from numerate.report.tensorboard import write_events
    from numerate.results import Store

    with Store(out / "results.sqlite", readonly=True) as store:
        count = write_events(_rows(store, experiment), folder)
    terminal.echo(f"{folder}: {count:,} runs")


@app.command("export")
def rows_export(
    path: Annotated[Path, typer.Argument(help="Results file to write or add to; with .gz, a new compressed one.")],
    experiment: Annotated[str | None, typer.Option(help="Only runs of this experiment.")] = None,
    unfinished: Annotated[
        bool,
        typer.Option("--unfinished", help="Include the state of unfinished runs, so they can be continued elsewhere."),
    ] = False,
    shard_size: Annotated[
        float | None,
        typer.Option("--shard-size", help="Split the file into shards of at most this many MiB, such as 15."),
    ] = None,
    shards: Annotated[int, typer.Option(help="With --shard-size: maximum number of shards.")] = 8,
    weights: Annotated[bool, typer.Option(help="Include the weights; without them, files are small.")] = True,
    out: Out = Path("results"),
) -> None:
    """Copy finished runs into a file that you can take to another machine."""
    from numerate.results import Store
    from numerate.results.exporting import check_new, export
    from numerate.results.shards import MIB, check_size, cut

    if shard_size is not None:
        check_size(shard_size * MIB)
    check_new(path, whole=shard_size is not None)
    with Store(out / "results.sqlite", readonly=True) as store:
        added = export(store, path, experiment, unfinished=unfinished, weights=weights)
    terminal.echo(f"{path}: {added}")
    if shard_size is not None:
        for shard in cut(path, int(shard_size * MIB), shards):
            terminal.echo(f"{shard}: {shard.stat().st_size / MIB:.1f} MiB")


@app.command("import")
def rows_import(
    paths: Annotated[list[Path], typer.Argument(help="Results files to read, or all shards of one.")],
    out: Out = Path("results"),
) -> None:
    """Add the runs of other results files to this one; existing runs are kept."""
    from numerate.results import Store
    from numerate.results.gzipped import expand, is_gzipped
    from numerate.results.shards import join, read_header

    if gzipped := [path for path in paths if path.is_file() and is_gzipped(path)]:
        with TemporaryDirectory() as folder:
            expanded = {path: Path(folder) / str(number) / path.stem for number, path in enumerate(gzipped)}
            for path, target in expanded.items():
                target.parent.mkdir()
                expand(path, target)
            return rows_import([expanded.get(path, path) for path in paths], out)
    if any(path.is_file() and read_header(path) for path in paths):
        with TemporaryDirectory() as folder:
            join(paths, Path(folder) / "joined.sqlite")
            return rows_import([Path(folder) / "joined.sqlite"], out)
    for path in paths:
        with Store(path, readonly=True):  # no store is made for what is not there
            pass
    with Store(out / "results.sqlite") as store:
        for path in paths:
            terminal.echo(f"{out / 'results.sqlite'}: {store.import_(path)}")


@app.command("rescue")
def rows_rescue(
    path: Annotated[Path, typer.Argument(help="Damaged results file; it is not changed.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", parser=named_folder, metavar="PATH", help="Another folder, for a results file with the good runs."
        ),
    ],
) -> None:
    """Recover every good run from a damaged results file: truncated, or with destroyed pages or header."""
    from numerate.results import Store, StoreError, rescue

    if not path.is_file():
        raise StoreError(f"there is no results file {path}")
    target = out / "results.sqlite"
    if target.is_file() and target.samefile(path):
        raise StoreError(f"--out must be another folder: {target} is the file to be rescued")
    with Store(target) as store:
        terminal.echo(f"{store.path}: {rescue(path, store)}")
