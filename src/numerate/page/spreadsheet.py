"""The data of a view as CSV."""

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

from numerate.labels import spreadsheet_cell
from numerate.page.cells import Data

Lines = Iterator[list[Any]]


def csv_text(view: str, data: Data) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for line in VIEWS[view](data):
        writer.writerow(["" if value is None else spreadsheet_cell(value) for value in line])
    return buffer.getvalue()


def _start(data: Data) -> Lines:
    yield ["experiment", "title", "size", "finished", "total", "verdicts"]
    for card in data["cards"]:
        words = ", ".join(f"{count} {word}" for word, count in card["verdicts"].items())
        for size in card["sizes"]:
            chosen = words if size["name"] == card["size"] else ""
            yield [card["id"], card["title"], size["name"], size["finished"], size["total"], chosen]


def _experiment(data: Data) -> Lines:
    kinds = ("ours", "again", "published")
    used = [
        (metric["name"], kind)
        for metric in data["metrics"]
        for kind in kinds
        if any(cell["values"].get(metric["name"], {}).get(kind) for cell in data["cells"])
    ]
    titles = {"ours": "", "again": "_as_published", "published": "_published"}
    columns = [f"{name}{titles[kind]}{end}" for name, kind in used for end in ("", "_low", "_high")]
    yield [
        "panel",
        data["series_title"].lower(),
        data["x_title"].lower(),
        "own",
        "runs",
        "solved",
        "diverged",
        "verdict",
        "q",
        *columns,
        "note",
    ]
    for cell in data["cells"]:
        numbers = []
        for name, kind in used:
            value = cell["values"].get(name, {}).get(kind) or {}
            numbers += [value.get(end) for end in ("value", "low", "high")]
        head = [cell[name] for name in ("panel", "series", "x")] + ["yes" if cell["own"] else ""]
        yield [
            *head,
            cell["runs"],
            cell["solved"] if cell.get("criterion", True) else None,
            cell["diverged"],
            cell["verdict"],
            cell.get("q"),
            *numbers,
            cell["note"],
        ]


def _runs(data: Data) -> Lines:
    labels = data["labels"]
    yield ["run", *labels, "seed", "outcome", "solved_at", "stopped_at", "reason", "test_error", "numerate", "backend"]
    for run in data["runs"]:
        values = [run["labels"].get(name) for name in labels]
        yield [
            run["key"],
            *values,
            *(
                run[name]
                for name in ("seed", "outcome", "solved_at", "stopped_at", "reason", "error", "version", "backend")
            ),
        ]


def _run(data: Data) -> Lines:
    names = list(data["curves"])
    yield names
    yield from (list(line) for line in zip(*(data["curves"][name] for name in names)))


def _leaderboard(data: Data) -> Lines:
    columns = [" ".join(filter(None, (column["panel"], column["x"]))) for column in data["columns"]]
    yield ["unit", "runs", "solved", "low", "high", *columns]
    for unit in data["units"]:
        total = unit["total"] or {}
        rates = [cell["value"]["value"] if cell and cell["value"] else None for cell in unit["cells"]]
        yield [unit["unit"], unit["runs"], total.get("value"), total.get("low"), total.get("high"), *rates]


def _compare(data: Data) -> Lines:
    yield ["panel", "series", "x", "a_solved", "a_runs", "b_solved", "b_runs", "difference", "verdict", "q"]
    for cell in data["cells"]:
        counts = [(side or {}).get(name) for side in (cell["a"], cell["b"]) for name in ("solved", "runs")]
        yield [cell["panel"], cell["series"], cell["x"], *counts, cell["difference"], cell["verdict"], cell["q"]]


VIEWS: dict[str, Callable[[Data], Lines]] = {
    "start": _start, "experiment": _experiment, "runs": _runs, "run": _run, "leaderboard": _leaderboard,
    "compare": _compare,
}  # fmt: skip
