"""Every good run comes out of a damaged file, and nothing that is not one."""

import os
import random
import shutil

import pytest
from results_samples import row

from numerate.results import Added, Row, Store, StoreError, opening, recovery, rescue
from numerate.results.schema import PAGE_SIZE, TABLES

ROWS = [row(seed, unit) for unit in ("NAU", "NMU") for seed in range(30)]
LARGE = [row(seed, "NALU", curves={"test": [float(seed)] * 9000}) for seed in range(6)]  # on overflow pages
SHARED = row(3, "NAU").key, {"unit": "mine"}


def rescued(path, tmp_path) -> tuple[list[Row], recovery.Rescued]:
    with Store(tmp_path / "rescued.sqlite") as store:
        found = rescue(path, store)
        assert store.check() == []
        return store.rows(), found


FORMER = TABLES[0] + " WITHOUT ROWID", *TABLES[1:]


@pytest.fixture(params=[(PAGE_SIZE, TABLES), (4096, FORMER)], ids=["new", "former layout"])
def full(path, request, monkeypatch):
    monkeypatch.setattr(opening, "PAGE_SIZE", request.param[0])
    monkeypatch.setattr(opening, "TABLES", request.param[1])
    with Store(path) as store:
        store.add([*ROWS, *LARGE])
        store.share("mine", dict([SHARED]))
    return path


def test_a_sound_file_comes_out_whole_with_provenance_and_names(full, tmp_path):
    rows, found = rescued(full, tmp_path)
    with Store(full) as store:
        assert rows == store.rows()
        assert [each.provenance for each in rows] == [each.provenance for each in store.rows()]
    assert found.added == Added(new=66)
    assert found.damaged == 0
    with Store(tmp_path / "rescued.sqlite") as store:
        assert [each.labels for each in store.rows("mine")] == [SHARED[1]]


def page_size(path):
    return int.from_bytes(path.read_bytes()[16:18], "big")


@pytest.mark.parametrize("pages", [0, 1, 2], ids=["header", "first page", "two pages"])
def test_a_destroyed_beginning_loses_no_run(full, tmp_path, pages):
    data, lost = full.read_bytes(), pages * page_size(full) or 100
    full.write_bytes(os.urandom(lost) + data[lost:])
    rows, _ = rescued(full, tmp_path)
    assert len(rows) >= 66 - (pages > 1) * 12
    assert set(rows) <= {*ROWS, *LARGE}


@pytest.mark.parametrize("left", [0.667, 0.82])
def test_a_truncated_file_gives_what_is_left(full, tmp_path, left):
    data = full.read_bytes()
    full.write_bytes(data[: int(len(data) * left) + 17])
    rows, found = rescued(full, tmp_path)
    assert len(rows) > 30
    assert set(rows) <= {*ROWS, *LARGE}
    assert left < 0.7 or found.damaged > 0  # the ends of some are cut off
    assert len(rows) + found.damaged <= 66


def test_runs_on_pages_that_sqlite_cannot_read_come_out(full, tmp_path):
    """The head of every page is destroyed: no tree leads anywhere, but the runs themselves are there."""
    data, size = bytearray(full.read_bytes()), page_size(full)
    for start in range(size, len(data), size):
        if data[start] in (2, 5, 10, 13):  # a page of a tree
            data[start : start + 8] = b"\xff" * 8
    full.write_bytes(data)
    rows, _ = rescued(full, tmp_path)
    assert len(rows) == 66


def test_runs_of_which_the_provenance_alone_is_left_are_counted(path, tmp_path):
    with Store(path) as store:
        store.add(ROWS)
        store._file.db.execute("DELETE FROM runs WHERE seed < 3")
        store._file.db.execute("VACUUM")
    rows, found = rescued(path, tmp_path)
    assert len(rows) == 54
    assert str(found) == "54 new, 0 already there; at least 6 runs could not be recovered"


def test_runs_of_which_the_index_alone_tells_are_counted(path, tmp_path):
    with Store(path) as store:
        store.add(ROWS)
        store._file.db.execute("DELETE FROM circumstances")
        store._file.db.execute("VACUUM")
    data, size = path.read_bytes(), page_size(path)
    place = data.index(b"primer2022/table11{") // size * size  # of a page of runs
    path.write_bytes(data[:place] + bytes(size) + data[place + size :])
    rows, found = rescued(path, tmp_path)
    assert len(rows) < 60
    assert len(rows) + found.damaged == 60


def test_damaged_runs_are_counted_and_left(full, tmp_path):
    draw = random.Random(7)
    data = bytearray(full.read_bytes())
    for _ in range(12):
        data[draw.randrange(4096, len(data))] ^= 1 << draw.randrange(8)
    full.write_bytes(data)
    rows, found = rescued(full, tmp_path)
    assert set(rows) <= {*ROWS, *LARGE}
    assert len(rows) + 12 >= 66
    assert len(rows) + found.damaged <= 66


def test_runs_in_the_log_of_a_killed_process_come_out(full, tmp_path):
    with Store(full) as store:
        with store.transaction():
            store.add([row(99)])
            store._file._rows_written = False  # they stay in the log, as an earlier version left them
        killed = tmp_path / "killed.sqlite"
        shutil.copy(full, killed)
        shutil.copy(f"{full}-wal", f"{killed}-wal")
    killed.write_bytes(b"\0" * 200 + killed.read_bytes()[200:])
    rows, _ = rescued(killed, tmp_path)
    assert row(99) in rows
    assert len(rows) == 67


def test_what_is_no_results_file_gives_nothing(path, tmp_path):
    path.write_bytes(os.urandom(50_000))
    rows, found = rescued(path, tmp_path)
    assert rows == []
    assert str(found) == "0 new, 0 already there"


def test_a_file_is_not_rescued_into_itself(full, tmp_path):
    with Store(full) as store, pytest.raises(StoreError, match="is the results file itself"):
        rescue(full, store)
    with Store(tmp_path / "b.sqlite") as store, pytest.raises(StoreError, match="cannot read"):
        rescue(tmp_path / "nosuch", store)
