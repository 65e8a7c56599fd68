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


def test_a_formula_is_discovered_and_the_pages_show_what_is_printed(capsys):
    example = EXAMPLES / "discover_formula.py"
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith("discovered: (a + b)*(a + b + c + d)\n")
    readme, page = ((EXAMPLES.parent / name).read_text() for name in ("README.md", "docs/units.md"))
    assert f"```text\n{printed}```" in readme
    assert f"```text\n{printed}```" in page
    assert example.read_text().split("\n\n", 1)[1] in readme  # the code itself, after the docstring


def test_pendulum_prints_what_the_page_shows(capsys):
    runpy.run_path(str(EXAMPLES / "pendulum.py"), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    page = (EXAMPLES.parent / "docs" / "formula.md").read_text()
    formulas = [line for line in printed if line.startswith(("found:", "with noise:"))]
    assert len(formulas) == 2
    assert all(line in page for line in formulas)
