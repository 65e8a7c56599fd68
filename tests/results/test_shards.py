"""Results files cut into shards; unfinished runs that go on elsewhere."""

import numpy as np
import pytest

from numerate.results import Store, StoreError
from numerate.results.shards import HEADER, cut, join, read_header


@pytest.fixture
def whole(tmp_path):
    path = tmp_path / "runs.sqlite"
    path.write_bytes(np.random.default_rng(0).bytes(10_000))
    return path


def test_shards_are_no_larger_than_asked_and_join_to_the_same_bytes(whole, tmp_path):
    content = whole.read_bytes()
    made = cut(whole, size=HEADER + 3000, most=4)
    assert [path.name for path in made] == [f"runs.sqlite.{k}of4" for k in (1, 2, 3, 4)]
    assert [path.stat().st_size - HEADER for path in made] == [3000, 3000, 3000, 1000]
    assert not whole.exists()
    join(made[::-1], tmp_path / "joined")
    assert (tmp_path / "joined").read_bytes() == content


def test_too_many_shards_are_refused_and_the_file_stays(whole):
    with pytest.raises(StoreError, match=r"would need 4 shards of .* not 3"):
        cut(whole, size=HEADER + 3000, most=3)
    with pytest.raises(StoreError, match=r"must be more than 0\.0005 MiB, got 0\.000488281 MiB"):
        cut(whole, size=HEADER)
    assert whole.stat().st_size == 10_000
    assert read_header(whole) is None


def test_missing_damaged_and_foreign_shards_are_named(whole, tmp_path):
    made, joined = cut(whole, size=HEADER + 3000), tmp_path / "joined"
    with pytest.raises(StoreError, match="of 4 shards these are missing: number 2"):
        join([made[0], *made[2:]], joined)
    other = tmp_path / "other.sqlite"
    other.write_bytes(bytes(5000))
    foreign = cut(other, size=HEADER + 3000)
    with pytest.raises(StoreError, match=r"other\.sqlite\.1of2 is not a shard of the same"):
        join([*made, foreign[0]], joined)
    data = bytearray(made[3].read_bytes())
    data[-1] ^= 1
    made[3].write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        join(made, joined)
    assert not joined.exists()


def test_the_state_that_is_further_on_is_imported(tmp_path):
    with Store(tmp_path / "here.sqlite") as here, Store(tmp_path / "there.sqlite") as there:
        for name, ours, theirs in (("behind", 5, 9), ("ahead", 7, 3), ("new", None, 2)):
            there.checkpoint(name, {"weight": np.full(3, theirs)}, {"step": theirs})
            if ours:
                here.checkpoint(name, {"weight": np.full(3, ours)}, {"step": ours})
        there.export(tmp_path / "rows.sqlite")
        there.export(tmp_path / "all.sqlite", unfinished=True)
        here.import_(tmp_path / "rows.sqlite")
        assert here.checkpoints() == ["ahead", "behind"]
        here.import_(tmp_path / "all.sqlite")
        states = {name: here.load_checkpoint(name) for name in here.checkpoints()}
    assert {name: state and state.meta["step"] for name, state in states.items()} == {"ahead": 7, "behind": 9, "new": 2}


def test_unfinished_runs_that_are_taken_are_counted(tmp_path):
    with Store(tmp_path / "there.sqlite") as there, Store(tmp_path / "here.sqlite") as here:
        there.checkpoint("two", {"weight": np.zeros(3)}, {"step": 4, "keys": [("a", 0), ("a", 1)]})
        assert str(there.export(tmp_path / "rows.sqlite")) == "0 new, 0 already there"
        told = "0 new, 0 already there, 2 unfinished to be continued"
        assert str(there.export(tmp_path / "all.sqlite", unfinished=True)) == told
        assert str(here.import_(tmp_path / "all.sqlite")) == told
        assert str(here.import_(tmp_path / "all.sqlite")) == "0 new, 0 already there"
