"""Results files as gzip."""

import gzip

import numpy as np
import pytest

from numerate.results import StoreError
from numerate.results.gzipped import compress, expand, is_gzipped


@pytest.fixture
def plain(tmp_path):
    path = tmp_path / "runs.sqlite"
    path.write_bytes(np.random.default_rng(0).bytes(5_000) + bytes(50_000))
    return path


def test_a_file_is_the_same_after_it_was_compressed(plain, tmp_path):
    packed = tmp_path / "runs.sqlite.gz"
    compress(plain, packed)
    assert packed.stat().st_size < 7_000
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert (is_gzipped(packed), is_gzipped(plain)) == (True, False)
    expand(packed, tmp_path / "again.sqlite")
    assert (tmp_path / "again.sqlite").read_bytes() == plain.read_bytes()


def test_the_same_file_has_the_same_bytes_under_any_name(plain, tmp_path):
    for name in ("a.gz", "b.gz"):
        compress(plain, tmp_path / name)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize("harm", [lambda d: d[:3000], lambda d: d[:2000] + b"no" + d[2002:], lambda d: d[:2] + d[3:]])
def test_a_damaged_file_is_named_and_leaves_nothing(plain, tmp_path, harm):
    packed = tmp_path / "runs.sqlite.gz"
    compress(plain, packed)
    packed.write_bytes(harm(packed.read_bytes()))
    with pytest.raises(StoreError, match=r"runs\.sqlite\.gz is damaged"):
        expand(packed, tmp_path / "again.sqlite")
    assert not (tmp_path / "again.sqlite").exists()
