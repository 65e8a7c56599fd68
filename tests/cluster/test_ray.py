"""A Ray cluster of three nodes on one machine, and everything that can go wrong with it."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from numerate.results import Store
from numerate.train import train

ray = pytest.importorskip("ray", reason="needs the extra numerate[cluster]")

from ray_driver import trainings  # noqa: E402

HERE = Path(__file__).parent
PACKAGE = Path(train.__code__.co_filename).parents[2]
SEEDS, STEPS = 96, 400_000
"""288 runs in pieces of 16 and about a second each."""
pytestmark = pytest.mark.slow


def environment():
    paths = [str(PACKAGE), str(HERE)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}


class ThreeNodes:
    """A head without workers, and three nodes of one core each."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        small = {"object_store_memory": 80_000_000}
        self.settings = {"num_cpus": 1, **small, "env_vars": {"PYTHONPATH": environment()["PYTHONPATH"]}}
        self.cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small}
        )
        self.nodes = [self.cluster.add_node(**self.settings) for _ in range(3)]

    def driver(self, store, *options, seeds=SEEDS, steps=STEPS):
        """A driver that has begun."""
        command = [
            sys.executable,
            str(HERE / "ray_driver.py"),
            self.cluster.address,
            str(store),
            str(seeds),
            str(steps),
        ]
        return subprocess.Popen(
            [*command, *options], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def workers(self):
        """Processes that are doing an order now."""
        found = []
        for title in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if title.read_bytes().startswith(b"ray::numerate_order"):
                    found.append(int(title.parent.name))
        return found

    def kill_worker(self, draw):
        """One that is in the middle of its piece; they may all be starting."""
        until = time.monotonic() + 60
        while not (busy := self.workers()) and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(draw.uniform(0, 0.5))
        with suppress(ProcessLookupError, IndexError):
            os.kill(draw.choice(busy), signal.SIGKILL)
            return True
        return False

    def replace_node(self, draw):
        node = self.nodes.pop(draw.randrange(len(self.nodes)))
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes.append(self.cluster.add_node(**self.settings))
        return True

    def close(self):
        self.cluster.shutdown()


@pytest.fixture(scope="module")
def nodes():
    nodes = ThreeNodes()
    yield nodes
    nodes.close()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "a.sqlite"
    with Store(path) as store:
        train(trainings(SEEDS, STEPS), store, experiment="x")
        return store.digest(), len(store.keys())


def contents(path):
    with Store(path) as store:
        assert store.check() == []
        return store.digest(), len(store.keys())


def output_of(driver, seconds=400):
    told, _ = driver.communicate(timeout=seconds)
    return told


def wait_for(driver, text):
    """Read what a driver says until it says this; all that it said."""
    told = ""
    assert driver.stdout
    for line in driver.stdout:
        told += line
        if text in line:
            return told
    raise AssertionError(told)


@pytest.mark.timeout(1500)
def test_twenty_random_faults_lose_no_row_and_double_none(nodes, tmp_path, expected):
    """Workers killed by kill -9, nodes taken away, the driver killed and started again, at random moments."""
    draw, store = random.Random(os.environ.get("NUMERATE_SEED", "1")), tmp_path / "a.sqlite"
    counts = {"worker": 0, "node": 0, "driver": 0}
    driver = nodes.driver(store)
    wait_for(driver, "busy")
    while sum(counts.values()) < 20:
        time.sleep(draw.uniform(0.2, 2.5))
        if driver.poll() is not None:  # it was faster than the faults: begin anew
            assert "done, 0 failed" in output_of(driver)
            assert contents(store) == expected
            store.unlink()
            driver = nodes.driver(store)
            wait_for(driver, "busy")
        fault = draw.choices(list(counts), [8, 2, 2])[0]
        if fault == "worker":
            counts[fault] += nodes.kill_worker(draw)
        elif fault == "node":
            counts[fault] += nodes.replace_node(draw)
        else:
            driver.kill()
            driver.communicate()
            counts[fault] += 1
            driver = nodes.driver(store)
    told = output_of(driver)
    print(counts)
    assert "done, 0 failed" in told, told
    assert contents(store) == expected
    assert min(counts.values()) > 0


@pytest.mark.timeout(600)
def test_a_run_that_kills_every_worker_fails_alone_with_its_reason(nodes, tmp_path):
    driver = nodes.driver(tmp_path / "a.sqlite", "deadly", seeds=16, steps=4000)
    told = output_of(driver)
    assert "done, 1 failed" in told
    assert "(Deadly, seed 11) has failed: given up after 3 tries: its worker died: it was killed, or crashed" in told
    with Store(tmp_path / "a.sqlite") as store:
        assert len(store.keys()) == 16 * 3 + 15
    with Store(tmp_path / "b.sqlite") as store:
        train(trainings(16, 4000), store, experiment="x")
        alone = {row.key: row.digest for row in store.rows()}
    with Store(tmp_path / "a.sqlite") as store:
        found = {row.key: row.digest for row in store.rows()}
    assert {key: found[key] for key in alone} == alone


@pytest.mark.timeout(600)
def test_a_node_with_another_version_is_refused_by_name_and_the_others_do_its_work(nodes, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(PACKAGE / "numerate", other / "numerate")
    text = (other / "numerate" / "__init__.py").read_text()
    (other / "numerate" / "__init__.py").write_text(text.replace('__version__ = "', '__version__ = "9.'))
    node = nodes.cluster.add_node(**nodes.settings | {"env_vars": {"PYTHONPATH": str(other)}, "num_cpus": 2})
    try:
        driver = nodes.driver(tmp_path / "a.sqlite", seeds=64, steps=100_000)
        told = output_of(driver)
    finally:
        nodes.cluster.remove_node(node, allow_graceful=False)
    assert "is not used: it has numerate 9." in told
    assert "install the same versions there" in told
    assert "done, 0 failed" in told


@pytest.mark.timeout(600)
def test_a_full_disk_at_the_driver_is_a_sentence_and_loses_nothing(nodes, tmp_path, expected):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        driver = nodes.driver(small / "a.sqlite")
        told = output_of(driver)
        assert driver.returncode == 1
        assert "a.sqlite is full: what is stored is kept; make room and start again" in told
        kept = contents(small / "a.sqlite")[1]
        assert 0 < kept < expected[1]
        subprocess.run(["mount", "-o", "remount,size=100m", small], check=True)  # room is made
        assert "done, 0 failed" in output_of(nodes.driver(small / "a.sqlite"))
        assert contents(small / "a.sqlite") == expected
    finally:
        subprocess.run(["umount", small], check=True)
