"""What the shell completes."""

import os
import subprocess
import sys

import pytest

from numerate import completion
from numerate.experiments.experiment import SIZES
from numerate.train import BACKENDS


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path / "cache"))


def test_names_are_asked_once_and_then_read_from_the_cache(monkeypatch):
    assert "primer2022/table11" in completion.experiment_ids("primer2022/t")
    monkeypatch.setattr(completion, "_ask", lambda: pytest.fail("asked again"))
    assert completion.experiment_ids("zo") == ["zoo"]
    assert {"NAU,NMU", "NAU,NMRU"} <= set(completion.unit_names("NAU,nm"))


def test_the_short_lists_are_those_of_the_package():
    assert tuple(completion.SIZES) == SIZES
    assert tuple(completion.BACKENDS) == BACKENDS
    assert completion.sizes("p") == ["paper"]
    assert completion.backends("e") == ["emitted", "eager"]
    assert completion.kinds("u") == ["units"]


def test_the_shell_is_answered_without_torch():
    words = {"_NUMERATE_COMPLETE": "complete_bash", "COMP_WORDS": "numerate report --size q", "COMP_CWORD": "3"}
    code = (
        "import sys; sys.argv = ['numerate']; sys.modules['torch'] = None\nfrom numerate.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | words, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["quick"], done.stderr
