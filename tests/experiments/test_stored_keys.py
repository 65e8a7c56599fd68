"""The keys of runs that people have on disk never change, wherever code moves."""

import hashlib

import pytest

from numerate.experiments import Options, experiments


@pytest.mark.parametrize(
    ("id_", "count", "digest"),
    [
        ("primer2022/table9", 20, "a5c53d75ca105ebe"),
        ("nau2020/table2", 22, "adee81cc7d8b94d5"),
        ("nalu2018/table8", 168, "24dfc85d90bad5f3"),
    ],
)
def test_keys_are_those_of_version_0_1(id_, count, digest):
    """A class that has moved to another module is entered in ``numerate.train.identity.FORMER_MODULES``."""
    work = experiments()[id_].work(Options(size="smoke"))
    keys = sorted(tuple(key) for training in work.trainings for key in training.run_keys())
    assert len(keys) == count
    assert hashlib.sha256(repr(keys).encode()).hexdigest()[:16] == digest
