"""The examples run, and show what they say they show."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

from numerate.units import formula

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_head_learns_level_times_costs():
    example = runpy.run_path(str(EXAMPLES / "nau_nmu_head.py"))
    model = example["train"](steps=1200)
    assert str(formula(model.head, "level price fee")) == "level*(fee + price)"
    assert example["relative_error"](model, scale=100.0) < 0.1


def test_head_from_the_command_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["nau_nmu_head.py", "--steps", "4"])
    runpy.run_path(str(EXAMPLES / "nau_nmu_head.py"), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("the head computes: ")
    assert len(printed) == 3


def test_ten_lines_discover_the_formula(capsys):
    runpy.run_path(str(EXAMPLES / "ten_lines.py"), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "discovered: (a + b)*(a + b + c + d)"
    far = printed[2].split()
    units, mlp = (float(far[far.index(name) + 1].rstrip("%")) for name in ("units", "MLP"))
    assert units < 0.1
    assert mlp > 10
