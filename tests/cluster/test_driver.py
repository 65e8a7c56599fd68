"""The driver with workers that die, lie, refuse and answer twice: each run is stored once, with its one result."""

import json
import random
from dataclasses import replace
from functools import partial

import pytest
from cluster_samples import FakeEngine, names, reference, trainings

from numerate.cluster import Finished, How, Refused, train_on
from numerate.cluster import driver as driver_module
from numerate.cluster.messages import Reply, version_conflict, versions
from numerate.cluster.worker import work
from numerate.experiments.models import sequence_model
from numerate.recurrent import LSTM
from numerate.results import Store, StoreError, pack_rows, unpack_rows
from numerate.tasks import Copying
from numerate.train import NetworkTraining

HOW = How(backend="stacked")
RUNS = 120


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return reference(tmp_path_factory.mktemp("reference"), trainings())


def driven(path, engine, work=None, progress=None):
    """What failed; the digest of the store, and how many runs it has."""
    with Store(path / "a.sqlite") as store:
        failed = train_on(engine, work or trainings(), store, experiment="x", how=HOW, progress=progress)
        assert store.check() == []
        return failed, store.digest(), len(store.keys())


@pytest.mark.parametrize(("workers", "seed"), [(1, 0), (7, 1)])
def test_the_rows_are_those_of_one_process_whatever_the_workers_and_the_order(tmp_path, expected, workers, seed):
    assert driven(tmp_path, FakeEngine(workers, seed=seed)) == ({}, expected, RUNS)


def test_networks_on_sequences_are_trained_on_workers_too(tmp_path):
    task = Copying(length=12, batch_size=2, evaluation_batches=1)
    model = partial(sequence_model, layer=partial(LSTM, hidden_size=4))
    networks = [NetworkTraining(model, task, tuple(range(5)), steps=4, evaluate_every=2, labels={"unit": "LSTM"})]
    assert driven(tmp_path, FakeEngine(2), networks) == ({}, reference(tmp_path, networks), 5)


def test_lost_garbled_and_doubled_replies_change_nothing(tmp_path, expected):
    draw, seen = random.Random(3), []

    def fate(number, order):
        seen.append(number)
        happening = draw.choice(["done", "died", "garbled", "cut", "other runs"]) if len(seen) < 12 else "done"
        if happening == "died":
            return Finished(number, None, "its worker died", blameless=True)
        if happening == "done":
            return None
        data = work(order.to_bytes())
        if happening == "other runs":
            reply = Reply.from_bytes(data)
            return Finished(number, replace(reply, body=pack_rows(unpack_rows(reply.body)[1:])).to_bytes())
        return Finished(number, data[:-7] if happening == "cut" else data[:-40] + b"x" * 40)

    engine = FakeEngine(4, fate)
    whole = engine.as_completed
    engine.as_completed = lambda seconds: (each for one in whole(seconds) for each in (one, one))  # everything twice
    assert driven(tmp_path, engine) == ({}, expected, RUNS)


def test_a_poison_run_is_noted_with_its_reason_and_tried_again_by_the_next_call(tmp_path, expected):
    poison = ("NMU", "b", 17)

    def fate(number, order):
        return Finished(number, None, "its worker died") if poison in names(order) else None

    engine = FakeEngine(3, fate)
    failed, _, count = driven(tmp_path, engine)
    (key,) = failed
    assert key.seed == 17
    assert failed[key] == "given up after 3 tries: its worker died"
    assert count == RUNS - 1
    alone = [order for order in engine.orders if names(order) == [poison]]
    assert len(alone) == 3
    with Store(tmp_path / "a.sqlite", readonly=True) as store:
        assert store.failures(store.keys()) == {}
        assert store.failures([key]) == failed
    assert driven(tmp_path, FakeEngine()) == ({}, expected, RUNS)
    with Store(tmp_path / "a.sqlite", readonly=True) as store:
        assert store.failures([key]) == {}


def test_an_error_in_a_worker_is_the_reason(tmp_path):
    def fate(number, order):
        bad = ("NAU", "a", 3) in names(order)
        return Finished(number, Reply("failed", where="there", sentence="no room").to_bytes()) if bad else None

    failed, _, count = driven(tmp_path, FakeEngine(3, fate))
    assert list(failed.values()) == ["given up after 3 tries: no room (on there)"]
    assert count == RUNS - 1


def test_a_worker_of_another_version_is_left_out_and_named(tmp_path, expected, caplog):
    def fate(number, order):
        if number not in (2, 4):
            return None
        other = replace(order, versions=dict(order.versions) | {"numerate": "0.0.9"})
        return Finished(number, work(other.to_bytes(), f"node {number}"))

    engine = FakeEngine(3, fate)
    driver_module._said.clear()
    assert driven(tmp_path, engine) == ({}, expected, RUNS)
    assert engine.excluded == ["node 2", "node 4"]
    assert (
        "is not used: it has numerate 0.1.0 where the driver has 0.0.9; install the same versions there" in caplog.text
    )


def test_no_worker_of_the_right_version_is_an_error_and_keeps_what_is_done(tmp_path):
    def fate(number, order):
        if number == 1:
            return None
        sentence = version_conflict(versions(), versions() | {"torch": "2.0"})
        return Finished(number, Reply("refused", where="there", node=str(number), sentence=sentence or "").to_bytes())

    with pytest.raises(Refused, match=r"^the worker on there is not used: it has torch 2.0 where the driver has 2"):
        driven(tmp_path, FakeEngine(2, fate))
    with Store(tmp_path / "a.sqlite", readonly=True) as store:
        assert len(store.keys()) == 16


def test_long_pieces_are_sent_back_and_continued_also_by_another_driver(tmp_path, monkeypatch):
    """With no time at all, every evaluation is a stop; a driver is killed after the third."""
    monkeypatch.setattr(driver_module, "SLICE", 0.0)
    long = trainings(5, steps=80)
    expected = reference(tmp_path, long)
    steps = []

    def fate(number, order):
        steps.append(order.checkpoint[1].meta["step"] if order.checkpoint else 0)
        if len(steps) == 6:
            raise KeyboardInterrupt
        return None

    with pytest.raises(KeyboardInterrupt):
        driven(tmp_path, FakeEngine(2, fate), long)
    with Store(tmp_path / "a.sqlite") as store:
        assert store.checkpoints()
    assert driven(tmp_path, FakeEngine(2, fate), long) == ({}, expected, 15)
    assert {0, 20, 40, 60} <= set(steps)
    assert steps[6] > 0  # where the first one was
    with Store(tmp_path / "a.sqlite") as store:
        assert store.checkpoints() == []


def test_a_full_disk_stops_the_driver_in_a_sentence_and_loses_nothing(tmp_path, expected):
    with Store(tmp_path / "a.sqlite") as store:
        (pages,) = store._file.db.execute("PRAGMA page_count").fetchone()
        store._file.db.execute(f"PRAGMA max_page_count = {pages + 6}")
        with pytest.raises(StoreError, match=r"a.sqlite is full: what is stored is kept; make room and start again$"):
            train_on(FakeEngine(2), trainings(), store, experiment="x", how=HOW)
        kept = len(store.keys())
    assert 0 < kept < RUNS
    assert driven(tmp_path, FakeEngine()) == ({}, expected, RUNS)


def test_progress_tells_workers_rate_and_time_left(tmp_path):
    told = []
    driven(tmp_path, FakeEngine(3), progress=told.append)
    assert [now.finished for now in told] == sorted(now.finished for now in told)
    assert told[0].workers == 3
    assert {now.busy for now in told} >= {0, 2}
    assert told[-1].finished == told[-1].total == RUNS
    assert told[-1].fraction == 1.0
    assert told[-1].rate == pytest.approx(RUNS / told[-1].seconds)
    middle = next(now for now in told if 0.4 < now.fraction < 0.9)
    assert middle.remaining == pytest.approx(middle.seconds * (1 / middle.fraction - 1))


def test_orders_and_replies_are_plain_data(tmp_path):
    engine = FakeEngine(1)
    driven(tmp_path, engine, trainings(2))
    data = engine.orders[0].to_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert json.loads(header["trainings"][0])["description"]["model"] == "numerate.units.nmu:NMU"
    assert header["versions"] == versions()
