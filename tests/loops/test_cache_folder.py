"""The cache folder belongs to one user, holds whole files, stays within a bound, and can be missing."""

import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from numerate.loops.toolchain import cache_folder
from numerate.loops.toolchain.cache_folder import Cache

KEY, OTHER = "0" * 32, "1" * 32


@pytest.fixture(autouse=True)
def _notices_anew(monkeypatch, tmp_path):
    for remembered in (cache_folder.notice, cache_folder._usable, cache_folder._temporary):
        remembered.cache_clear()
    for name in ("NUMERATE_CACHE", "NUMERATE_CACHE_SIZE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "cache"
    path.mkdir(mode=0o700)
    return Cache(path)


def write(content, name="loop.so"):
    return lambda folder: (folder / name).write_bytes(content)


def test_what_is_added_is_read(folder):
    assert folder.read(KEY, "loop.so") is None
    folder.add(KEY, write(b"numbers"))
    assert folder.read(KEY, "loop.so") == b"numbers"
    assert folder.read(KEY, "other") is None
    assert [path.name for path in folder.folder.iterdir()] == [KEY]


def test_the_list_of_digests_is_the_one_of_sha256sum(folder):
    folder.add(KEY, write(b"numbers"))
    subprocess.run(["sha256sum", "--check", "--strict", "sha256"], cwd=folder.folder / KEY, check=True)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


def link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def open_to_all(path):
    path.chmod(0o666)


def open_folder(path):
    path.parent.chmod(0o777)


def file_for_folder(path):
    shutil.rmtree(path.parent)
    path.parent.write_text("")


DAMAGES = [file_for_folder, truncate, flip, link, open_to_all, open_folder, Path.unlink]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["loop.so", "sha256"])
def test_what_is_damaged_or_not_ours_alone_is_not_read_and_can_be_replaced(folder, damage, name):
    folder.add(KEY, write(b"numbers"))
    damage(folder.path(KEY, name))
    assert folder.read(KEY, "loop.so") is None
    folder.add(KEY, write(b"better"))
    assert folder.read(KEY, "loop.so") == b"better"
    assert [path.name for path in folder.folder.iterdir()] == [KEY]


def test_a_finished_entry_of_another_process_is_kept(folder):
    folder.add(KEY, write(b"first"))
    folder.add(KEY, write(b"second"))
    assert folder.read(KEY, "loop.so") == b"first"


def test_what_another_user_owns_is_not_read(folder, monkeypatch, caplog):
    folder.add(KEY, write(b"planted"))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert folder.read(KEY, "loop.so") is None
    assert "belongs to another user" in caplog.text


def test_a_failed_entry_leaves_nothing(folder):
    def fail(_):
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        folder.add(KEY, fail)
    assert not list(folder.folder.iterdir())


# ---------------------------------------------------------------- bounds


def test_the_least_recently_used_entries_are_removed(folder):
    for k in range(6):
        folder.add(f"{k:032x}", write(bytes(1000)))
        os.utime(folder.folder / f"{k:032x}", (k, k))
    assert folder.read(f"{0:032x}", "loop.so")  # now the most recent
    folder.sweep(limit=4400)
    assert sorted(int(path.name, 16) for path in folder.folder.iterdir()) == [0, 4, 5]


def test_new_entries_keep_to_the_limit(folder, monkeypatch):
    monkeypatch.setenv("NUMERATE_CACHE_SIZE", "0.1")
    monkeypatch.setattr(cache_folder, "SWEEP_EVERY", 5)
    for k in range(40):
        folder.add(f"{k:032x}", write(bytes(10_000)))
        assert folder.read(f"{k:032x}", "loop.so")
    assert sum(entry.size for entry in folder.entries()) < 0.16e6


def test_a_wrong_limit_is_said_once(monkeypatch, caplog):
    monkeypatch.setenv("NUMERATE_CACHE_SIZE", "much")
    assert cache_folder.size_limit() == cache_folder.size_limit() == cache_folder.LIMIT * 1e6
    (notice,) = caplog.messages
    assert "NUMERATE_CACHE_SIZE must be a number of megabytes, got 'much'" in notice


def test_leftovers_of_killed_processes_are_removed(folder):
    old, young = folder.folder / "build-old", folder.folder / "build-young"
    for path in (old, young):
        path.mkdir()
        (path / "loop.cpp").write_text("")
    before = time.time() - 2 * cache_folder.ABANDONED
    os.utime(old, (before, before))
    folder.add(KEY, write(b"numbers"))
    assert not old.exists()
    assert young.exists()


def test_clearing_removes_everything_of_ours_and_nothing_else(folder):
    folder.add(KEY, write(bytes(100)))
    (folder.folder / f"{OTHER}.so").write_bytes(bytes(10))  # of an earlier version
    (folder.folder / "build-x").mkdir()
    (folder.folder / "letter.txt").write_text("")
    assert folder.clear() > 110
    assert [path.name for path in folder.folder.iterdir()] == ["letter.txt"]


# ---------------------------------------------------------------- which folder


def test_a_folder_is_made_for_this_user_alone(tmp_path, caplog):
    folder = cache_folder.current().folder
    assert folder == tmp_path / "home" / ".cache" / "numerate"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not caplog.messages


def test_a_shared_folder_is_refused_for_the_users_own(tmp_path, monkeypatch, caplog):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("NUMERATE_CACHE", str(shared))
    assert cache_folder.current().folder == tmp_path / "home" / ".cache" / "numerate"
    assert cache_folder.current() is cache_folder.current()
    (notice,) = caplog.messages
    assert notice.startswith(f"the cache folder {shared} is not used: other users may write to it; ")


def test_a_folder_that_others_can_replace_is_refused(tmp_path, monkeypatch, caplog):
    (tmp_path / "open" / "cache").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path / "open" / "cache"))
    assert cache_folder.current().folder == tmp_path / "home" / ".cache" / "numerate"
    assert f"it lies in {tmp_path}/open, to which other users may write" in caplog.text


def test_without_a_home_a_temporary_folder_is_used(monkeypatch, caplog):
    def nobody(_):
        raise KeyError("no such user")

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    folder = cache_folder.current()
    assert folder is cache_folder.temporary()
    folder.add(KEY, write(b"numbers"))
    assert folder.read(KEY, "loop.so") == b"numbers"
    (notice,) = caplog.messages
    assert "this user has no home folder" in notice
