"""Files of earlier versions are read as they are, and served on."""

import shutil
import sqlite3

import pytest
from results_samples import row

from numerate.results import Added, Store, StoreError


@pytest.fixture
def early(path):
    """A file of format 1: digests of results alone, none beside shared labels."""
    with Store(path) as store:
        store.add([row(0), row(1)])
        store.share("mine", {row(1).key: {"unit": "my NMU"}})
    raw = sqlite3.connect(path)
    raw.executescript("""UPDATE runs SET digest = substr(digest, 1, 64);
                         ALTER TABLE shared DROP COLUMN digest; PRAGMA user_version = 1""")
    raw.close()
    return path


def test_rows_with_the_earlier_digest_stay_valid(early, tmp_path):
    with Store(early, readonly=True) as store:
        assert store.rows() == [row(0), row(1)]
        assert [each.labels for each in store.rows("mine")] == [{"unit": "my NMU"}]
        assert store.check() == []
        before = store.digest(), store.digest("mine")
    with Store(early) as store:
        assert store.add([row(1), row(2)]) == Added(new=1, same=1)
        assert store.rows() == [row(0), row(1), row(2)]
        assert store.check() == []
    with Store(tmp_path / "new.sqlite") as new:
        assert new.import_(early) == Added(new=3)
        assert new.rows() == [row(0), row(1), row(2)]
    with Store(tmp_path / "same.sqlite") as same:
        same.add([row(0), row(1)])
        same.share("mine", {row(1).key: {"unit": "my NMU"}})
        assert (same.digest(), same.digest("mine")) == before


def test_a_file_that_is_only_read_keeps_its_format(early):
    before = early.read_bytes()
    with Store(early, readonly=True) as store:
        store.rows()
    assert early.read_bytes() == before
    with Store(early):
        pass
    raw = sqlite3.connect(early)
    assert raw.execute("PRAGMA user_version").fetchone() == (2,)
    raw.close()


def test_a_file_that_could_run_something_is_not_opened(path, tmp_path):
    Store(path).close()
    for number, statement in enumerate(
        [
            "CREATE TRIGGER evil AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
            "CREATE VIEW evil AS SELECT * FROM runs",
            "CREATE VIRTUAL TABLE evil USING fts5(x)",
        ]
    ):
        other = shutil.copy(path, tmp_path / f"{number}.sqlite")
        raw = sqlite3.connect(other)
        raw.execute(statement)
        raw.close()
        for readonly in (False, True):
            with pytest.raises(StoreError, match="'evil', which numerate never writes"):
                Store(other, readonly=readonly)
