"""Networks that learn from batches: equal to plain torch, whatever runs beside them, and never lost."""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.loops.toolchain import native
from numerate.recurrent import LSTM
from numerate.results import Row, Store
from numerate.results.outcome import judge
from numerate.results.shards import cut, join
from numerate.streams import Domain, uniform
from numerate.tasks.batches import Batch
from numerate.train import Adam, NetworkTraining, Penalty, Plateau, Settings, Stop, train
from numerate.train.networks import group, grouping
from numerate.train.networks.log import Log
from numerate.train.networks.specification import NetworkRun
from numerate.train.networks.stack import Stack

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@dataclass(frozen=True)
class Sums:
    """Running sums of sequences; solved below a mean squared error."""

    length: int = 6
    batch_size: int = 4
    carries: bool = False
    limit: float = 0.0
    judged: Any = "test"
    window: int = 3
    inputs = 1
    outputs = 1
    epoch = None

    @property
    def form(self) -> Any:
        return self

    def data(self) -> dict[str, Tensor]:
        return {}

    def order(self, seed: int, epoch: int) -> dict[str, Tensor]:
        return {}

    def examples(self, uniforms: Tensor, step: Tensor) -> Batch:
        x = uniforms.view(self.length, self.batch_size, 1)
        reset = (step % 3 == 0).expand(self.batch_size) if self.carries else None
        return Batch(x, x.cumsum(0), None, reset)

    def batch(self, seed: Tensor, step: Tensor, data: Any) -> Batch:
        return self.examples(uniform(seed, Domain.TRAIN, step, self.length * self.batch_size), step)

    def evaluations(self, split: Any) -> int:
        return 2

    def evaluation(self, split: Any, index: int, data: Any) -> Batch:
        domain = Domain.TEST if split == "test" else Domain.VALIDATION
        numbers = uniform(torch.tensor(7), domain, index, self.length * self.batch_size)
        return self.examples(numbers, torch.tensor(index))

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        return F.mse_loss(prediction, batch.y)

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        count = torch.full((), float(batch.y.numel()), device=prediction.device)
        return {"error": torch.stack((F.mse_loss(prediction, batch.y) * count, count))}

    def threshold(self) -> float:
        return self.limit


class Reader(nn.Module):
    """An LSTM with a linear readout."""

    def __init__(self, inputs: int, outputs: int, hidden: int = 5, dropout: float = 0.0, carries: bool = False) -> None:
        super().__init__()
        self.layer, self.readout = LSTM(inputs, hidden), nn.Linear(hidden, outputs)
        self.dropout, self.carries = nn.Dropout(dropout), carries

    def initial_state(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.new_zeros(1, x.shape[1], self.layer.hidden_size) for _ in range(2))

    def forward(self, x: Tensor, state: Any = None) -> Any:
        y, state = self.layer(x, state)
        prediction = self.readout(self.dropout(y))
        return (prediction, state) if self.carries else prediction


def training(**changes: Any) -> NetworkTraining:
    settings: dict[str, Any] = {
        "model": Reader, "task": Sums(), "seeds": (0, 1, 2), "steps": 12, "evaluate_every": 4,
        "optimiser": Adam(1e-2, clip="norm", limit=0.5),
    }  # fmt: skip
    return NetworkTraining(**(settings | changes))


def stacks(given: NetworkTraining) -> tuple[Stack, list[Stack]]:
    """All runs in one stack, and each in one of its own."""
    runs = [NetworkRun(given, seed) for seed in given.seeds]
    return Stack(runs, "cpu"), [Stack([run], "cpu") for run in runs]


def trained(path: Path, *trainings: NetworkTraining, **options: Any) -> dict[Any, Any]:
    with Store(path / "results.sqlite") as store:
        train(trainings, store, experiment="sums", **options)
        return {row.key: row for row in store.rows()}


# ---------------------------------------------------------------- against plain torch


def _own(given: NetworkTraining, name: str) -> dict[str, Any]:
    """What torch calls the settings of this parameter, where it has its own."""
    groups = given.optimiser.groups(name for name, _ in given.build(0).named_parameters())
    return next(({"lr": g.rate, "betas": g.betas} for g in groups if name in g.names), {})


def plain_torch(given: NetworkTraining, seed: int, begun: int = 0) -> dict[str, Tensor]:
    """The same run with torch's own optimiser and clipping; drawn a second time at ``begun``, if that is not 0."""
    model, task = given.build(seed, int(begun > 0)), given.task
    chosen = [{"params": [p]} | _own(given, name) for name, p in model.named_parameters()]
    optimiser = torch.optim.Adam(chosen, given.optimiser.rate)
    state: Any = None
    for step in range(begun, given.steps):
        batch = task.batch(torch.tensor(seed), torch.tensor(step), {})
        if task.carries:
            state = None if step % 3 == 0 else tuple(entry.detach() for entry in state)
            prediction, state = model(batch.x, state)
        else:
            prediction = model(batch.x)
        optimiser.zero_grad()
        task.loss(prediction, batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), given.optimiser.limit)
        optimiser.step()
    return {name: value.detach() for name, value in model.named_parameters()}


@pytest.mark.parametrize("carries", [False, True])
def test_a_run_is_that_of_plain_torch(tmp_path: Path, carries: bool) -> None:
    given = training(model=partial(Reader, carries=carries), task=Sums(carries=carries), seeds=(3,))
    (row,) = trained(tmp_path, given).values()
    for name, expected in plain_torch(given, 3).items():
        np.testing.assert_allclose(row.weights["final"][name], expected, rtol=1e-4, atol=1e-6)


def test_weights_are_stored_unless_the_configuration_says_otherwise(tmp_path: Path) -> None:
    given = training(seeds=(3,))
    without = replace(given, keeps_weights=False)
    assert without.run_keys() == given.run_keys()  # what is stored is not what a run is
    (full,), (bare,) = (trained(tmp_path / name, one).values() for name, one in (("full", given), ("bare", without)))
    assert set(full.weights) == {"final", "best"}
    assert not bare.weights
    assert bare.scores["best_test"] == full.scores["best_test"]


def test_parameters_with_settings_of_their_own_are_torchs_parameter_groups(tmp_path: Path) -> None:
    own = {"readout.*": Settings(rate=1e-1, beta2=0.9), "layer.*": Settings(beta1=0.5)}
    given = training(optimiser=Adam(1e-2, clip="norm", limit=0.5, parameters=own))
    for row in trained(tmp_path, given).values():
        for name, expected in plain_torch(given, row.seed).items():
            np.testing.assert_allclose(row.weights["final"][name], expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="no parameter is called 'gate'"):
        trained(tmp_path, training(optimiser=Adam(parameters={"gate": Settings()})))


@pytest.mark.parametrize("carries", [False, True])
def test_stacked_runs_are_those_of_single_ones(carries: bool) -> None:
    given = training(model=partial(Reader, carries=carries, dropout=0.3), task=Sums(carries=carries))
    together, single = stacks(given)
    validation = torch.ones(3)
    losses, norms = together.train(0, 8, validation)
    for s, stack in enumerate(single):
        alone = stack.train(0, 8, validation[:1])
        torch.testing.assert_close(losses[:, s], alone[0][:, 0], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(norms[:, s], alone[1][:, 0], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(
            together.evaluate("test")["error"][s], stack.evaluate("test")["error"][0], rtol=1e-4, atol=1e-6
        )


def test_dropout_is_that_of_seed_and_update() -> None:
    given = training(model=partial(Reader, dropout=0.5), seeds=(0, 0, 1))
    losses, _ = stacks(given)[0].train(0, 4, torch.ones(3))
    assert torch.equal(losses[:, 0], losses[:, 1])
    assert not torch.equal(losses[:, 0], losses[:, 2])
    without, _ = stacks(replace(given, model=Reader))[0].train(0, 4, torch.ones(3))
    assert not torch.equal(losses, without)


# ---------------------------------------------------------------- whatever runs beside, and never lost


def test_a_run_does_not_depend_on_what_runs_beside_it(tmp_path: Path) -> None:
    many = trained(tmp_path / "many", training(), training(optimiser=Adam(3e-2, clip="norm", limit=1.0)))
    alone = trained(tmp_path / "alone", training(seeds=(1,)), threads=1)
    assert all(many[key].digest == row.digest for key, row in alone.items())


def test_a_run_that_is_cut_goes_on_to_the_same_result(tmp_path: Path) -> None:
    given = training(model=partial(Reader, carries=True), task=Sums(carries=True), steps=60, evaluate_every=20)
    whole = trained(tmp_path / "whole", given)
    calls, parts = in_portions(tmp_path / "parts.sqlite", given, seconds=1e-3)
    assert calls > 1
    assert parts == {key: row.digest for key, row in whole.items()}


def in_portions(path: Path, given: NetworkTraining, **options: Any) -> tuple[int, dict[Any, str]]:
    """Calls after which all runs are finished, and the digests of their rows."""
    with Store(path) as store:
        calls = next(calls for calls in range(1, 1000) if train([given], store, **options))
        return calls, {row.key: row.digest for row in store.rows()}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("changes", [{}, {"model": partial(Reader, carries=True), "task": Sums(carries=True)}], ids=str)
def test_a_call_without_time_makes_one_update_or_one_batch_of_an_evaluation(
    tmp_path: Path, changes: dict[str, Any], threads: int
) -> None:
    given = training(seeds=(0, 1), steps=4, evaluate_every=2, **changes)
    whole = trained(tmp_path / "whole", given)
    calls, parts = in_portions(tmp_path / "parts.sqlite", given, seconds=1e-9, threads=threads)
    assert calls == 2 * (3 * 2 * 2 + 4)  # runs · (evaluations · splits · batches + updates)
    assert parts == {key: row.digest for key, row in whole.items()}


SEEN: list[tuple[str, int]] = []


@dataclass(frozen=True)
class Noted(Sums):
    """Sums whose evaluation batches are noted."""

    def evaluation(self, split: Any, index: int, data: Any) -> Batch:
        SEEN.append((split, index))
        return super().evaluation(split, index, data)


def test_an_evaluation_that_is_cut_goes_on_at_its_next_batch(tmp_path: Path) -> None:
    SEEN.clear()
    in_portions(tmp_path / "parts.sqlite", training(task=Noted(), seeds=(0,), steps=2, evaluate_every=2), seconds=1e-9)
    expected = [(split, index) for split in ("validation", "test") for index in range(2)]
    assert [*expected, *expected] == SEEN


RESTARTED: dict[str, Any] = {"steps": 24, "evaluate_every": 4, "restart": Plateau(improvement=0.9)}


def test_a_run_that_restarts_is_from_there_that_of_another_draw_in_plain_torch(tmp_path: Path) -> None:
    given = training(seeds=(3,), **RESTARTED | {"steps": 8, "restart": Plateau(improvement=0.99)})
    (row,) = trained(tmp_path, given).values()
    assert row.scores["restarts"] == 1
    expected = plain_torch(given, 3, begun=4)
    for name, value in expected.items():
        torch.testing.assert_close(torch.from_numpy(row.weights["final"][name]), value, rtol=1e-4, atol=1e-6)


def test_restarts_do_not_depend_on_neighbours_or_interruptions(tmp_path: Path) -> None:
    given = training(**RESTARTED)
    whole, alone = trained(tmp_path / "whole", given), trained(tmp_path / "alone", training(seeds=(1,), **RESTARTED))
    assert sum(row.scores["restarts"] for row in whole.values()) > 1
    assert all(whole[key].digest == row.digest for key, row in alone.items())
    _, parts = in_portions(tmp_path / "parts.sqlite", given, seconds=1e-4)
    assert parts == {key: row.digest for key, row in whole.items()}


def test_a_run_that_is_good_enough_does_not_restart(tmp_path: Path) -> None:
    rows = trained(tmp_path, training(**RESTARTED | {"restart": Plateau(improvement=0.9, above=1e3)}))
    assert {row.scores["restarts"] for row in rows.values()} == {0.0}


def test_the_time_of_a_run_that_is_cut_is_that_of_all_its_parts(tmp_path: Path) -> None:
    given, spent = training(seeds=(0,), steps=60, evaluate_every=20), 0.0
    with Store(tmp_path / "parts.sqlite") as store:
        finished = False
        while not finished:
            finished = train([given], store, seconds=1e-3)
            if saved := [state for name in store.checkpoints() if (state := store.load_checkpoint(name))]:
                assert saved[0].meta["seconds"] > spent
                spent = saved[0].meta["seconds"]
        (row,) = store.rows()
    assert row.provenance.timing["group_seconds"] > spent > 0


def test_a_run_that_is_cut_goes_on_elsewhere_from_shards(tmp_path: Path) -> None:
    given = training(steps=40)
    with Store(tmp_path / "here.sqlite") as store:
        for _ in range(15):  # one batch for each run at least, and then an update
            assert not train([given], store, seconds=1e-9)
        store.export(tmp_path / "portion.sqlite", unfinished=True)
    shards = cut(tmp_path / "portion.sqlite", size=20_000, most=50)
    join(shards, tmp_path / "joined.sqlite")
    with Store(tmp_path / "there.sqlite") as store:
        store.import_(tmp_path / "joined.sqlite")
        (name,) = store.checkpoints()
        state = store.load_checkpoint(name)
        assert state
        assert 0 < state.meta["step"] < 40
        assert train([given], store)
        digests = {row.key: row.digest for row in store.rows()}
    assert digests == {key: row.digest for key, row in trained(tmp_path / "whole", given).items()}


@pytest.mark.parametrize(
    "changed", [{"0/parameters": np.zeros((16, 3), np.float32)}, {"0/best": None}, {"since_best": None}]
)
def test_a_saved_state_that_does_not_fit_is_told_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    monkeypatch.setattr("numerate.train.backends._told", set())
    given = training(steps=40)
    with Store(tmp_path / "cut.sqlite") as store:
        assert not train([given], store, seconds=1e-3)
        (name,) = store.checkpoints()
        state = store.load_checkpoint(name)
        assert state
        arrays = {k: v for k, v in ({**state.arrays} | changed).items() if v is not None}
        store.checkpoint(name, arrays, state.meta)
        assert train([given], store)
        digests = {row.key: row.digest for row in store.rows()}
    assert "start over" in caplog.text
    assert digests == {key: row.digest for key, row in trained(tmp_path / "whole", given).items()}


def test_a_diverging_run_is_a_result_and_leaves_its_neighbours_alone(tmp_path: Path) -> None:
    wild = training(optimiser=Adam(3e38, clip="norm", limit=0.5), seeds=(0, 1))
    rows = trained(tmp_path, training(), wild)
    ended = [rows[key] for key in wild.run_keys()]
    assert all(row.status == "diverged" and row.stopped_at == 0 and "gradient norm" in row.reason for row in ended)
    assert all(np.isfinite(value).all() for row in ended for value in row.weights["final"].values())
    assert all(not judge(row).solved and judge(row).diverged for row in ended)
    quiet = trained(tmp_path / "quiet", training())
    assert all(rows[key].digest == row.digest for key, row in quiet.items())


# ---------------------------------------------------------------- rates, penalties, ends


def test_a_rate_of_zero_changes_nothing(tmp_path: Path) -> None:
    (row, *_) = trained(tmp_path, training(schedule=torch.zeros_like, seeds=(0,))).values()
    for name, start in training().build(0).named_parameters():
        np.testing.assert_array_equal(row.weights["final"][name], start.detach())


def test_a_penalty_sees_the_network_and_its_schedule() -> None:
    def size(model: nn.Module) -> Tensor:
        return sum((p.square().sum() for p in model.parameters()), torch.zeros(()))

    late = training(seeds=(0,), penalties=(Penalty(size, lambda t: (t >= 2).double()),))
    (with_penalty,), (without,) = (stacks(given)[1] for given in (late, training(seeds=(0,))))
    norms = [stack.train(0, 4, torch.ones(1))[1][:, 0] for stack in (with_penalty, without)]
    assert torch.equal(norms[0][:2], norms[1][:2])
    assert norms[0][2] != norms[1][2]


@dataclass(frozen=True)
class Easy(Sums):
    """Solved from the first update on, by its training loss."""

    limit: float = 1e9
    judged: Any = "train"


def test_a_run_stops_once_it_is_solved(tmp_path: Path) -> None:
    (row,) = trained(tmp_path, training(task=Easy(), seeds=(0,), stop=Stop(solved=True))).values()
    assert row.scores["solved_at"] == 3
    assert row.scores["stopped_at"] == 4
    assert judge(row).solved
    assert list(row.curves["steps"]) == [0, 4]
    assert math.isnan(row.curves["train"][0])


@dataclass(frozen=True)
class HarderTest(Sums):
    """Validation is below the threshold from the first update on, the test never."""

    limit: float = 1000.0

    def evaluation(self, split: Any, index: int, data: Any) -> Batch:
        batch = super().evaluation(split, index, data)
        return batch._replace(y=batch.y + 100.0) if split == "test" else batch


def test_a_run_that_would_not_be_judged_solved_goes_on(tmp_path: Path) -> None:
    stop = Stop(solved=True)
    (row,) = trained(tmp_path / "harder", training(task=HarderTest(), seeds=(0,), stop=stop)).values()
    assert row.scores["best_validation"] < 1000.0 < row.scores["best_test"]
    assert "stopped_at" not in row.scores
    (row,) = trained(tmp_path / "even", training(task=Sums(limit=1000.0), seeds=(0,), stop=stop)).values()
    assert row.scores["stopped_at"] == 0
    assert judge(row).solved


def test_a_run_stops_when_its_patience_ends(tmp_path: Path) -> None:
    given = training(schedule=torch.zeros_like, seeds=(0,), steps=40, stop=Stop(patience=2))
    (row,) = trained(tmp_path, given).values()
    assert row.scores["stopped_at"] == 8
    assert row.scores["best_step"] == 0


def test_solved_is_the_first_window_below_the_threshold() -> None:
    log = Log(runs=2, window=3, thresholds=np.array([2.0, np.nan]))
    losses = np.array([[5, 5], [4, 1], [1, 1], [1, 1], [1, 1]], np.float32)
    for start in (0, 2):  # means of three: 10/3 at update 2, 2 at update 3, 1 at update 4
        part = losses[start : start + 2] if start == 0 else losses[start:]
        log.add(start, part, 2 * part, np.array([np.inf, 1]))
    assert log.solved[0] == 5
    assert np.isnan(log.solved[1])
    found = log.read()
    np.testing.assert_allclose(found["train"], [12 / 5, 5])
    np.testing.assert_allclose(found["gradient_peak"], [10, 10])


# ---------------------------------------------------------------- wrong settings


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"precision": "float8"}, "precision must be one of float32, bfloat16"),
        ({"seeds": (-1,)}, "seeds must be whole numbers"),
        ({"model": nn.Identity}, "no parameters to train"),
        ({"model": partial(Reader, hidden=-1)}, "cannot make a network"),
        ({"task": Sums(carries=True), "model": nn.Linear}, "needs: it carries the state"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        trained(tmp_path, training(**changes))


def test_time_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seconds must be a number above 0"):
        trained(tmp_path, training(), seconds=0)


@pytest.mark.parametrize(("count", "first"), [(1, 0), (7, 8), (1000, 4)])
def test_native_code_draws_the_numbers_of_the_stream(count: int, first: int) -> None:
    for seeds in (torch.tensor([0, 5, 2**32 - 1]), torch.tensor(7)):
        step = torch.tensor(2**32 + 3)
        expected = uniform(seeds, Domain.TRAIN, step, count, first)
        found = native.stream_uniform(seeds, int(Domain.TRAIN), step, count, first)
        assert torch.equal(found, expected)
        assert found.untyped_storage().nbytes() == 4 * expected.numel()  # none before the first: there may be millions


# ---------------------------------------------------------------- on a GPU


@on_gpu
@pytest.mark.parametrize(("count", "first"), [(1, 0), (7, 8), (1000, 4)])
def test_the_kernel_draws_the_numbers_of_the_stream(count: int, first: int) -> None:
    from numerate.loops.cuda.uniform import uniform as drawn

    seeds, step = torch.tensor([0, 5, 2**32 - 1]), torch.tensor(2**32 + 3)
    expected = uniform(seeds, Domain.TRAIN, step, count, first)
    moved = seeds.cuda(), int(Domain.TRAIN), step.cuda(), count, first
    assert torch.equal(drawn(*moved).cpu(), expected)
    each = torch.func.vmap(lambda seed: drawn(seed, *moved[1:]))(moved[0])
    assert torch.equal(each.cpu(), expected)


def by_seed(path: Path, given: NetworkTraining, device: str) -> dict[int, Row]:
    with Store(path / "results.sqlite") as store:
        train([given], store, device=device)
        return {row.seed: row for row in store.rows()}


@on_gpu
def test_a_run_on_a_gpu_does_not_depend_on_its_neighbours(tmp_path: Path) -> None:
    given = training(model=Reader, task=Sums(), seeds=(0, 1, 2, 17))
    many = by_seed(tmp_path / "many", given, "cuda")
    alone = by_seed(tmp_path / "alone", replace(given, seeds=(2,)), "cuda")
    assert alone[2].digest == many[2].digest


@on_gpu
def test_a_stack_of_several_rates_gives_the_runs_of_each_alone(tmp_path: Path) -> None:
    many = [training(model=Reader, task=Sums(), seeds=(2 * k, 2 * k + 1), optimiser=Adam(10.0**-k)) for k in (2, 3)]
    with Store(tmp_path / "many.sqlite") as store:
        train(many, store, device="cuda")
        together = {row.seed: row for row in store.rows()}
    for given in many:
        for seed, row in by_seed(tmp_path / str(given.seeds[0]), given, "cuda").items():
            assert row.digest == together[seed].digest


@on_gpu
def test_groups_side_by_side_on_a_gpu_give_the_runs_of_each_alone(tmp_path: Path) -> None:
    given = [training(model=Reader, task=Sums(), steps=40 + more) for more in range(40)]  # more than torch has streams
    together = trained(tmp_path / "together", *given, device="cuda")
    for number, one in enumerate(given):
        for key, row in trained(tmp_path / str(number), one, device="cuda").items():
            assert row.digest == together[key].digest


def test_a_stack_of_several_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, on a CPU."""
    monkeypatch.setattr(group, "together", lambda training, model, device: 4)
    given = training(model=Reader, task=Sums(), seeds=(0, 1, 2), steps=9)
    whole, calls = trained(tmp_path / "whole", given), 0
    with Store(tmp_path / "parts.sqlite") as store:
        while not train([given], store, seconds=1e-6):
            calls += 1
            assert calls < 100
        parts = {row.key: row for row in store.rows()}
    assert calls > 9
    assert {key: row.digest for key, row in parts.items()} == {key: row.digest for key, row in whole.items()}


def test_rates_share_a_stack_where_their_seeds_do_not_meet() -> None:
    def keys(*seeds: tuple[int, ...]) -> dict[Any, NetworkRun]:
        given = [training(seeds=some, optimiser=Adam(10.0**-k)) for k, some in enumerate(seeds, 2)]
        return {key: NetworkRun(one, key.seed) for one in given for key in one.run_keys()}

    def found(*seeds: tuple[int, ...]) -> list[list[int]]:
        return [[key.seed for key in stack] for stack in grouping.stacks(keys(*seeds), 16)]

    assert found((0, 1, 2), (3, 4, 5), (6, 7, 20)) == [[0, 1, 2, 3, 4, 5, 6, 7], [20]]
    assert found((0, 1), (0, 1)) == [[0, 1], [0, 1]]
    later = {key: run for key, run in keys((0, 1), (1, 2), (1,)).items() if key.seed != 0}
    assert [[key.seed for key in stack] for stack in grouping.stacks(later, 4)] == [[1, 2], [1], [1]]


@on_gpu
def test_a_run_on_a_gpu_is_that_of_the_cpu_up_to_rounding(tmp_path: Path) -> None:
    on_gpu, on_cpu = (by_seed(tmp_path / device, training(), device) for device in ("cuda", "cpu"))
    for seed, row in on_cpu.items():
        for name, value in row.weights["final"].items():
            found = torch.from_numpy(on_gpu[seed].weights["final"][name])
            torch.testing.assert_close(found, torch.from_numpy(value), rtol=1e-3, atol=1e-4)
