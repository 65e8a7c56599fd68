"""Pictures of what gates do: forget activations and the timescales they stand for."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def per_unit(forget: Any) -> np.ndarray:
    """Average of an array or tensor over everything but the units: (T, B, H), or any shape (..., H), -> (H,)."""
    values = np.asarray(forget.detach().cpu().double() if hasattr(forget, "detach") else forget, dtype=float)
    return values.reshape(-1, values.shape[-1]).mean(0)


def _axes(ax: Axes | None) -> Axes:
    return Figure(figsize=(4.8, 3.2), layout="constrained").add_subplot() if ax is None else ax


def forget_histogram(forget: Mapping[str, Any], ax: Axes | None = None, bins: int = 40) -> Axes:
    """How many units have which mean forget activation, one outline per entry, such as before and after training.

    ``forget``: label -> array or tensor (..., H), such as ``layer.inspect(x).activations[-1]["forget"]``.
    """
    ax = _axes(ax)
    edges = np.linspace(0, 1, bins + 1)
    for label, values in forget.items():
        ax.stairs(np.histogram(per_unit(values).clip(0, 1), edges)[0], edges, label=label, linewidth=1.4)
    ax.set(xlabel="mean forget activation", ylabel="units", xlim=(0, 1))
    ax.legend(frameon=False)
    return ax


def timescale_plot(forget: Mapping[str, Any], ax: Axes | None = None, longest: float | None = None) -> Axes:
    """Share of units that remember for longer than a number of steps, 1 / (1 - forget), on two logarithmic axes.

    ``forget``: as in :func:`forget_histogram`. ``longest`` draws the length of the task. Uniform gates start on the
    line 1 / x.
    """
    ax = _axes(ax)
    for label, values in forget.items():
        steps = np.sort(1 / np.maximum(1 - per_unit(values), 1e-12))
        ax.step(steps, 1 - np.arange(len(steps)) / len(steps), where="post", label=label, linewidth=1.4)
    if longest is not None:
        ax.axvline(longest, color="0.6", linewidth=0.8, linestyle=":")
    ax.set(xscale="log", yscale="log", xlabel="timescale in steps", ylabel="share of units beyond")
    ax.legend(frameon=False)
    return ax
