"""Settings for the contract suites."""

from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    """Tensors of a dozen numbers gain nothing from threads and lose much where cores are shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
