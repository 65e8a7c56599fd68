"""One run in the terminal: what was asked, how it went, what it learnt; an odd one as far as it goes."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from numerate.report import text
from numerate.report.comparison import x_name
from numerate.results import Row, Store
from numerate.results.outcome import judge
from numerate.train.kinds import Importing, Maker, NotListed, foreign, make_model

BARS = "▁▂▃▄▅▆▇█"
LONGEST = 2000
"""Characters of a fact."""
MOST_WEIGHTS = 40
MOST_TERMS = 200_000
"""A formula with more terms than that takes minutes to write, and nobody reads it."""

Fact = tuple[str, str]


def find_run(store: Store, name: str) -> Row:
    """The run whose key starts with the digits before the last '-' and whose seed is the number behind it."""
    named = re.fullmatch(r"([0-9a-f]+)-([0-9]{1,18})", name)
    if named is None:
        raise ValueError(f"a run is named by digits of its key, '-' and its seed, such as 3f2a-0; got {name!r}")
    found = store.find(named[1], int(named[2]))
    if len(found) == 1:
        return store.rows(keys=found)[0]
    if found:
        raise ValueError(f"{len(found)} runs are named {name!r}; give more digits of the key")
    some = ", ".join(key.name for key in store.keys()[:3])
    raise ValueError(f"there is no run {name!r} in {store.path}; there is {some or 'none'}, ...")


def show_run(row: Row, maker: Maker) -> Group:
    """Labels, outcome, curves, weights and formula of one run; ``maker`` makes its model for the formula."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for name, value in facts(row, maker):
        table.add_row(Text(name[:LONGEST]), Text(value if len(value) <= LONGEST else f"{value[:LONGEST]} …"))
    return Group(table, Text())


def facts(row: Row, maker: Maker) -> Iterator[Fact]:
    """What there is to say of a run, name and text; a part that is not as expected says so in its place."""
    yield "run", f"{row.key.config}-{row.seed} of {row.experiment or 'no experiment'}"
    for label, value in row.labels.items():
        yield label, label_text(value)
    for setting in ("task", "optimiser", "schedule", "penalties", "restart"):
        if row.config.get(setting):
            yield setting, brief(row.config[setting])
    if {"steps", "batch"} <= row.config.keys():
        yield "training", f"{_count(row.config['steps'])} steps on {_count(row.config['batch'])} examples each"
    yield "status", row.status + (f" at step {row.stopped_at}: {row.reason}" if row.reason else "")
    yield "solved", outcome_text(row, "no", "yes", "yes, first at step")
    if "starts_solved" in row.scores:
        solved, starts, chosen = (int(row.scores.get(name, 0)) for name in ("starts_solved", "starts", "start"))
        yield "starts", f"number {chosen} of 0 to {starts - 1} is this run; {solved} of {starts} are solved"
    for score, title in (
        ("threshold", "threshold"),
        ("best_test", "test error"),
        ("snapped_test", "with rounded weights"),
    ):
        if score in row.scores:
            yield title, text.scientific(row.scores[score])
    for curve in ("validation", "test", "sparsity"):
        if curve in row.curves:
            yield curve, _attempt(lambda curve=curve: _curve(row.curves[curve]))
    weights = row.weights.get("best", {})
    for weight, values in list(weights.items())[:MOST_WEIGHTS]:
        yield weight, np.array2string(np.asarray(values), precision=4, threshold=40, suppress_small=True)
    if len(weights) > MOST_WEIGHTS:
        yield "…", f"{len(weights) - MOST_WEIGHTS:,} more"
    yield "formula", learnt_formula(row, maker)
    around = row.provenance
    yield "trained", f"{around.backend}, {around.created}, numerate {around.versions.get('numerate', '?')}"


def _attempt(show: Callable[[], str]) -> str:
    try:
        return show()
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        return f"(cannot be shown: {error})"


def outcome_text(
    row: Row, unsolved: str = "not solved", solved: str = "solved", solved_at: str = "solved at step"
) -> str:
    """Whether and when a run was solved, in these words; or why it cannot be told."""

    def told() -> str:
        result = judge(row)
        if not result.solved:
            return unsolved
        return solved if result.solved_at is None else f"{solved_at} {result.solved_at:,}"

    return _attempt(told)


def label_text(value: Any) -> str:
    """A label as tables have it: a pair of numbers is a range."""
    return x_name(tuple(value)) if isinstance(value, list | tuple) else str(value)


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _curve(values: Any) -> str:
    curve = np.atleast_1d(np.asarray(values))
    if curve.dtype.kind not in "biuf":
        raise TypeError(f"its numbers are {curve.dtype}")
    if not curve.size:
        return "(no points)"
    curve = curve.astype(float)
    ends = f"from {text.scientific(curve.flat[0])} at the start to {text.scientific(curve.flat[-1])} at the end"
    return f"{spark(curve.ravel())}  {ends}"


def brief(described: Any) -> str:
    """A part of a configuration in a line: Adam(rate=0.001, ...)."""
    if isinstance(described, Mapping):
        inside = ", ".join(f"{k}={brief(v)}" for k, v in described.items() if k != "call" and v is not None)
        return f"{str(described['call']).rpartition(':')[2]}({inside})" if "call" in described else f"{{{inside}}}"
    if isinstance(described, list):
        return f"[{', '.join(map(brief, described))}]"
    return described.rpartition(":")[2] if isinstance(described, str) else str(described)


def spark(values: np.ndarray, width: int = 40) -> str:
    """A curve as a line of bars, on a logarithmic scale; · where it is not finite."""
    places = np.linspace(0, len(values) - 1, min(width, len(values))).round().astype(int)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.maximum(values[places], 1e-30))
    finite = np.isfinite(logs)
    if not finite.any():
        return "·" * len(places)
    low, high = logs[finite].min(), logs[finite].max()
    heights = np.nan_to_num((logs - low) / (high - low or 1.0)) * (len(BARS) - 1)
    return "".join(BARS[int(h)] if ok else "·" for h, ok in zip(heights.round(), finite))


def learnt_formula(row: Row, maker: Maker) -> str:
    """The formula of the run's best weights, or why there is none."""
    found = learnt_expression(row, maker)
    return f"({found})" if isinstance(found, WithoutFormula) else str(found)


@dataclass(frozen=True)
class WithoutFormula:
    """Why a run has no formula."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def learnt_expression(row: Row, maker: Maker) -> Any:
    """The formula of the run's best weights as :func:`numerate.units.formula` gives it, or why there is none."""
    import torch

    from numerate.units import formula

    weights = row.weights.get("best", {})
    try:
        model = make_model(maker, row.config, {name: np.shape(value) for name, value in weights.items()})
        model.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in weights.items()})
        if _terms(model) > MOST_TERMS:
            return WithoutFormula("too long to be written")
        return formula(model)
    except NotListed as error:
        return WithoutFormula(f"{error}; {_offer(row, maker)}")
    except (TypeError, ValueError, RuntimeError, LookupError, ArithmeticError, AttributeError) as error:
        return WithoutFormula(str(error))


def _offer(row: Row, maker: Maker) -> str:
    """What ``--import`` would do for a model of the user's own."""
    called = list(dict.fromkeys(foreign(row.config.get("model"), maker.allowed)))
    if not called or any(foreign(row.config.get("task"), maker.allowed)):
        return "no formula is shown"
    return f"--import would {Importing(maker.allowed).says(row.config.get('model'))}"


def _terms(model: Any) -> float:
    """Terms of the formula at most: every layer of a chain writes each of its inputs out again."""
    sized = [layer for layer in model.modules() if isinstance(getattr(layer, "in_features", None), int)]
    leaves = [layer for layer in sized if not any(part in sized for part in layer.children())]
    return math.prod(float(layer.in_features) for layer in leaves)
