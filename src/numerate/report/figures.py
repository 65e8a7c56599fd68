"""Pictures of a comparison. Functions take an ``ax`` and return it; no global state of matplotlib is touched."""

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil, inf
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import TightLayoutEngine
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from numerate.report import text
from numerate.report.comparison import Cell, Comparison, x_name
from numerate.report.metrics import SUCCESS, Metric
from numerate.stats import Estimate

INK, FAINT, GRID, BAND, PAPER = "#1b1f24", "#5b6470", "#d5dae1", "#f3f5f8", "#fefefe"
PAGE = {INK: "var(--ink)", FAINT: "var(--faint)", GRID: "var(--line)", BAND: "var(--band)", PAPER: "var(--paper)"}
"""Colours that follow the page's light or dark theme once a picture is part of it."""

DIFFERS = "#d1495b"
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
    "#8c6bb1", "#999933", "#44aa99", "#a6761d", "#b0486f", "#7f8c9b",
)  # fmt: skip
MARKERS = "osD^vPX<>ph*"
KNOWN = ("NAU", "NMU", "iNALU", "NALU", "NAC+", "NAC•", "G-NALU", "NPU", "Real NPU")
"""Units that have the same colour and marker in every report."""

FEWEST_COLUMNS = 4
LONGEST_LABEL = 60
"""Characters of a label in a picture."""
LONGEST_SIDE = 26
"""Characters along a vertical axis in one line."""
MOST_IN_A_LINE = 5
"""Ranges along a map that fit without a break."""

RATES = LinearSegmentedColormap.from_list("rates", ["#fff6e3", "#f6cf8b", "#8fbf9f", "#2d8a83", "#12546b"])

STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.bottom": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "text.parse_math": False,  # a label with a dollar sign is no formula
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "svg.hashsalt": "numerate",
    "pdf.fonttype": 42,
}


@contextmanager
def style() -> Iterator[None]:
    """Our look, for the time of a ``with`` block."""
    with mpl.rc_context(STYLE):
        yield


def frame_cells(ax: Axes, units: Sequence[str], tasks: Sequence[str]) -> None:
    """The axes of a picture that has a cell at (task, unit): units down, tasks across, names at the left and above.

    Where there are few tasks, the place of others stays empty: no cell is as wide as the picture.
    """
    ax.set_xlim(-0.5, max(len(tasks), FEWEST_COLUMNS) - 0.5)
    ax.set_ylim(len(units) - 0.5, -0.5)
    ax.set_xticks(range(len(tasks)), [short(task).replace(", ", "\n") for task in tasks])
    ax.set_yticks(range(len(units)), [short(unit) for unit in units])
    ax.xaxis.tick_top()
    ax.grid(False)
    ax.spines[:].set_visible(False)


def lay_out(fig: Figure, **options: Any) -> None:
    """As ``fig.tight_layout``, which leaves an engine behind that draws the figure twice for every file."""
    TightLayoutEngine(**options).execute(fig)


def name_decades(axis: Axis) -> None:
    """Marks of a logarithmic axis as 10⁻⁵: matplotlib's own are formulas, and :data:`STYLE` reads none."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: text.power(value)))
    axis.set_minor_formatter(FuncFormatter(lambda value, _: _within_decade(axis, value)))


def _within_decade(axis: Axis, value: float) -> str:
    """The mark of a number between two decades, where the axis shows one decade at most: 2, 3 and 5 of each."""
    low, high = np.log10(np.clip(sorted(axis.get_view_interval()), 1e-300, None))
    digit = value / 10.0 ** np.floor(np.log10(value) + 1e-9)
    few = np.floor(high) - np.ceil(low) < 1
    return f"{value:g}" if few and any(abs(digit - known) < 1e-6 for known in (2, 3, 5)) else ""


def short(label: str) -> str:
    """``label``, cut where it would fill the picture."""
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"


def wrapped(title: str) -> str:
    """The title of a vertical axis, in as many lines as its height needs."""
    return "\n".join(textwrap.wrap(title, LONGEST_SIDE))


def looks(series: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Series -> (colour, marker): the same for a known unit in every picture, what is left for the others."""
    places = {name: i for i, name in enumerate(KNOWN)}
    free = [i for i in range(len(COLOURS)) if i >= len(KNOWN) or KNOWN[i] not in series]
    for rank, name in enumerate(name for name in series if name not in places):
        places[name] = (free[len(KNOWN) - len(COLOURS) :] + free)[rank % len(free)]
    return {name: (COLOURS[places[name]], MARKERS[places[name]]) for name in series}


def plot_metric(ax: Axes, comparison: Comparison, panel: str, metric: Metric) -> Axes:
    """One measure of one panel against x: ours filled, published hollow beside it, both with their intervals."""
    cells = comparison.of(panel)
    present = [name for name in comparison.series if any(cell.series == name for cell in cells)]
    look = looks(comparison.series)
    xs = comparison.xs_of(panel)
    slot = (0.3 if comparison.layout.joined else 0.86) / max(1, len(present))
    for i in range(0, len(xs), 2):
        ax.axvspan(i - 0.5, i + 0.5, color=BAND, lw=0, zorder=0)
    for rank, name in enumerate(present):
        ours, theirs = [], []
        for cell in comparison.of(panel, name):
            centre = xs.index(cell.x) + (rank - (len(present) - 1) / 2) * slot
            shift = slot * 0.22 if cell.theirs else 0.0
            ours.append((centre - shift, cell.comparable(metric.name)))
            theirs.append((centre + shift, cell.published(metric.name)))
        _marks(ax, ours, metric, *look[name], filled=True, joined=comparison.layout.joined)
        _marks(ax, theirs, metric, *look[name], filled=False)
    ax.set_xlim(-0.5, len(xs) - 0.5)
    ax.set_xticks(range(len(xs)), [short(x_name(x)) for x in xs])
    _y_axis(ax, comparison, panel, metric)
    if not _has_values(comparison, [panel], metric):
        ax.set_yticks([])
        ax.text(0.5, 0.5, "no value", ha="center", va="center", color=FAINT, transform=ax.transAxes)
    return ax


def _marks(
    ax: Axes,
    places: Sequence[tuple[float, Estimate | None]],
    metric: Metric,
    colour: str,
    marker: str,
    *,
    filled: bool,
    joined: bool = False,
) -> None:
    """Marks with their intervals, at (x, estimate); all lines in one path and all marks in one keep the file small."""
    known = [(at, estimate, estimate.value) for at, estimate in places if estimate and estimate.value is not None]
    ends = [(at, e.low, e.high) for at, e, _ in known if e.low is not None and e.high is not None]
    if ends:
        lows, highs = ([_drawable(end[side], metric) for end in ends] for side in (1, 2))
        ax.vlines([end[0] for end in ends], lows, highs, color=colour, lw=1.1, alpha=0.9 if filled else 0.55, zorder=2)
    if not known:
        return
    at, values = [place[0] for place in known], [_drawable(place[2], metric) for place in known]
    face = colour if filled else PAPER
    if joined:
        ax.plot(at, values, color=colour, lw=1.0, alpha=0.5, zorder=2)
    ax.plot(at, values, marker, ms=4.6, mfc=face, mec=colour, mew=1.0, zorder=3, clip_on=False)


def _drawable(value: float, metric: Metric) -> float:
    return metric.clipped(value) if metric.scale == "log" else value


def _y_axis(ax: Axes, comparison: Comparison, panel: str, metric: Metric) -> None:
    ax.set_ylabel(wrapped(metric.title))
    if metric.limits:
        margin = 0.04 * (metric.limits[1] - metric.limits[0])
        ax.set_ylim(metric.limits[0] - margin, metric.limits[1] + margin)
    if metric.scale == "log":
        ax.set_yscale("log")
        low, high = _extent(comparison.of(panel), metric)
        ax.set_ylim(low / 1.6, high * 1.6)
        decades = high / low > 1e3
        locator = LogLocator(subs=(1.0,) if decades else (1.0, 2.0, 5.0), numticks=12)
        if metric.floor is not None and low == metric.floor:  # the floor has a mark even where it is not round
            marks = [float(mark) for mark in locator.tick_values(low, high)]
            locator = FixedLocator([low, *(mark for mark in marks if low * (high / low) ** 0.06 < mark < 1.6 * high)])
        ax.yaxis.set_major_locator(locator)
        ax.yaxis.set_minor_locator(NullLocator())
    floor, ceiling = (-inf, inf) if metric.scale == "linear" else (metric.floor or -inf, metric.ceiling or inf)

    def tick(value: float, _: int) -> str:
        if value <= floor * 1.001:
            return "0" if value >= floor * 0.999 else ""
        return f"≥ {metric.tick(value)}" if value >= ceiling * 0.999 else metric.tick(value)

    ax.yaxis.set_major_formatter(FuncFormatter(tick))


def _extent(cells: Sequence[Cell], metric: Metric) -> tuple[float, float]:
    """Smallest and largest number drawn; an interval without an end does not stretch the axis."""
    drawn = [e for cell in cells for e in (cell.comparable(metric.name), cell.published(metric.name)) if e]
    values = [_drawable(v, metric) for e in drawn for v in (e.value, e.low, e.high) if v is not None]
    middles = [_drawable(e.value, metric) for e in drawn if e.value is not None]
    values = [v for v in values if v > 0 and v <= 20 * max(middles) and v >= min(middles) / 20]
    return (min(values), max(values)) if values else (1.0, 10.0)


def figure(comparison: Comparison, panels: Sequence[str] | None = None) -> Figure:
    """One column per panel (operation), one row per measure, against x."""
    panels = comparison.panels if panels is None else tuple(panels)
    metrics = [metric for metric in comparison.metrics if _has_values(comparison, panels, metric)]
    metrics = metrics or [comparison.lead]
    shown = [name for name in comparison.series if any(comparison.of(panel, name) for panel in panels)]
    handles = _handles(comparison, shown, any(cell.theirs for cell in comparison.cells if cell.panel in panels))
    with style():
        places = max(len(comparison.xs_of(panel)) for panel in panels)
        longest = max(len(short(x_name(x))) for panel in panels for x in comparison.xs_of(panel))
        place_width = max(0.08 * longest, 0.6 if len(shown) == 1 else 1.12, 0.14 * len(shown))
        width = 0.7 + max(5.2, place_width * places) * len(panels)
        lines = ceil(sum(0.5 + 0.075 * len(str(handle.get_label())) for handle in handles) / width)
        fig = Figure(figsize=(width, 0.7 + 0.2 * lines + 2.15 * max(len(metrics), 1.4)))
        axes = fig.subplots(len(metrics), len(panels), squeeze=False, sharex="col")
        for column, panel in enumerate(panels):
            for row, metric in enumerate(metrics):
                plot_metric(axes[row, column], comparison, panel, metric)
            axes[0, column].set_title(short(comparison.panel_title(panel)), pad=10)
            axes[-1, column].set_xlabel(comparison.x_title(panel))
        ncols = ceil(len(handles) / lines)
        fig.legend(handles=handles, loc="upper right", ncols=ncols, columnspacing=1.3, handletextpad=0.35)
        lay_out(fig, rect=(0, 0, 1, 1 - 0.2 * lines / fig.get_figheight()), h_pad=0.9)
    return fig


def _has_values(comparison: Comparison, panels: Sequence[str], metric: Metric) -> bool:
    """Whether anything of a measure would be drawn."""
    cells = [cell for panel in panels for cell in comparison.of(panel)]
    return any(e and e.value is not None for c in cells for e in (c.comparable(metric.name), c.published(metric.name)))


def _handles(comparison: Comparison, shown: Sequence[str], published: bool) -> list[Line2D]:
    look = looks(comparison.series)
    handles = [Line2D([], [], ls="", marker=look[s][1], color=look[s][0], ms=5.5, label=short(s)) for s in shown]
    handles.append(Line2D([], [], ls="", marker="o", color=FAINT, ms=5.5, label="ours"))
    if published:
        handles.append(Line2D([], [], ls="", marker="o", mfc=PAPER, mec=FAINT, ms=5.5, label="published"))
    return handles


def plot_map(ax: Axes, comparison: Comparison, panel: str, lines: Sequence[str] | None = None) -> Axes:
    """The first measure of one panel as a map: series down, x across; each place is ours and the published.

    ``lines``: the series to show, also where the panel has none of their cells, so that panels stand side by side.
    """
    cells = comparison.of(panel)
    present = lines or [name for name in comparison.series if any(cell.series == name for cell in cells)]
    xs, metric = comparison.xs_of(panel), comparison.lead
    for cell in cells:
        column, line = xs.index(cell.x), present.index(cell.series)
        width = 0.47 if comparison.published else 0.94
        _place(ax, column - 0.47, width, line, cell.measured.ours.get(metric.name), metric)
        if comparison.published:
            _place(ax, column, width, line, cell.published(metric.name), metric)
        if cell.verdict.word == "differs":
            ax.add_patch(Rectangle((column - 0.47, line - 0.42), 0.94, 0.84, fill=False, ec=DIFFERS, lw=1.8, zorder=4))
    ax.set_xlim(-0.5, len(xs) - 0.5)
    ax.set_ylim(len(present) - 0.5, -0.5)
    names = [short(x_name(x)) for x in xs]
    if len(xs) > MOST_IN_A_LINE:
        names = [name.replace(", ", ",\n") for name in names]
    ax.set_xticks(range(len(xs)), names, fontsize=7.5)
    ax.set_yticks(range(len(present)), list(map(short, present)))
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.set_title(short(comparison.panel_title(panel)))
    return ax


def _place(ax: Axes, left: float, width: float, line: int, estimate: Estimate | None, metric: Metric) -> None:
    value = None if estimate is None else estimate.value
    shade = None if value is None or metric.shade is None else metric.shade(value)
    ax.add_patch(
        Rectangle((left, line - 0.42), width, 0.84, fc=BAND if shade is None else RATES(shade), ec="none", zorder=2)
    )
    ink = FAINT if shade is None else "#1b1f25" if shade < 0.66 else "#fefeff"  # on a colour: the same in both themes
    shown = "–" if value is None or estimate is None else estimate.bound + metric.brief(value)
    ax.text(left + width / 2, line, shown, ha="center", va="center", fontsize=7, color=ink, zorder=3)


def overview(comparison: Comparison) -> Figure:
    """The first measure of every cell at a glance; a frame marks those that differ from the published ones."""
    count = len(comparison.panels)
    columns = 1 if count == 1 else 2
    rows = -(-count // columns)
    lines = [len({cell.series for cell in comparison.of(panel)}) for panel in comparison.panels]
    heights = [max(lines[i * columns : (i + 1) * columns], default=1) for i in range(rows)]
    with style():
        width = 1.2 + 0.56 * max(len(comparison.xs_of(panel)) for panel in comparison.panels)
        fig = Figure(figsize=(max(5.2, width) * columns, 0.55 + sum(0.27 * max(h, 2) + 1.05 for h in heights)))
        axes = fig.subplots(rows, columns, squeeze=False, height_ratios=[h + 1 for h in heights])
        for ax, panel in zip(axes.flat, comparison.panels):
            plot_map(ax, comparison, panel)
        for ax in list(axes.flat)[count:]:
            ax.set_visible(False)
        _map_legend(fig, comparison)
        lay_out(fig, rect=(0, 0, 1, 1 - 0.24 / fig.get_figheight()))
    return fig


def _map_legend(fig: Figure, comparison: Comparison) -> None:
    """What the two halves of a place are, and that colours mean the value."""
    shades = tuple(Patch(fc=RATES(i / 4), ec="none") for i in range(5))
    scale = "0 to 100 %" if comparison.lead is SUCCESS else f"{comparison.lead.title.lower()}, worse to better"
    keys: list[tuple[Any, str]] = [(shades, scale)]
    if comparison.published:
        halves = tuple(Patch(fc=GRID, ec=PAPER, lw=1.8) for _ in range(2))
        keys.insert(0, (halves, "left ours, right published"))
        if comparison.tested:
            keys.append((Patch(fc="none", ec=DIFFERS, lw=1.8), "differs"))
    handlers: Any = {tuple: HandlerTuple(ndivide=None, pad=0)}
    handles, labels = zip(*keys)
    look = {"columnspacing": 1.3, "handletextpad": 0.5, "handlelength": 2.4}
    fig.legend(handles, labels, loc="upper right", ncols=3, handler_map=handlers, **look)


def svg(fig: Figure, label: str) -> str:
    """A figure as an inline ``<svg>`` whose ink, lines and paper follow the page's theme; the same bytes every time."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": f"numerate {label}", "svg.fonttype": "none"}):
        fig.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    source = buffer.getvalue()
    source = source[source.index("<svg") :]
    source = re.sub(r"<metadata>.*?</metadata>", "", source, flags=re.DOTALL)
    for colour, variable in PAGE.items():
        source = source.replace(colour, variable)
    prefix = re.sub(r"\W+", "", label.title()) or "Figure"
    source = re.sub(r'(id="|xlink:href="#|url\(#)', rf"\g<1>{prefix}", source)  # several pictures share one page
    size = re.compile(r'<svg [^>]*?height="[\d.]+pt"[^>]*>', re.DOTALL)
    view = re.search(r'viewBox="([^"]+)"', source)
    assert view, "matplotlib always writes a viewBox"
    widest = f"max-width: {1.8 * float(view.group(1).split()[2]):.0f}px"  # small pictures need not fill the page
    names = f'xmlns:xlink="http://www.w3.org/1999/xlink" role="img" aria-label="{label}"'
    head = f'<svg {names} viewBox="{view.group(1)}" style="{widest}">'
    return size.sub(head, source, count=1).strip()


def save(fig: Figure, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by its ending; without dates, so the same figure gives the same bytes."""
    path = Path(path)
    metadata: dict[str, dict[str, Any]] = {
        ".png": {"Software": None},
        ".svg": {"Date": None, "Creator": None},
        ".pdf": {"CreationDate": None, "ModDate": None, "Creator": None, "Producer": None},
    }
    if path.suffix not in metadata:
        raise ValueError(
            f"a figure is written as {', '.join(metadata)}, not as {path.suffix or 'a file without ending'}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with style():
        fig.savefig(path, dpi=160, metadata=metadata[path.suffix])
    return path


def describe(panel: str, comparison: Comparison) -> str:
    """What a picture shows, for those who cannot see it."""
    title = comparison.panel_title(panel)
    measures = ", ".join(metric.title.lower() for metric in comparison.metrics)
    return text.attribute(f"{title}: {measures} against {comparison.x_title(panel).lower()}")
