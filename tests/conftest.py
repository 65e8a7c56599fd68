"""Settings for all tests: one thread each, and the same random numbers in every run."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers share the cores; read when torch is imported

import hypothesis
import pytest

hypothesis.settings.register_profile("same", derandomize=True, database=None)
hypothesis.settings.load_profile("same")


@pytest.fixture(autouse=True)
def _seeded():
    import torch

    torch.default_generator.manual_seed(0)
