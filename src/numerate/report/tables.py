"""The table of a comparison: as records, as CSV, and in the terminal."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numerate.labels import spreadsheet_cell
from numerate.report import text
from numerate.report.comparison import Cell, Comparison, x_name
from numerate.report.metrics import Metric
from numerate.stats import Estimate

if TYPE_CHECKING:  # a machine that only trains has no rich
    from rich.console import Group
    from rich.text import Text

MOST_COLUMNS, MOST_IN_A_LINE = 9, 5
STYLES = {"agrees": "green", "differs": "bold red", "too few runs": "yellow"}
STYLES |= dict.fromkeys(("not published", "other setting", "not tested"), "dim")


def records(comparison: Comparison) -> list[dict[str, Any]]:
    """One flat record per cell with full digits: labels, counts, every estimate with its interval, verdict, note."""
    lines = []
    for cell in comparison.cells:
        measured = cell.measured
        record: dict[str, Any] = {"panel": cell.panel, "series": cell.series, "x": x_name(cell.x).replace("−", "-")}
        record |= {"runs": measured.n, "solved": measured.solved, "solved_snapped": measured.snapped}
        record["diverged"] = measured.diverged
        if any(other.measured.starts_solved is not None for other in comparison.cells):
            record |= {"starts": measured.starts, "starts_solved": measured.starts_solved}
        if any("success_rate" in other.theirs for other in comparison.cells):
            record["published_runs"] = cell.theirs["success_rate"].n if "success_rate" in cell.theirs else None
        record |= {"verdict": cell.verdict.word, "p": cell.verdict.p, "q": cell.verdict.q}
        for name in dict.fromkeys([*(metric.name for metric in comparison.metrics), *_names(comparison)]):
            record |= _parts(name, measured.ours.get(name))
            if any(name in other.measured.reproduced for other in comparison.cells):
                record |= _parts(f"{name}_as_published", measured.reproduced.get(name))
            if any(name in other.theirs for other in comparison.cells):
                record |= _parts(f"published_{name}", cell.published(name))
        lines.append(record | {"note": cell.note})
    return lines


def _names(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(name for cell in comparison.cells for name in (*cell.measured.ours, *cell.theirs)))


def _parts(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    estimate = estimate or Estimate(None)
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def csv_text(comparison: Comparison) -> str:
    """The records as CSV; the same comparison always gives the same text."""
    lines = records(comparison)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(lines[0]) if lines else ["panel", "series", "x"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: "" if v is None else spreadsheet_cell(v) for k, v in line.items()} for line in lines)
    return buffer.getvalue()


def write_csv(comparison: Comparison, path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(csv_text(comparison), encoding="utf-8")
    return path


def interval(estimate: Estimate | None, metric: Metric) -> str:
    """``12.4k [11.0k, 13.9k]``; a dash where there is no value, no brackets where there is no interval."""
    if estimate is None or estimate.value is None:
        return "–"
    if estimate.low is None or estimate.high is None or estimate.low == estimate.high != estimate.value:
        return estimate.bound + metric.show(estimate.value)  # some papers print [0, 0] for what they do not know
    if metric.show_interval:
        return metric.show_interval(estimate.value, estimate.low, estimate.high)
    return f"{metric.show(estimate.value)} [{metric.show(estimate.low)}, {metric.show(estimate.high)}]"


def terminal_table(comparison: Comparison) -> "Group":
    """The first measure, ours over published, for ``rich.print``: one table per panel, series down and x across."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = []
    for panel in comparison.panels:
        parts.append(Text(comparison.panel_title(panel), style="bold"))
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
        series = [name for name in comparison.series if comparison.of(panel, name)]
        cells = {(cell.series, cell.x): cell for cell in comparison.of(panel)}
        xs = comparison.xs_of(panel)
        table.add_column("", no_wrap=True)
        if len(series) == 1 and len(xs) > MOST_COLUMNS:  # a list reads better than one long line
            table.add_column(Text(series[0]), justify="right", header_style="dim", no_wrap=True)
            for x in xs:
                table.add_row(Text(x_name(x)), _pair(cells.get((series[0], x)), comparison))
        else:
            for x in xs:
                name = x_name(x) if len(xs) <= MOST_IN_A_LINE else x_name(x).replace(", ", ",\n")
                table.add_column(Text(name), justify="right", header_style="dim", no_wrap=True)
            for name in series:
                table.add_row(Text(name), *(_pair(cells.get((name, x)), comparison) for x in xs))
        parts += [table, Text("")]
    lead = comparison.lead
    legend = "ours / published " if comparison.published else ""
    single = " (of single starts)" if any(_single(cell, comparison) for cell in comparison.cells) else ""
    parts.append(Text(f"{legend}{lead.brief_title or lead.title.lower()}{single}", style="dim"))
    parts.append(Text(comparison.headline(), style="bold"))
    parts += [_difference(cell) for cell in comparison.cells if cell.verdict.word == "differs"]
    return Group(*parts)


def _pair(cell: Cell | None, comparison: Comparison) -> "Text":
    from rich.text import Text

    if cell is None:
        return Text("")
    metric = comparison.lead
    pair = [cell.measured.ours.get(metric.name)]
    if comparison.published:
        pair.append(cell.published(metric.name))
    shown = ["–" if rate is None or rate.value is None else rate.bound + metric.brief(rate.value) for rate in pair]
    return Text("/".join(shown) + _single(cell, comparison), style=STYLES.get(cell.verdict.word, ""))


def _single(cell: Cell, comparison: Comparison) -> str:
    """The success of single starts, where a run is the best of several."""
    rate = cell.measured.ours.get("single_rate") if comparison.lead.name == "success_rate" else None
    return "" if rate is None or rate.value is None else f" ({comparison.lead.brief(rate.value)})"


def _difference(cell: Cell) -> "Text":
    from rich.text import Text

    rate = cell.theirs["success_rate"]
    theirs = f"{round((rate.value or 0) * (rate.n or 0))}/{rate.n}"
    numbers = f"{cell.measured.solved}/{cell.measured.n}, published {theirs}, q {text.p_value(cell.verdict.q)}"
    line = f"  differs: {cell.series} {cell.panel} {x_name(cell.x)}: {numbers}"
    return Text(line + (f" — {cell.note}" if cell.note else ""), style="red")
