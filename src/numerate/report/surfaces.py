"""Surfaces z(x, y) as heat map and in three dimensions. Functions take an ``ax`` and return it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from numerate.report.figures import FAINT, GRID

DEPTHS = LinearSegmentedColormap.from_list(
    "depths", ["#12546b", "#2d8a83", "#8fbf9f", "#f6e3b4", "#f0a868", "#d1495b", "#7d1e4e"]
)
"""From a solution (deep) to an explosion."""
BALANCE = LinearSegmentedColormap.from_list("balance", ["#7d1e4e", "#d1495b", "#fbf3ea", "#2d8a83", "#12546b"])
"""From -1 through 0 to 1."""


def heat_map(
    ax: Axes, x: np.ndarray, y: np.ndarray, z: np.ndarray, norm: Normalize, colours: Colormap = DEPTHS
) -> Axes:
    """Colours for z with a few level lines."""
    ax.pcolormesh(x, y, z, norm=norm, cmap=colours, shading="gouraud", rasterized=True)
    levels = np.linspace(float(norm.vmin or 0), float(norm.vmax or 1), 13)[1:-1]
    ax.contour(x, y, z, levels=levels, colors="#fefeff", linewidths=0.4, alpha=0.55)
    ax.grid(False)
    ax.set_aspect("equal")
    return ax


def landscape(ax: Any, x: np.ndarray, y: np.ndarray, z: np.ndarray, norm: Normalize, colours: Colormap = DEPTHS) -> Any:
    """The same as a surface in space (``ax`` from ``projection="3d"``); what exceeds the norm is cut off."""
    height = np.clip(z, norm.vmin, norm.vmax)
    ax.plot_surface(
        *np.meshgrid(x, y),
        height,
        norm=norm,
        cmap=colours,
        rcount=90,
        ccount=90,
        lw=0,
        antialiased=False,
        rasterized=True,
    )
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.pane.set_visible(False)
        axis.line.set_color(GRID)
        axis._axinfo["grid"].update(color=GRID, linewidth=0.5)
    ax.tick_params(labelsize=7, pad=-2, colors=FAINT)
    ax.set_zlim(norm.vmin, norm.vmax)
    ax.view_init(elev=32, azim=-128)
    ax.set_box_aspect((1, 1, 0.72))
    ax.set_facecolor("none")
    return ax


def colour_bar(
    fig: Figure,
    place: tuple[float, float, float, float],
    norm: Normalize,
    colours: Colormap,
    label: str,
    ticks: Mapping[float, str],
) -> None:
    """What the colours mean; ``place``: left, bottom, width, height; ``ticks``: value -> text."""
    bar = fig.colorbar(ScalarMappable(norm, colours), cax=fig.add_axes(place), ticks=list(ticks), extend="both")
    bar.set_ticklabels(list(ticks.values()))
    bar.set_label(label)
    bar.outline.set_visible(False)  # type: ignore[operator]


def mark(ax: Axes, x: float, y: float, label: str) -> Axes:
    """A point with a few words beside it."""
    ax.plot([x], [y], "o", ms=6, mfc="none", mec="#fefeff", mew=1.6)
    ax.annotate(label, (x, y), (0, 7), textcoords="offset points", fontsize=7.5, color="#fefeff", ha="center")
    return ax
