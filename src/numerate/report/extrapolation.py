"""Error against the distance from the training range."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from numerate.report import figures


def plot_extrapolation(ax: Axes, distances: np.ndarray, curves: Mapping[str, np.ndarray]) -> Axes:
    """One thin line per run and one thick median per model; curves: name -> (runs, distances)."""
    for (name, errors), (colour, marker) in zip(curves.items(), figures.looks(list(curves)).values()):
        drawn = np.maximum(errors, 1e-8)
        ax.plot(distances, drawn.T, color=colour, linewidth=0.7, alpha=0.35)
        ax.plot(distances, np.median(drawn, 0), color=colour, marker=marker, linewidth=2, label=name)
    ax.axvspan(2**-0.5, 2**0.5, color="0.5", alpha=0.15, linewidth=0)
    ax.annotate("trained\nhere", (1, 0.98), xycoords=("data", "axes fraction"), fontsize=8, va="top", ha="center")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    figures.name_decades(ax.yaxis)
    ax.set_xticks(distances, [f"[{d:g}, {2 * d:g})" for d in distances], rotation=45, ha="right")
    ax.set_xlabel("Inputs")
    ax.set_ylabel("Mean relative error")
    ax.legend(frameon=False, loc="center")
    return ax


def extrapolation_figure(distances: np.ndarray, curves: Mapping[str, np.ndarray]) -> Figure:
    """The picture for a page."""
    with figures.style():
        fig = Figure(figsize=(7.2, 4.2), layout="constrained")
        plot_extrapolation(fig.subplots(), distances, curves)
    return fig
