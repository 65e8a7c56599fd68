"""``numerate data``: which data sets there are, and fetching them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from numerate import terminal

if TYPE_CHECKING:
    from numerate.data import DataError, DataSet

app = typer.Typer(no_args_is_help=True, help="List or download the data sets that experiments use.")
Folder = Annotated[
    Path | None, typer.Option("--data", help="Data folder (default: $NUMERATE_DATA, or one in the user's cache).")
]


@app.command("list")
def list_(data: Folder = None) -> None:
    """List data sets, whether they are installed (every file is read and checked), and their terms of use."""
    from numerate.data import SETS, folder
    from numerate.data.files import Missing

    terminal.echo(f"data folder: {folder(data)}")
    for dataset in SETS.values():
        there, faults = _state(dataset, data)
        size = sum(file.size for file in dataset.files) / 1e6
        terminal.echo(f"{dataset.name:10}  {there:13}  {size:4.0f} MB  {dataset.title}; terms: {dataset.terms}")
        for fault in dict.fromkeys(str(fault) for fault in faults if not isinstance(fault, Missing)):
            terminal.echo(f"  {fault}")


def _state(dataset: "DataSet", data: Path | None) -> "tuple[str, list[DataError]]":
    """The state of a data set in a word or two, and what is wrong with its files."""
    from numerate.data import cifar10
    from numerate.data.files import Unreadable, faults, state

    try:
        if dataset is not cifar10.CIFAR10 or not cifar10.is_subset(data):
            found = faults(dataset, data)
            return state(dataset, found), found
        found = faults(cifar10.SUBSET, data)
        return state(cifar10.SUBSET, found) if found else "subset 10k/2k", found
    except Unreadable as error:  # the folder
        return "unreadable", [error]


@app.command()
def get(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets (see: numerate data list).")],
    data: Folder = None,
    mirror: Annotated[
        str | None,
        typer.Option(help="URL of a folder with the files, plain or gzipped, instead of the publishers' URLs."),
    ] = None,
) -> None:
    """Download data sets from their publishers; every file is verified by its SHA-256."""
    from numerate.data import SETS
    from numerate.data.download import get as fetch

    for name in names:
        if name not in SETS:
            raise ValueError(f"there is no data set {name!r}; there are {', '.join(SETS)}")
    for name in names:
        terminal.echo(f"{SETS[name].title}: terms of use: {SETS[name].terms}")
        fetch(SETS[name], data, mirror, terminal.echo)
