"""Engines of this machine: processes, submitit's executors; and what ``--on`` and ``--device`` name."""

import os
import signal
import sys
import time
from contextlib import suppress
from importlib.util import find_spec

import pytest
import torch
from cluster_samples import FakeEngine, reference, trainings

from numerate.cluster import Finished, How, LocalEngine, NoEngine, open_engine, train_on
from numerate.cluster.messages import Order
from numerate.cluster.places import gpu_environments
from numerate.cluster.slurm_engine import SlurmEngine, work_to_file
from numerate.devices import listed_devices
from numerate.results import Store, pack_rows, unpack_rows
from numerate.tasks import SingleModule
from numerate.train import Training, train
from numerate.train.plain import from_text, to_text
from numerate.train.sink import InMemory
from numerate.units import NMU

HOW = How(backend="stacked")
needs_submitit = pytest.mark.skipif(not find_spec("submitit"), reason="needs the extra numerate[cluster]")


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced_and_its_piece_done_again(tmp_path):
    work, kills = trainings(24, steps=4000, evaluate_every=1000), 0
    expected = reference(tmp_path, work)
    engine = LocalEngine([{}, {}])

    def kill(now):
        nonlocal kills
        busy = [worker.process for worker in engine.workers if worker.process and worker.number is not None]
        if busy and kills < 2:
            kills += 1
            os.kill(busy[0].pid, signal.SIGKILL)

    with Store(tmp_path / "a.sqlite") as store:
        assert train_on(engine, work, store, experiment="x", how=HOW, progress=kill) == {}
        assert store.digest() == expected
    engine.close()
    assert kills == 2
    assert all(worker.process is None or worker.process.poll() is not None for worker in engine.workers)


@pytest.mark.slow
def test_what_a_process_died_of_is_told():
    engine = LocalEngine([{}])
    engine.submit(1, b"no order")
    (lost,) = engine.as_completed(60)
    assert lost == Finished(1, None, "its worker ended with exit code 1")
    engine.submit(2, Order("", [], [], "auto", "cpu", 1, 1.0).to_bytes())
    while not engine.workers[0].process:
        time.sleep(0.01)
    engine.workers[0].process.send_signal(signal.SIGTERM)
    (lost,) = engine.as_completed(60)
    assert lost == Finished(2, None, "its worker was killed by signal 15")
    engine.close()


@needs_submitit
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # submitit forgets its processes
def test_jobs_of_submitit_give_the_same_rows_and_one_that_dies_is_done_again(tmp_path):
    work = trainings(24)
    expected = reference(tmp_path, work)
    engine = SlurmEngine(tmp_path / "jobs", workers=2, cluster="local")
    killed = []

    def kill(now):
        if not killed and engine.jobs:
            job, _ = next(iter(engine.jobs.values()))
            killed.append(job)
            job._process.kill()

    with Store(tmp_path / "a.sqlite") as store:
        assert train_on(engine, work, store, experiment="x", how=HOW, progress=kill) == {}
        assert store.digest() == expected
    assert killed
    assert len(list((tmp_path / "jobs").glob("*.reply"))) <= 1  # the killed job's own child may have answered after all
    engine.close()


@needs_submitit
def test_replies_to_a_driver_that_was_killed_are_taken_in(tmp_path):
    engine, work = SlurmEngine(tmp_path / "jobs", cluster="debug"), trainings(3)
    order = Order("x", [to_text(work[0])], [(0, 0), (0, 2)], "stacked", "cpu", 1, 60.0)
    work_to_file(order.to_bytes(), str(tmp_path / "jobs" / "one.reply"))
    (tmp_path / "jobs" / "two.reply").write_bytes(b"cut off")
    fake = FakeEngine()
    fake.leftovers = engine.leftovers
    with Store(tmp_path / "a.sqlite") as store:
        train_on(fake, work, store, experiment="x", how=HOW)
        assert len(store.keys()) == 9
    done = [(text, seed) for order in fake.orders for text, seed in order.runs]
    assert len(done) == 7
    assert not list((tmp_path / "jobs").glob("*.reply"))


@needs_submitit
def test_without_slurms_commands_the_sentence_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoEngine, match="needs Slurm's commands"):
        SlurmEngine(tmp_path)


@pytest.mark.parametrize(
    ("on", "package"), [("ray", "ray"), ("auto", "ray"), ("ray://h:1", "ray"), ("slurm", "submitit")]
)
def test_without_the_extra_one_sentence_says_how_to_get_it(tmp_path, monkeypatch, on, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(NoEngine, match=r"needs the package \w+: pip install 'numerate\[cluster\]'$"):
        open_engine(on, "cpu", None, None, tmp_path)


@pytest.mark.parametrize(
    ("on", "device", "workers", "sentence"),
    [
        ("dask", "cpu", None, "--on is ray, ray://host:port, auto or slurm, got 'dask'"),
        ("ray://", "cpu", None, "--on is ray"),
        ("ray", "cuda:0,1", None, "the engine chooses the GPUs"),
        (None, "cpu", 3, "--workers goes with --on"),
        ("ray", "cpu", 0, "workers must be at least 1, got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, on, device, workers, sentence):
    with pytest.raises(ValueError, match=sentence):
        open_engine(on, device, None, workers, tmp_path)


def test_this_process_trains_by_itself_on_a_processor(tmp_path):
    assert open_engine(None, "cpu", None, None, tmp_path) is None


@pytest.fixture
def four_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("device", "numbers"), [("cuda", "0123"), ("cuda:0,2", "02"), ("cuda:3", "3"), ("cuda: 1, 0", "10")]
)
def test_cuda_is_every_gpu_or_those_named(four_gpus, device, numbers):
    assert listed_devices(device) == [f"cuda:{number}" for number in numbers]


@pytest.mark.parametrize("device", ["cuda:4", "cuda:0,0", "cuda:a", "cuda:-1", "cuda:0,"])
def test_a_gpu_that_is_not_there_is_refused(four_gpus, device):
    with pytest.raises(ValueError, match=r"device must be cuda or some of cuda:0,1,2,3, got"):
        listed_devices(device)


def test_several_gpus_get_a_process_each_that_sees_its_own(four_gpus, tmp_path, monkeypatch):
    engine = open_engine(None, "cuda:0,2", None, None, tmp_path)
    assert isinstance(engine, LocalEngine)
    assert [worker.environment for worker in engine.workers] == [
        {"CUDA_VISIBLE_DEVICES": "0"},
        {"CUDA_VISIBLE_DEVICES": "2"},
    ]
    assert gpu_environments(["cuda:0", "cuda:1"], {"CUDA_VISIBLE_DEVICES": "GPU-a,7"}) == [
        {"CUDA_VISIBLE_DEVICES": "GPU-a"},
        {"CUDA_VISIBLE_DEVICES": "7"},
    ]


# ------------------------------------------------------------ what is sent


def test_configurations_come_back_from_text_as_they_were():
    for training in trainings(3):
        rebuilt = from_text(to_text(training), (7,))
        assert rebuilt.description() == training.description()
        assert rebuilt.labels == training.labels
        assert rebuilt.form == training.form


def test_what_a_worker_could_not_make_is_refused_before_anything_is_sent(tmp_path):
    class Inner(NMU):
        pass

    with Store(tmp_path / "a.sqlite") as store, pytest.raises(ValueError, match="Inner cannot be sent to workers"):
        train_on(FakeEngine(), [Training(Inner, SingleModule("mul"), (0,), steps=10, evaluate_every=10)], store)


def test_other_code_at_the_worker_is_refused():
    text = to_text(trainings(1)[0]).replace('"epsilon": 1e-05', '"epsilon": 1e-05, "new_option": 3')
    with pytest.raises((ValueError, TypeError)):
        from_text(text)


def test_rows_come_back_from_bytes_as_they_were():
    sink = InMemory()
    train(trainings(2), sink, experiment="x", backend="stacked")
    data = pack_rows(sink.rows)
    back = unpack_rows(data)
    assert back == sink.rows
    assert [row.provenance for row in back] == [row.provenance for row in sink.rows]
    for place in range(9, len(data), 997):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with suppress(ValueError):
            assert {row.digest for row in unpack_rows(changed)} <= {row.digest for row in back}  # provenance alone
    for other in (b"", b"no rows", data[:-1], data + b"x"):
        with pytest.raises(ValueError, match="are not rows as they were packed"):
            unpack_rows(other)
