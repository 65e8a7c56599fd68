"""One run in the terminal: what was asked, how it went, what it learnt."""

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from numerate.report import text
from numerate.report.comparison import x_name
from numerate.results import Row, Store
from numerate.results.outcome import judge

BARS = "▁▂▃▄▅▆▇█"


def find_run(store: Store, name: str) -> Row:
    """The run whose key starts with the digits before the last '-' and whose seed is the number behind it."""
    digits, _, seed = name.rpartition("-")
    if not digits or not seed.isdigit():
        raise ValueError(f"a run is named by digits of its key, '-' and its seed, such as 3f2a-0; got {name!r}")
    keys = store.keys()
    found = [key for key in keys if key.config.startswith(digits) and key.seed == int(seed)]
    if len(found) == 1:
        return store.rows(keys=found)[0]
    if not found:
        some = ", ".join(key.name for key in keys[:3])
        raise ValueError(f"there is no run {name!r} in {store.path}; there is {some}, ...")
    raise ValueError(f"{len(found)} runs are named {name!r}; give more digits of the key")


def show_run(store: Store, name: str) -> Group:
    """Labels, outcome, curves, weights and formula of one run."""
    row = find_run(store, name)
    result = judge(row)
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column()
    facts.add_row("run", f"{row.key.config}-{row.seed} of {row.experiment or 'no experiment'}")
    for label, value in row.labels.items():
        facts.add_row(str(label), x_name(tuple(value)) if isinstance(value, list) else str(value))
    for setting in ("task", "optimiser", "penalties", "restart"):
        if row.config.get(setting):
            facts.add_row(setting, brief(row.config[setting]))
    if {"steps", "batch"} <= row.config.keys():
        facts.add_row("training", f"{row.config['steps']:,} steps on {row.config['batch']} examples each")
    facts.add_row("status", row.status + (f" at step {row.stopped_at}: {row.reason}" if row.reason else ""))
    facts.add_row("solved", f"yes, first at step {result.solved_at:,}" if result.solved else "no")
    facts.add_row("threshold", text.scientific(row.threshold))
    for name_, title in (("best_test", "test error"), ("snapped_test", "with rounded weights")):
        if name_ in row.scores:
            facts.add_row(title, text.scientific(row.scores[name_]))
    for curve in ("validation", "test", "sparsity"):
        if curve in row.curves:
            values = np.asarray(row.curves[curve], float)
            ends = f"from {text.scientific(values[0])} at the start to {text.scientific(values[-1])} at the end"
            facts.add_row(curve, f"{spark(values)}  {ends}")
    for weight, values in row.weights.get("best", {}).items():
        facts.add_row(weight, np.array2string(np.asarray(values), precision=4, threshold=40, suppress_small=True))
    facts.add_row("formula", learnt_formula(row))
    around = row.circumstances
    facts.add_row("trained", f"{around.backend}, {around.created}, numerate {around.versions.get('numerate', '?')}")
    return Group(facts, Text())


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


def learnt_formula(row: Row) -> str:
    """The formula of the run's best weights; models from outside numerate are not imported for it."""
    import torch

    from numerate.units import formula

    weights = row.weights.get("best", {})
    try:
        factory, task = _factory(row.config.get("model")), _task(row.config.get("task"))
        if factory is None or task is None:
            return "(shown for numerate's own models and tasks only)"
        model = factory(task.inputs, task.outputs)
        model.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in weights.items()})
        return str(formula(model))
    except (TypeError, ValueError, RuntimeError) as error:
        return f"({error})"


def _task(described: Any) -> Any:
    """The task from its description, if it is numerate's own."""
    if isinstance(described, list):
        return tuple(_task(each) for each in described)
    if not isinstance(described, Mapping):
        return described
    made = _factory(described.get("call"))
    return made and made(**{name: _task(value) for name, value in described.items() if name != "call"})


def _factory(described: Any) -> Any:
    """The model's class or function from its description, if it is numerate's own."""
    if isinstance(described, str) and described.startswith("numerate."):
        module, _, name = described.partition(":")
        return getattr(importlib.import_module(module), name)
    if isinstance(described, Mapping) and "call" in described:
        function = _factory(described["call"])
        named = {k: v for k, v in described.items() if k not in ("call", "arguments")}
        parts = [*described.get("arguments", ()), *named.values()]
        made = [_factory(part) if _is_made(part) else part for part in parts]
        if function is None or any(part is None for part, given in zip(made, parts) if given is not None):
            return None
        places = len(parts) - len(named)
        return partial(function, *made[:places], **dict(zip(named, made[places:])))
    return None


def _is_made(described: Any) -> bool:
    """Whether a part of a description stands for a class, a function or what one makes, of numerate or not."""
    return isinstance(described, Mapping) or (isinstance(described, str) and ":" in described)
