"""The recurrent examples, at smoke size, and the data they make."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "curves"), [("copying_memory", 4), ("adding_problem", 2)])
def test_example_runs_and_draws(name, curves, tmp_path):
    losses = load(name).main(["--size", "smoke", "--out", str(tmp_path / "picture.svg")])
    assert len(losses) == curves
    assert all(torch.tensor(values).isfinite().all() for values in losses.values())
    assert (tmp_path / "picture.svg").stat().st_size > 1000


def test_copying_asks_for_the_first_ten_symbols_after_the_marker():
    module = load("copying_memory")
    x, y = module.copying(30, torch.Generator().manual_seed(0))
    ids = x.argmax(-1)
    assert x.shape == (50, 10, 10)
    assert torch.equal(ids[:10], y[-10:])
    assert ids[39].eq(module.MARKER).all()
    assert ids[40:].eq(module.BLANK).all()
    assert y[:-10].eq(module.BLANK).all()


def test_adding_marks_one_number_in_each_half():
    module = load("adding_problem")
    x, y = module.adding(module.Size(12, 1, 4), torch.Generator().manual_seed(0))
    assert x[:6, :, 1].sum(0).eq(1).all()
    assert x[6:, :, 1].sum(0).eq(1).all()
    torch.testing.assert_close(y, (x[..., 0] * x[..., 1]).sum(0))
