"""``numerate run --on`` as it is typed: the same table, exit codes, and what the report says of failed runs."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from cluster_samples import FakeEngine

from numerate.cli import main
from numerate.cluster import Finished
from numerate.experiments import Options, running
from numerate.results import Store

COMMAND = [
    "run",
    "primer2022/table11",
    "--size",
    "smoke",
    "--units",
    "NMU",
    "--seeds",
    "20",
    "--ranges",
    "[1,2) [-2,-1)",
]
REPORT = Path("primer2022", "table11")


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def numerate(capfd, monkeypatch):
    """Call the command in this process, with an engine in place of a cluster."""

    def call(*words, engine=None):
        monkeypatch.setattr(sys, "argv", ["numerate", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "100")
        if engine is not None:
            monkeypatch.setattr(running, "open_engine", lambda *_: engine)
        try:
            code = main() or 0
        except SystemExit as end:
            code = int(end.code or 0)
        return Done(code, *capfd.readouterr())

    return call


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The table of one process."""
    out = tmp_path_factory.mktemp("alone")
    running.run("primer2022/table11", Options("smoke", 20, ("NMU",), ((1.0, 2.0), (-2.0, -1.0))), out)
    return out


def test_the_table_is_the_same_byte_for_byte(tmp_path, numerate, alone):
    lost = []

    def fate(number, order):
        lost.append(number)
        return Finished(number, None, "its worker died") if number in (1, 3) else None

    engine = FakeEngine(2, fate)
    done = numerate(*COMMAND, "--on", "ray", "--out", tmp_path, engine=engine)
    assert done.returncode == 0, done.stderr
    assert len(lost) > 4
    assert engine.closed
    assert (tmp_path / REPORT / "table.csv").read_bytes() == (alone / REPORT / "table.csv").read_bytes()


def test_a_run_that_failed_is_in_report_and_exit_code_until_it_is_done(tmp_path, numerate, alone):
    def fate(number, order):
        poison = any(seed == 7 and "[1.0, 2.0]" in order.trainings[place] for place, seed in order.runs)
        return Finished(number, None, "its worker died") if poison else None

    done = numerate(*COMMAND, "--on", "ray", "--out", tmp_path, engine=FakeEngine(2, fate))
    assert done.returncode == 3
    assert "numerate: 1 of the runs could not be trained; the report says why" in done.stderr
    sentence = "1 run could not be trained: NMU mul [1, 2), seed 7 (given up after 3 tries: its worker died)."
    assert sentence in " ".join(done.stdout.split())
    assert sentence in (tmp_path / REPORT / "report.html").read_text()
    done = numerate(*COMMAND, "--out", tmp_path, engine=FakeEngine(2))
    assert done.returncode == 0
    assert "could not be trained" not in (tmp_path / REPORT / "report.html").read_text()
    assert (tmp_path / REPORT / "table.csv").read_bytes() == (alone / REPORT / "table.csv").read_bytes()


def test_ctrl_c_ends_the_workers_and_keeps_what_is_done(tmp_path, numerate):
    def fate(number, order):
        if number == 2:
            raise KeyboardInterrupt
        return None

    engine = FakeEngine(1, fate)
    done = numerate(*COMMAND, "--on", "ray", "--out", tmp_path, engine=engine)
    assert done.returncode == 130
    assert done.stderr.endswith("stopped; the same command continues where it was\n")
    assert engine.closed
    with Store(tmp_path / "results.sqlite") as store:
        assert len(store.keys()) == 16


@pytest.mark.parametrize(("words", "missing"), [(["--on", "ray"], "ray"), (["--on", "slurm"], "submitit")])
def test_without_the_extra_the_command_ends_with_2(tmp_path, numerate, monkeypatch, words, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    done = numerate(*COMMAND, *words, "--out", tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"numerate: --on {words[1]} needs the package {missing}: pip install 'numerate[cluster]'\n"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_local_ray_gives_the_same_table(tmp_path, alone):
    pytest.importorskip("ray", reason="needs the extra numerate[cluster]")
    command = [sys.executable, "-m", "numerate", *COMMAND, "--on", "ray", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / REPORT / "table.csv").read_bytes() == (alone / REPORT / "table.csv").read_bytes()
