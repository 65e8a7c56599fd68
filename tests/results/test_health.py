"""A damaged file is noticed when it is opened: an index is repaired, anything else is refused with a way out."""

import os
import sqlite3

import pytest
from results_samples import row

from numerate.results import Added, Store, StoreError, health
from numerate.results.schema import PAGE_SIZE

ROWS = [row(seed, unit) for unit in ("NAU", "NMU", "NALU") for seed in range(3)]


def flip_in_index(path):
    """One byte of the experiment's name in an index: a search passes over all that lies behind it."""
    with Store(path) as store:
        store.add(ROWS)
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'runs_by_experiment'"
        (page,) = store._file.db.execute(query).fetchone()
    data = bytearray(path.read_bytes())
    place = data.index(b"primer2022", (page - 1) * PAGE_SIZE, page * PAGE_SIZE)
    data[place] ^= 1
    path.write_bytes(data)


def test_a_flipped_byte_in_an_index_hides_no_run_and_is_repaired(path, caplog):
    flip_in_index(path)
    with Store(path, readonly=True) as store:
        assert store.experiments() == {"primer2022/table11": 9}
        assert len(store.rows("primer2022/table11")) == 9
    assert "missing from index runs_by_experiment): it is read through a repaired copy" in caplog.text
    caplog.clear()
    with Store(path) as store:
        assert len(store.rows("primer2022/table11")) == 9
    assert "it is repaired" in caplog.text
    caplog.clear()
    with Store(path, readonly=True) as store:
        assert len(store.rows("primer2022/table11")) == 9
    assert caplog.text == ""


def test_all_runs_move_out_of_a_file_whose_index_is_damaged(path, tmp_path):
    flip_in_index(path)
    with Store(tmp_path / "here.sqlite") as here:
        assert here.import_(path) == Added(new=9)
    with Store(path, readonly=True) as store:
        assert store.export(tmp_path / "there.sqlite", "primer2022/table11") == Added(new=9)


def test_a_file_damaged_beyond_its_indexes_names_the_way_out(path):
    with Store(path) as store:
        store.add([row(seed) for seed in range(40)])
    data = bytearray(path.read_bytes())
    for start in range(PAGE_SIZE * 2, len(data), PAGE_SIZE):
        data[start : start + 64] = os.urandom(64)
    path.write_bytes(data)
    for readonly in (True, False):
        with pytest.raises(StoreError, match=r"runs\.sqlite is damaged: .*: numerate rows rescue .*runs\.sqlite --out"):
            Store(path, readonly=readonly)


def test_a_truncated_file_names_the_way_out(path):
    with Store(path) as store:
        store.add([row(seed) for seed in range(40)])
    path.write_bytes(path.read_bytes()[: -2 * PAGE_SIZE])
    with pytest.raises(StoreError, match="numerate rows rescue"):
        Store(path, readonly=True)


def test_a_destroyed_header_names_the_way_out(path):
    with Store(path) as store:
        store.add([row(seed) for seed in range(4)])
    path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])
    with pytest.raises(StoreError, match=r"damaged: its header cannot be read; .*: numerate rows rescue"):
        Store(path)


@pytest.mark.parametrize("readonly", [True, False])
@pytest.mark.parametrize(
    "text", [b"CREATE TABLE runs", b"tableruns", b"seed INTEGER", b"WITHOUT ROWID", b"circumstances"]
)
def test_a_destroyed_list_of_tables_names_the_way_out(path, text, readonly):
    with Store(path) as store:
        store.add([row(0)])
    data = path.read_bytes()
    assert text in data
    path.write_bytes(data.replace(text, b"\x9d\xff" * (len(text) // 2) + text[len(text) // 2 * 2 :]))
    with pytest.raises(StoreError, match="numerate rows rescue"):
        Store(path, readonly=readonly)


def test_a_large_file_is_checked_whole_once_until_it_changes(path, monkeypatch):
    monkeypatch.setattr(health, "REMEMBERED_FROM", 0)
    checked = []
    inspect = health.inspect
    monkeypatch.setattr(health, "inspect", lambda db: checked.append(db) or inspect(db))
    with Store(path) as store:
        store.add([row(0)])
    assert len(checked) == 1
    for _ in range(2):
        with Store(path, readonly=True) as store:
            assert store.rows() == [row(0)]
    with Store(path) as store:
        store.add([row(1)])
    Store(path).close()
    assert len(checked) == 1, "nobody but us wrote to it"
    raw = sqlite3.connect(path)
    raw.execute("UPDATE runs SET experiment = experiment")
    raw.commit()
    raw.close()
    Store(path, readonly=True).close()
    assert len(checked) == 2


def test_runs_that_are_in_a_missing_log_are_told(path):
    """As an earlier version left it after kill -9: the file itself has no tables yet."""
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA journal_mode = WAL").fetchone()
    raw.close()
    before = path.read_bytes()
    for readonly in (True, False):
        with pytest.raises(StoreError, match=r"the runs of a killed process are in runs\.sqlite-wal, which is missing"):
            Store(path, readonly=readonly)
    assert path.read_bytes() == before


def test_finished_runs_are_in_the_file_itself_not_only_in_its_log(path, tmp_path):
    """What a file that was copied without its log, after kill -9 say, still holds."""
    with Store(path) as store:
        store.add([row(0), row(1)])
        alone = tmp_path / "alone.sqlite"
        alone.write_bytes(path.read_bytes())
        with Store(alone, readonly=True) as copy:
            assert copy.rows() == [row(0), row(1)]
