"""Where torch's default compiler (inductor) can be tried."""

import shutil

import pytest
import torch

needs_default_compiler = pytest.mark.skipif(
    not shutil.which("g++") or " " in torch.__file__,
    reason="torch's own compiler needs g++, and does not quote a path with spaces (torch 2.13)",
)
