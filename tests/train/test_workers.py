"""Runs of networks in worker processes: the same rows as in one process, whatever becomes of the processes."""

import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from test_networks import RESTARTED, Reader, Sums, training
from torch import Tensor

from numerate.results import Store
from numerate.tasks.batches import Batch
from numerate.train import Adam, NetworkTraining, train, trainer
from numerate.train.networks.workers import DataPart, Refused, Workers, _DataFile, mapped

posix = pytest.mark.skipif(os.name != "posix", reason="needs signals")


class Eager(Workers):
    """Workers that are there from the second chunk on, and count what they computed."""

    made: "Eager"

    def __init__(self, count: int) -> None:
        super().__init__(count)
        Eager.made, self.computed, self.refused = self, 0, 0

    def expect(self, seconds: float) -> None:
        if not self.processes:
            self.start()
            self.wait()

    def call(self, *arguments: Any) -> Any:
        try:
            found = super().call(*arguments)
        except Refused:
            self.refused += 1
            raise
        self.computed += 1
        return found


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "Workers", Eager)


def digests(path: Path, *trainings: NetworkTraining, **options: Any) -> dict[Any, str]:
    with Store(path) as store:
        train(trainings, store, experiment="sums", **options)
        return {row.key: row.digest for row in store.rows()}


VARIED = (
    training(steps=60, evaluate_every=20, model=partial(Reader, dropout=0.3)),
    training(steps=60, evaluate_every=20, optimiser=Adam(3e38, clip="norm", limit=0.5)),  # diverges
    training(steps=60, evaluate_every=20, model=partial(Reader, carries=True), task=Sums(carries=True)),
    training(**RESTARTED | {"steps": 60}),
)


@pytest.mark.usefixtures("eager")
def test_rows_are_those_of_one_process(tmp_path: Path) -> None:
    shared = digests(tmp_path / "shared.sqlite", *VARIED, threads=2)
    assert Eager.made.computed > 4 * 3
    assert Eager.made.refused == 0
    assert all(process.poll() is not None for process in Eager.made.processes)
    assert shared == digests(tmp_path / "alone.sqlite", *VARIED, threads=1)


@posix
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("killed", [1, 2])
def test_a_process_that_is_killed_costs_no_run(tmp_path: Path, killed: int, caplog: pytest.LogCaptureFixture) -> None:
    given = training(steps=90, evaluate_every=10, seeds=(0, 1, 2, 3, 4))
    left: list[int] = []

    def kill(_: Any) -> None:
        if Eager.made.computed > 5 and not left:
            left[:] = [process.pid for process in Eager.made.processes]
            for process in Eager.made.processes[:killed]:
                os.kill(process.pid, signal.SIGKILL)

    shared = digests(tmp_path / "shared.sqlite", given, threads=2, progress=kill)
    assert left
    assert shared == digests(tmp_path / "alone.sqlite", given, threads=1)


@pytest.mark.usefixtures("eager")
def test_a_run_that_is_cut_goes_on_with_or_without_processes(tmp_path: Path) -> None:
    given = training(model=partial(Reader, carries=True), task=Sums(carries=True), steps=60, evaluate_every=20)
    computed = 0

    def cut(now: Any) -> None:
        nonlocal computed
        if Eager.made.computed:
            computed += Eager.made.computed
            raise KeyboardInterrupt

    with Store(tmp_path / "parts.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            train([given], store, threads=2, checkpoint_seconds=0, progress=cut)
        assert all(process.poll() is not None for process in Eager.made.processes)
        (name,) = store.checkpoints()
        assert store.load_checkpoint(name)
        assert not train([given], store, threads=1, seconds=1e-3)
        train([given], store, threads=2)
        parts = {row.key: row.digest for row in store.rows()}
    assert computed
    assert Eager.made.computed
    assert parts == digests(tmp_path / "whole.sqlite", given, threads=1)


@dataclass(frozen=True)
class Torn(Sums):
    """Sums that cannot be read from one update on."""

    def batch(self, seed: Tensor, step: Tensor, data: Any) -> Batch:
        if int(step) == 33:
            raise RuntimeError("the page of update 33 is torn")
        return super().batch(seed, step, data)


@pytest.mark.usefixtures("eager")
def test_a_run_that_raises_in_a_process_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError, match="the page of update 33 is torn"):
        digests(tmp_path / "a.sqlite", training(task=Torn(), steps=60, evaluate_every=20), threads=2)
    assert Eager.made.refused
    assert not caplog.records
    assert all(process.poll() is not None for process in Eager.made.processes)


@pytest.mark.usefixtures("eager")
def test_a_network_that_no_process_can_import_is_left_to_threads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Inner(Reader):
        pass

    given = training(model=Inner, steps=60, evaluate_every=20)
    with caplog.at_level(logging.WARNING, "numerate"):
        shared = digests(tmp_path / "shared.sqlite", given, threads=2)
    assert Eager.made.computed == 0
    assert any("threads share the runs of Inner" in record.getMessage() for record in caplog.records)
    assert shared == digests(tmp_path / "alone.sqlite", given, threads=1)


@dataclass(frozen=True)
class Shifted(Sums):
    """Sums of numbers and one more, which is read from a file."""

    path: str = ""

    def data(self) -> dict[str, Tensor]:
        return {"shift": torch.tensor(float(Path(self.path).read_text()))}

    def batch(self, seed: Tensor, step: Tensor, data: Any) -> Batch:
        batch = super().batch(seed, step, data)
        return batch._replace(y=batch.y + data["shift"])


@posix
@pytest.mark.usefixtures("eager")
def test_processes_get_the_data_set_from_the_one_that_has_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shift"
    file.write_text("2.5")
    given = training(task=Shifted(path=str(file)), steps=60, evaluate_every=20)
    alone = digests(tmp_path / "alone.sqlite", given, threads=1)
    plain = Eager.start

    def start(self: Eager) -> None:
        file.unlink()
        plain(self)

    monkeypatch.setattr(Eager, "start", start)
    assert digests(tmp_path / "shared.sqlite", given, threads=2) == alone
    assert Eager.made.computed
    assert not Eager.made.refused


@posix
def test_a_data_set_is_the_same_in_the_file_of_all_processes() -> None:
    first = {"pictures": torch.randint(255, (7, 3, 5), dtype=torch.uint8), "labels": torch.arange(7)}
    second = {"kept": torch.tensor([True, False]), "none": torch.zeros(0, 4), "one": torch.tensor(1.5)}
    file = _DataFile()
    for data in (first, second, {}):
        part = file.put(data)
        assert isinstance(part, DataPart)
        found = mapped(part)
        assert found.keys() == data.keys()
        for name, value in data.items():
            torch.testing.assert_close(found[name], value, rtol=0, atol=0)
    assert file.put(dict(first)) is file.put(first)
    file.close()


SCRIPT = """
import sys
from test_networks import training
from numerate.train import train, trainer
from numerate.train.networks.workers import Workers
from numerate.train.sink import InMemory

class Told(Workers):
    def expect(self, seconds):
        if not self.processes:
            self.start()
            self.wait()
            print(*[process.pid for process in self.processes], flush=True)

trainer.Workers = Told
train([training(steps=10**6, evaluate_every=50)], InMemory(), threads=2)
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return sys.platform != "linux"
    except ProcessLookupError:
        return False


@posix
def test_processes_end_with_the_one_that_started_them_and_need_no_guarded_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_alive, pids))
        process.kill()
    end = time.monotonic() + 20
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_alive, pids))
