"""The psMNIST benchmark on a data set of small random pictures: what it reads, how it continues."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from numerate.data import mnist

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "psmnist.py"
SIZES = {"hidden": 6, "memory": 16}


@pytest.fixture
def psmnist(small_mnist: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with a small MNIST to read."""
    spec = importlib.util.spec_from_file_location("psmnist_benchmark", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "BATCH", 50)
    return module


def test_split_and_permutation_are_those_of_the_released_code(psmnist, small_mnist):
    data = psmnist.load(small_mnist, torch.device("cpu"))
    images = mnist.load(small_mnist).train.numpy()
    random = np.random.RandomState(50)
    order, pixels = random.permutation(300), random.permutation(9)
    shuffled = torch.from_numpy(images.reshape(300, 9)[order][:, pixels])
    assert torch.equal(data.train[0], shuffled[:250])
    assert torch.equal(data.valid[0], shuffled[-50:])
    orders = data.orders()
    for _ in range(2):
        assert next(orders).tolist() == random.permutation(250).tolist()
        random.permutation(50)  # the released code shuffles the other two splits as well
        random.permutation(50)


@pytest.mark.parametrize("form", ["factored", "direct"])
def test_a_run_that_was_stopped_continues_to_the_same_numbers(psmnist, tmp_path, form):
    def run(folder: str, updates: int) -> Any:
        return psmnist.main(["--form", form, "--updates", str(updates), "--folder", str(tmp_path / folder)], **SIZES)[0]

    whole = run("whole", 12)
    for updates in (7, 12):  # five updates are an epoch
        parts = run("parts", updates)
    found, expected = (torch.load(p.path, weights_only=True)["numbers"] for p in (parts, whole))
    assert all(map(torch.equal, found, expected))
    assert parts.curve[-1][-1] == whole.curve[-1][-1]


def test_bad_folders_are_refused(psmnist, tmp_path, monkeypatch):
    folder = ["--form", "factored", "--updates", "1", "--folder", str(tmp_path / "runs")]
    psmnist.main(folder, **SIZES)
    with pytest.raises(ValueError, match="holds another model: give another --folder"):
        psmnist.main(folder, hidden=7, memory=16)
    monkeypatch.delenv("NUMERATE_DATA")
    with pytest.raises(ValueError, match="NUMERATE_DATA must name the folder"):
        psmnist.main(folder, **SIZES)
