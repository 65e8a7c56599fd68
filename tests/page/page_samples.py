"""Results folders to look at: runs with the keys of real experiments, and outcomes drawn from the published rates."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from numerate import published
from numerate.experiments import Options, select
from numerate.experiments.experiment import Size
from numerate.results import Provenance, Row, Store, canonical
from numerate.train import NetworkTraining, Training

HOSTILE = "<script>window.hit = 1</script>"
HOSTILE_IMAGE = '"><img src=x onerror="window.hit = 2">'
STEPS = np.arange(0, 50_001, 1000)


@lru_cache(maxsize=8)
def _described(training: "_Same") -> tuple[dict[str, Any], str, float]:
    """Configuration, as it is stored, and threshold of a training: the same for all of its seeds."""
    config = training.it.description()
    return config, canonical(config), training.it.task.threshold()


class _Same(NamedTuple):
    """A training, which is told from others by being itself."""

    it: Training

    def __hash__(self) -> int:
        return id(self.it)


def many(training: Any, seeds: int, experiment: str) -> list[Row]:
    """Two runs of three solved, all with the same two curves: made quickly."""
    kinds = [finished(training, 0, experiment, solved) for solved in (False, True, True)]
    text = kinds[0].config_text
    return [replace(kinds[seed % 3], seed=seed).spelled(text) for seed in range(seeds)]


def finished(training: Any, seed: int, experiment: str, solved: bool, **changes) -> Row:
    """A run of ``training`` that fell below its threshold at step 20,000, or never did."""
    draw = np.random.default_rng([seed, len(str(training.labels))])
    config, text, threshold = _described(_Same(training))
    test = np.where((STEPS >= 20_000) & solved, threshold / 10, threshold * 1e4) * draw.uniform(0.5, 2, len(STEPS))
    test = np.where((STEPS >= 20_000) & solved, np.minimum(test, threshold / 2), test)
    weight = np.ones((1, 2), np.float32) if solved else draw.random((1, 2)).astype(np.float32)
    row = Row(
        experiment,
        config,
        seed,
        labels=training.labels,
        curves={"steps": STEPS, "validation": test / 2, "test": test, "sparsity": np.full(len(STEPS), 1e-6)},
        scores={
            "threshold": threshold, "best_test": float(test[-1]), "best_step": 50_000.0, "best_sparsity": 1e-6,
            "solved_at": 20_000.0 if solved else float("nan"), "best_validation": float(test[-1] / 2),
        },
        weights={"best": {"weight": weight}, "final": {"weight": weight}},
        provenance=Provenance("stacked-cpu", {"numerate": "0.1.0"}, {"cores": 2}, {"seconds": 0.5}, "2026-01-01"),
    )  # fmt: skip
    return replace(row, **changes) if changes else row.spelled(text)


def table(experiment: str = "primer2022/table11", size: Size = "quick", seed: int = 0) -> Iterator[Row]:
    """All runs of a table of the Primer, solved as often as the paper says."""
    draw = np.random.default_rng(seed)
    for training in select([experiment])[0].work(Options(size=size)).trainings:
        labels = training.labels
        rate = published.one(
            paper="primer2022",
            model=labels["unit"],
            op=labels["operation"],
            range=labels["range"],
            metric="success_rate",
        )
        for run in training.seeds:
            yield finished(training, run, experiment, bool(draw.random() < (rate.value or 0)))


def own(experiment: str = "primer2022/table11", names: Sequence[str] = ("Mine", HOSTILE)) -> Iterator[Row]:
    """Runs of units that are not ours, in the setting of quick runs."""
    for training in select([experiment])[0].work(Options(size="quick", units=("NMU",))).trainings:
        for name in names:
            config = training.description() | {"model": {"path": f"mine:{name}", "source": "0123456789ab"}}
            for seed in training.seeds:
                labels = {**training.labels, "unit": name}
                yield finished(training, seed, experiment, seed < 7, config=config, labels=labels)


def strange() -> Iterator[Row]:
    """An experiment of the user's own, with labels that would rather be something else."""
    training = select(["primer2022/table11"])[0].work(Options(size="smoke", units=("NMU",))).trainings[0]
    for kind in (HOSTILE, HOSTILE_IMAGE, "=1+1"):
        for seed in range(3):
            labels = {"unit": kind, "kind\n<b>": kind}
            reason = {"status": "diverged", "stopped_at": 7, "reason": HOSTILE} if seed == 2 else {}
            config = training.description() | {"kind": kind}
            yield finished(training, seed, HOSTILE, False, config=config, labels=labels, **reason)


def folder(path: Path, rows: Iterator[Row] | Sequence[Row]) -> Path:
    with Store(path / "results.sqlite") as store:
        store.add(rows)
    return path


MEASURES = ("accuracy", "loss", "answers", "prize", "reward", "matching_2", *(f"length_{n}" for n in range(1, 21)))
"""What a task of networks may measure beside its error; a run here has all of them."""


def untrained(training: Training | NetworkTraining, seed: int, experiment: str) -> Row:
    """A row as a trainer writes it, with the weights that a run starts with and an error of 0.5 all along."""
    config = training.description()
    weights = {name: value.detach().numpy() for name, value in training.build(seed).state_dict().items()}
    steps = np.linspace(0, training.steps, 5).astype(np.int64)
    names = ["validation", "test", "sparsity"]
    if isinstance(training, NetworkTraining):
        names += ["train", "gradient_norm", "gradient_peak", *(f"{s}_{n}" for s in names[:2] for n in MEASURES)]
    scores = {f"best_{name}": 0.5 for name in names if name.startswith(("validation", "test", "sparsity"))}
    scores |= {"threshold": training.task.threshold(), "best_step": 0.0, "solved_at": float("nan"), "solved": 0.0}
    return Row(
        experiment,
        config,
        seed,
        labels=training.labels,
        curves={"steps": steps} | {name: np.full(5, 0.5, np.float32) for name in names},
        scores=scores | {"parameters": float(sum(map(np.size, weights.values())))},
        weights={"best": weights, "final": weights},
        provenance=Provenance("stacked-cpu", {"numerate": "0.1.0"}, {"cores": 2}, {"seconds": 0.5}, "2026-01-01"),
    )
