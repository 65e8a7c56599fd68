"""Settings for all tests: one thread each, and the same random numbers in every run."""

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers share the cores; read when torch is imported

import hypothesis
import pytest

hypothesis.settings.register_profile("same", derandomize=True, database=None)
hypothesis.settings.load_profile("same")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """After each file: later collections pass over what is still in use, which grows to seconds for each of them."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _seeded():
    import torch

    torch.default_generator.manual_seed(0)


@pytest.fixture
def small_mnist(tmp_path, monkeypatch):
    """The data folder, with 300 and 50 random pictures of 3 × 3 that pass for MNIST."""
    import numpy as np

    from numerate.data import mnist

    random = np.random.RandomState(0)
    shapes = [(300, 3, 3), (300,), (50, 3, 3), (50,)]
    contents = [
        bytes([0, 0, 8, len(shape)]) + np.array(shape, ">i4").tobytes() + random.randint(0, 10, shape, "u1").tobytes()
        for shape in shapes
    ]
    return _pass_for(monkeypatch, tmp_path, mnist, "MNIST", contents)


@pytest.fixture
def small_ptb(tmp_path, monkeypatch):
    """The data folder, with a few hundred words that pass for Penn Treebank."""
    from numerate.data import ptb

    contents = [b" the cat sat on a mat \n no <unk> of N \n" * n for n in (40, 20, 24)]
    counts = [len(ptb.characters(content)) for content in contents]
    monkeypatch.setattr(ptb, "CHARACTERS", dict(zip(ptb.CHARACTERS, counts)))
    return _pass_for(monkeypatch, tmp_path, ptb, "PTB", contents)


def _pass_for(monkeypatch, folder, module, name, contents):
    """Put ``contents`` in the place of the files of a data set."""
    from dataclasses import replace
    from hashlib import sha256

    from numerate.train.networks import stack

    dataset = getattr(module, name)
    files = [replace(f, size=len(c), sha256=sha256(c).hexdigest()) for f, c in zip(dataset.files, contents)]
    for file, content in zip(files, contents):
        (folder / file.name).write_bytes(content)
    monkeypatch.setattr(module, name, replace(dataset, files=tuple(files)))
    monkeypatch.setattr(stack, "data_of", lambda task: task.data())  # which keeps the data of a process
    monkeypatch.setenv("NUMERATE_DATA", str(folder))
    return folder
