"""Training many runs: independent of neighbours, resumable after kill -9, divergence recorded."""

import os
import random
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from numerate.devices import CPU
from numerate.loops.toolchain import native
from numerate.report.comparison import arithmetic
from numerate.results import Store, StoreError
from numerate.tasks import PRIMER_RANGES, SingleModule
from numerate.train import Adam, Penalty, Restart, Training, train, trainer
from numerate.units import INALU, NAU, NMU, After, Ramp, penalty

BACKENDS = ["stacked", "auto"]


def trainings(
    model: Any = NMU, operation="mul", seeds=(0, 1, 2), ranges=((1.0, 2.0), (-2.0, -1.0)), **settings: Any
) -> list[Training]:
    settings = {"steps": 300, "evaluate_every": 100, "evaluation_size": 200} | settings
    return [
        Training(model, SingleModule(operation, r, PRIMER_RANGES[r]), seeds, labels={"range": r}, **settings)
        for r in ranges
    ]


def rows(tmp_path, specification, name="a", **options):
    with Store(tmp_path / f"{name}.sqlite") as store:
        train(specification, store, **options)
        return {(row.key.config, row.seed): row for row in store.rows()}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_does_not_depend_on_its_neighbours_or_their_order(tmp_path, backend):
    ramp = (Penalty(penalty, Ramp(1.0, 50, 150)),)
    everything = trainings(seeds=tuple(range(20)), penalties=ramp)
    together = rows(tmp_path, everything, "together", backend=backend)
    turned = rows(tmp_path, everything[::-1], "turned", backend=backend)
    alone = rows(tmp_path, trainings(seeds=(7,), penalties=ramp), "alone", backend=backend)
    assert {k: r.digest for k, r in together.items()} == {k: r.digest for k, r in turned.items()}
    for key, row in alone.items():
        assert together[key].digest == row.digest


def test_stacked_and_eager_give_the_same_errors(tmp_path):
    specification = trainings(NAU, "add", seeds=(0, 1))
    a = rows(tmp_path, specification, "stacked", backend="stacked")
    b = rows(tmp_path, specification, "eager", backend="eager")
    for key in a:
        np.testing.assert_allclose(a[key].curves["test"], b[key].curves["test"], rtol=1e-4)


def test_runs_already_stored_are_not_done_again(tmp_path):
    with Store(tmp_path / "a.sqlite") as store:
        train(trainings(seeds=(0,)), store)
        seen = []
        train(trainings(seeds=(0, 1)), store, progress=seen.append)
        assert seen[-1].trained == 2
        assert seen[-1].finished == seen[-1].total == 4


def test_runs_that_another_experiment_trained_count_for_both(tmp_path):
    with Store(tmp_path / "a.sqlite") as store:
        train(trainings(seeds=(0,)), store, experiment="first")
        train(trainings(seeds=(0, 1)), store, experiment="second")
        assert store.experiments() == {"first": 2, "second": 4}
        assert {row.experiment for row in store.rows("second")} == {"second"}


def test_a_checkpoint_goes_when_its_runs_are_finished_in_another_selection(tmp_path):
    def stop(progress):
        raise KeyboardInterrupt

    with Store(tmp_path / "a.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            train(trainings(seeds=(0, 1)), store, checkpoint_seconds=0, progress=stop)
        train(trainings(seeds=(0,)), store)
        assert len(store.checkpoints()) == 1
        train(trainings(seeds=(0, 1, 2)), store)
        assert store.checkpoints() == []


def test_calls_that_are_always_cut_come_to_an_end(tmp_path):
    work, calls = trainings(seeds=(0, 1)), 1
    with Store(tmp_path / "cut.sqlite") as store:
        while not train(work, store, backend="stacked", seconds=1e-6) and calls < 9:
            calls += 1
        cut = {(row.key.config, row.seed): row.digest for row in store.rows()}
    assert 1 < calls < 9
    assert cut == {key: row.digest for key, row in rows(tmp_path, work, "whole", backend="stacked").items()}


def test_only_the_unfinished_runs_of_an_experiment_are_exported_with_it(tmp_path):
    with Store(tmp_path / "here.sqlite") as store:
        for operation in ("mul", "add"):
            work = trainings(operation=operation)
            assert not train(work, store, experiment=operation, backend="stacked", seconds=1e-6)
        assert len(store.checkpoints()) == 2
        store.export(tmp_path / "mul.sqlite", "mul", unfinished=True)
        with pytest.raises(StoreError, match="has no runs of 'mul'; it has none at all"):
            store.export(tmp_path / "finished.sqlite", "mul")
        with pytest.raises(StoreError, match="has no runs of 'div'; it has add, mul"):
            store.export(tmp_path / "div.sqlite", "div", unfinished=True)
    with Store(tmp_path / "mul.sqlite") as store:
        assert len(store.checkpoints()) == 1
        assert train(trainings(operation="mul"), store, experiment="mul", backend="stacked")
        assert store.checkpoints() == []


@pytest.mark.parametrize("name", ["parameters/weight", "since", "curve/sparsity"])
def test_a_saved_state_that_does_not_fit_is_told_and_left(tmp_path, caplog, monkeypatch, name):
    monkeypatch.setattr("numerate.train.backends._told", set())
    work = trainings(seeds=(0,), ranges=((1.0, 2.0),))
    with Store(tmp_path / "cut.sqlite") as store:
        assert not train(work, store, backend="stacked", seconds=1e-6)
        (saved,) = store.checkpoints()
        state = store.load_checkpoint(saved)
        assert state
        store.checkpoint(saved, {k: v for k, v in state.arrays.items() if k != name}, state.meta)
        assert train(work, store, backend="stacked")
        (row,) = store.rows()
    assert "start over" in caplog.text
    (whole,) = rows(tmp_path, work, "whole", backend="stacked").values()
    assert row.digest == whole.digest


def test_only_what_can_be_rounded_has_scores_with_rounded_weights(tmp_path):
    short = {"seeds": (0,), "ranges": ((1.0, 2.0),), "steps": 100}
    (plain,) = rows(tmp_path, trainings(Steep, **short), "plain").values()
    (unit,) = rows(tmp_path, trainings(NMU, **short), "unit").values()
    assert {"best_validation", "best_test"} <= plain.scores.keys()
    assert {name for name in unit.scores if name not in plain.scores} == {"snapped_validation", "snapped_test"}
    assert arithmetic([plain]).snapped is None
    assert arithmetic([unit]).snapped == 0


class Steep(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.full((inputs, outputs), 0.5))

    def forward(self, x):
        return (x @ self.weight) ** 3


class Exploding(nn.Module):
    """Blows up on one of the two ranges only."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(inputs, outputs))

    def forward(self, x):
        return torch.exp((x @ self.weight) * torch.where(x[..., :1] < 0, -40.0, 0.1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_divergence_is_recorded_with_its_step_and_disturbs_nobody(tmp_path, backend):
    both = rows(tmp_path, trainings(Exploding, seeds=(0,)), "both", backend=backend)
    good = rows(tmp_path, trainings(Exploding, seeds=(0,), ranges=((1.0, 2.0),)), "good", backend=backend)
    bad = [row for row in both.values() if row.status == "diverged"]
    assert len(bad) == 1
    assert bad[0].stopped_at == 0
    assert bad[0].reason == "a parameter is no longer finite"
    assert np.isnan(bad[0].curves["test"][1:]).all()
    for key, row in good.items():
        assert both[key].digest == row.digest


@pytest.mark.parametrize("backend", BACKENDS)
def test_runs_that_do_not_improve_restart_when_the_rule_says(tmp_path, backend):
    stuck = {"optimiser": Adam(rate=1e-9), "restart": Restart(history=150, every=10, above=1.0), "steps": 600}
    found = rows(tmp_path, trainings(Steep, ranges=((10.0, 20.0),), **stuck), backend=backend)
    assert [row.scores["restarts"] for row in found.values()] == [3.0, 3.0, 3.0]  # at steps 150, 310, 470


def test_a_restart_draws_new_weights_from_the_runs_own_stream(tmp_path):
    stuck = {"optimiser": Adam(rate=1e-9), "restart": Restart(history=150, every=10, above=1.0), "steps": 200}
    work = trainings(ranges=((10.0, 20.0),), **stuck)
    found = rows(tmp_path, work, backend="stacked")
    for row in found.values():
        assert row.scores["restarts"] == 1.0
        expected = work[0].build(row.seed, restarts=1).get_parameter("weight").detach()
        np.testing.assert_allclose(row.weights["final"]["weight"], expected, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_inalu_trains_with_its_clipping_penalty_and_restarts(tmp_path, backend):
    settings = {
        "optimiser": Adam(clip="value", limit=0.1),
        "penalties": (Penalty(penalty, After(0.05, 100), below=1.0),),
        "restart": Restart(),
        "steps": 400,
    }
    found = rows(tmp_path, trainings(INALU, **settings), backend=backend)
    assert all(row.curves["validation"][-1] < row.curves["validation"][0] for row in found.values())


@pytest.mark.parametrize("clip", ["value", "norm"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_clipping_limits_the_gradient_as_torch_does(tmp_path, clip, backend):
    specification = trainings(
        Steep, seeds=(0,), ranges=((1.0, 2.0),), steps=20, evaluate_every=20,
        optimiser=Adam(rate=1e-2, eps=1.0, clip=clip, limit=0.05),
    )  # fmt: skip
    (ours,) = rows(tmp_path, specification, f"ours{backend}", backend=backend).values()
    (reference,) = rows(tmp_path, specification, "reference", backend="eager").values()
    np.testing.assert_allclose(ours.weights["final"]["weight"], reference.weights["final"]["weight"], rtol=1e-5)
    moved = np.abs(ours.weights["final"]["weight"] - 0.5).max()
    assert (
        0 < moved < 20 * 1e-2 * 0.06
    )  # with eps = 1 a step is rate * gradient / (1 + gradient), and the limit is 0.05


SCRIPT = """
import sys
from numerate.results import Store
from numerate.tasks import PRIMER_RANGES, SingleModule
from numerate.train import Penalty, Training, train
from numerate.units import NMU, Ramp, penalty
every = int(sys.argv[3])
sizes = {"steps": 50 * every, "evaluate_every": every, "evaluation_size": 500}
work = [
    Training(NMU, SingleModule("mul", r, PRIMER_RANGES[r]), tuple(range(4)),
             penalties=(Penalty(penalty, Ramp(10.0, 100, 300)),), **sizes)
    for r in ((1.0, 2.0), (-2.0, 2.0))
]
with Store(sys.argv[1]) as store:
    print("ready", flush=True)
    train(work, store, backend=sys.argv[2], checkpoint_seconds=0.05, progress=lambda p: print("tick", flush=True))
"""


@pytest.mark.timeout(280)
@pytest.mark.parametrize(("backend", "every"), [("stacked", "20"), ("emitted", "4000")])
def test_killed_at_random_moments_the_finished_table_is_identical(tmp_path, monkeypatch, backend, every):
    """Once before anything is on disk, then after a report of the first state that is, at a moment of chance."""
    if backend == "emitted" and not native.available():
        pytest.skip("no C++ compiler on this machine")
    script = tmp_path / "work.py"
    script.write_text(SCRIPT)
    chance = random.Random(0)

    def start(store):
        words = [sys.executable, script, tmp_path / store, backend, every]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    for line in ("ready", "tick"):
        process = start("killed.sqlite")
        assert process.stdout is not None
        while process.stdout.readline().strip() != line:
            assert process.poll() is None
        if line == "tick":
            time.sleep(chance.uniform(0, 0.3))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        with Store(tmp_path / "killed.sqlite", readonly=True) as store:
            assert len(store.rows()) < 8
            assert bool(store.checkpoints()) == (line == "tick")
    digests = []
    for name in ("killed.sqlite", "whole.sqlite"):
        monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / name), backend, every])
        runpy.run_path(str(script))
        with Store(tmp_path / name) as store:
            digests.append(store.digest())
    assert digests[0] == digests[1]


def test_importing_the_engine_needs_no_plotting_or_command_line():
    code = "import sys, numerate.train; print(sorted({'typer', 'matplotlib', 'scipy', 'polars'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path.cwd(), check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.skipif(not native.available(), reason="needs a C++ compiler")
def test_a_second_process_trains_without_importing_torchs_compiler(tmp_path, monkeypatch):
    """It takes longer than many a training; the first process needs it for tracing."""
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path))
    code = """if True:
        import sys
        from numerate.results import Store
        from numerate.tasks import SingleModule
        from numerate.train import Training, train
        from numerate.units import NMU
        with Store(sys.argv[1]) as store:
            train([Training(NMU, SingleModule("mul"), (0,), steps=20, evaluate_every=20, evaluation_size=100)], store)
        print("torch._dynamo" in sys.modules)
    """
    command = [sys.executable, "-c", code]
    for name in ("first", "second"):
        out = subprocess.run([*command, str(tmp_path / name)], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False", out.stderr


def test_groups_that_take_turns_give_what_they_give_one_after_the_other(tmp_path, monkeypatch):
    """As on a GPU, where several stacks are under way at once."""
    work = [
        Training(unit, SingleModule(operation), (0, 1), steps=steps, evaluate_every=20, evaluation_size=100)
        for unit, operation, steps in ((NAU, "add", 60), (NMU, "mul", 20), (NMU, "div", 100), (NAU, "sub", 40))
    ]
    digests, last = [], []
    for at_once in (1, 2, 8):
        monkeypatch.setattr(trainer, "kind_of", lambda device, n=at_once: replace(CPU, concurrent_groups=n))
        with Store(tmp_path / f"{at_once}.sqlite") as store:
            seen = []
            train(work, store, backend="stacked", progress=seen.append, checkpoint_seconds=0)
            digests.append(store.digest())
            fractions = [p.fraction for p in seen]
            assert fractions == sorted(fractions)
            last.append((seen[-1].finished, fractions[-1]))
    assert len(set(digests)) == 1
    assert last == [(8, 1.0)] * 3
