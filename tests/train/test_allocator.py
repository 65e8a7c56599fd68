"""What glibc is asked for, and when it is left alone."""

import os
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
        some = [torch.ones(k * 2**20) for k in (3, 4, 5)]  # 48 MiB in all
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(kept, faults())
"""


def pages(**environment: str) -> tuple[bool, int]:
    """Whether memory is kept, and how many fresh pages twenty large tensors take in a process of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    answer = subprocess.run(
        [sys.executable, "-c", CODE], env=clean | environment, capture_output=True, text=True, check=True
    ).stdout.split()
    return answer[0] == "True", int(answer[1])


@pytest.mark.skipif(sys.platform != "linux", reason="another C library")
def test_freed_memory_is_used_again_unless_the_user_has_settings_of_their_own():
    kept, faults = pages()
    if not kept:
        pytest.skip("another C library")
    left_alone, usual = pages(MALLOC_ARENA_MAX="2")
    assert not left_alone
    assert 10 * faults < usual
