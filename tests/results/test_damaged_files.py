"""Files that are none of ours, or no longer what was written: said in one sentence, and nothing is taken from them."""

import os
import shutil
import sqlite3
import subprocess
import sys

import pytest
from results_samples import row

from numerate.results import Store, StoreError

BOUND = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.name == "posix" and os.geteuid() == 0 else []


def test_a_file_that_is_no_database(path):
    path.write_text("these are not runs" * 100)
    for readonly in (False, True):
        with pytest.raises(StoreError, match=r"runs\.sqlite is not a results file"):
            Store(path, readonly=readonly)


def test_a_database_of_something_else(path):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE friends (name TEXT)")
    other.close()
    with pytest.raises(StoreError, match="not a results file of numerate"):
        Store(path)


def test_a_file_from_a_newer_version(path):
    Store(path).close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(StoreError, match="newer numerate"):
        Store(path)


def test_a_missing_file_or_folder(tmp_path):
    with pytest.raises(StoreError, match="there is no results file"):
        Store(tmp_path / "none.sqlite", readonly=True)
    for readonly in (False, True):
        with pytest.raises(StoreError, match="is a folder, not a results file"):
            Store(tmp_path, readonly=readonly)
    with pytest.raises(StoreError, match="':memory:' would keep nothing"):
        Store(":memory:")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make the folder"):
        Store(tmp_path / "file" / "runs.sqlite")


@pytest.mark.skipif(sys.platform == "win32" or bool(BOUND and not shutil.which("setpriv")), reason="permissions")
@pytest.mark.parametrize("place", ["folder", "file"])
def test_the_reason_is_given_where_a_file_cannot_be_opened(tmp_path, place):
    """By a process that may not ignore permissions, even if root started it."""
    path = tmp_path / "results" / "runs.sqlite"
    Store(path).close()
    if place == "folder":
        path.unlink()
        path.parent.chmod(0o555)
        told = f"{path} cannot be opened: nothing can be written to its folder (Permission denied)"
    else:
        path.chmod(0)
        told = f"{path} cannot be opened: Permission denied"
    code = f"from numerate.results import Store; Store({str(path)!r})"
    done = subprocess.run([*BOUND, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    path.parent.chmod(0o755)
    assert done.returncode == 1
    assert told in done.stderr


def test_a_damaged_file_is_noticed(path):
    with Store(path) as store:
        store.add([row(seed) for seed in range(40)])
        assert store.check() == []
    data = bytearray(path.read_bytes())
    data[8192:-4096] = b"\xff" * len(data[8192:-4096])
    path.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"), Store(path) as store:
        store.check()


def test_a_changed_number_is_noticed(path):
    with Store(path) as store:
        store.add([row(0), row(1)])
    raw = sqlite3.connect(path)
    raw.execute("""UPDATE runs SET scores = '{"threshold":1}' WHERE seed = 1""")
    raw.commit()
    raw.close()
    with Store(path) as store:
        assert store.check() == [row(1).key]
        assert store.rows(keys=[row(0).key]) == [row(0)]
        with pytest.raises(StoreError, match=f"the run {row(1).key.name} in .* is not as it was written"):
            store.rows()


def as_format_1(store: Store) -> None:
    """Digests that leave out experiment and labels, as earlier versions wrote them."""
    store._file.db.execute("UPDATE runs SET digest = substr(digest, 1, 64)")
    store._file.db.execute("UPDATE shared SET digest = NULL")


@pytest.mark.parametrize("change", ["experiment = 'primer2022/table12'", "labels = replace(labels, 'NMU', 'NAU')"])
def test_changed_names_are_noticed(path, change):
    with Store(path) as store:
        store.add([row(0), row(1)])
        store._file.db.execute(f"UPDATE runs SET {change} WHERE seed = 1")
        assert store.check() == [row(1).key]
        with pytest.raises(StoreError, match=f"the run {row(1).key.name} in .* is not as it was written"):
            store.rows()


def test_changed_names_of_shared_runs_are_noticed(path):
    with Store(path) as store:
        store.add([row(0), row(1)])
        store.share("mine", {row(1).key: {"unit": "my NMU"}})
        store._file.db.execute("UPDATE shared SET labels = replace(labels, 'my', 'no')")
        assert store.check() == [row(1).key]
        with pytest.raises(StoreError, match="is not as it was written"):
            store.rows("mine")
        assert store.rows() == [row(0), row(1)]


def test_a_configuration_that_does_not_give_the_key_is_refused(path):
    """A forged row may carry the digest of all it holds, but not the key of another configuration."""
    forged = row(0)
    vars(forged)["key"] = row(0, "NAU").key
    with Store(path) as store:
        store.add([forged])
        assert store.check() == [row(0, "NAU").key]


@pytest.mark.parametrize(("text", "why"), [('{"un', "Unterminated string"), ("[1]", "it should map names to values")])
@pytest.mark.parametrize(
    ("table", "column"), [("runs", "labels"), ("circumstances", "timing"), ("circumstances", "versions")]
)
def test_a_row_that_is_no_json_is_named(path, table, column, text, why):
    with Store(path) as store:
        store.add([row(0), row(1)])
        as_format_1(store)
        store._file.db.execute(f"UPDATE {table} SET {column} = ? WHERE seed = 0", (text,))
        for read in (store.rows, store.frame):
            with pytest.raises(StoreError, match=f"the run {row(0).key.name} in .* cannot be read: {why}"):
                read()
        assert store.check() == [row(0).key]


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_nothing_is_taken_from_a_file_with_unreadable_labels_of_shared_runs(path, tmp_path, text):
    with Store(path) as store:
        store.add([row(0), row(1)])
        store.share("mine", {row(1).key: {"unit": "my NMU"}})
        store._file.db.execute("UPDATE shared SET labels = ?, digest = NULL", (text,))
        assert store.check() == [row(1).key]
        assert store.rows() == [row(0), row(1)]
    with Store(tmp_path / "here.sqlite") as here:
        with pytest.raises(StoreError, match=rf"the run {row(1).key.name} in .*runs\.sqlite cannot be read"):
            here.import_(path)
        assert here.rows() == []
