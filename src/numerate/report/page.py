"""A page of pictures, text and tables, for what is no comparison of success rates: surfaces, shapes, closed forms."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from numerate.labels import spreadsheet_cell
from numerate.report.html import Notes, Picture, render, write_figures


@dataclass(frozen=True)
class TextTable:
    """A table of ready-made text; the first column names the lines."""

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Page:
    """What an experiment shows when it is not a :class:`numerate.report.Comparison`."""

    title: str
    headline: str = ""
    pictures: Sequence[Picture] = ()
    tables: Sequence[TextTable] = ()
    lines: Sequence[str] = ()
    """What the terminal shows before the headline."""


def page_html(page: Page, notes: Notes | None = None) -> str:
    """The whole page as text; nothing is fetched from anywhere when it is opened."""
    return render("page.html", page=page, notes=notes or Notes(), pictures=[(p, p.svg) for p in page.pictures])


def write_page(
    page: Page, folder: str | Path, notes: Notes | None = None, formats: Sequence[str] = ("png", "svg", "pdf")
) -> dict[str, Path]:
    """``report.html``, each picture in each format, and each table as CSV, into one folder; name -> path."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = {"report": folder / "report.html"}
    written["report"].write_text(page_html(page, notes), encoding="utf-8")
    written |= write_figures({picture.name: picture.figure for picture in page.pictures}, folder, formats)
    for number, table in enumerate(page.tables, 1):
        name = "table.csv" if len(page.tables) == 1 else f"table{number}.csv"
        buffer = io.StringIO()
        lines = [[spreadsheet_cell(value) for value in line] for line in (table.header, *table.lines)]
        csv.writer(buffer, lineterminator="\n").writerows(lines)
        written[name] = folder / name
        written[name].write_text(buffer.getvalue(), encoding="utf-8")
    return written
