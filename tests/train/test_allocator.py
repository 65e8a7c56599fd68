"""What glibc is asked for, and when it is left alone."""

import os
import resource
import subprocess
import sys

import pytest

CODE = """
import resource, torch
from numerate.train.allocator import keep_freed_memory
kept = keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        some = [torch.ones(6 * 2**20) for _ in range(5)]  # 120 MiB, more than glibc keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(kept, faults())
"""


def pages(**environment: str) -> tuple[bool, int]:
    """Whether memory is kept, and how many fresh pages a hundred large tensors take in a process of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    answer = subprocess.run(
        [sys.executable, "-c", CODE], env=clean | environment, capture_output=True, text=True, check=True
    ).stdout.split()
    return answer[0] == "True", int(answer[1])


@pytest.mark.skipif(sys.platform != "linux", reason="another C library")
def test_freed_memory_is_used_again():
    kept, faults = pages()
    if not kept:
        pytest.skip("another C library")
    assert faults < 0.05 * 100 * 24 * 2**20 / resource.getpagesize()


def test_settings_of_the_user_stay():
    kept, _ = pages(MALLOC_ARENA_MAX="2")
    assert not kept
