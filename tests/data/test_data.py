"""Data sets: missing, damaged and foreign files are told apart; what is fetched is what was published."""

import gzip
import hashlib
import io
import os
import struct
import sys
import tarfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch

from numerate import data
from numerate.cli import main
from numerate.data import DataError, DataFile, DataSet, cifar10, download, mnist, ptb, text, wikitext2

CONTENT = b"the quick brown fox\n"
SUM = hashlib.sha256(CONTENT).hexdigest()


def words_set(url="", member=""):
    return DataSet("words", "Words", (DataFile("words.txt", len(CONTENT), SUM, url, member),), "none")


@pytest.fixture
def server(tmp_path):
    """The address of a folder, served on this machine alone, and the folder."""
    folder = tmp_path / "published"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as http:
        threading.Thread(target=http.serve_forever, args=[0.01], daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", folder
        http.shutdown()


def test_folder_is_the_argument_then_the_variable_then_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NUMERATE_DATA", raising=False)
    assert data.folder() == tmp_path / "numerate" / "data"
    monkeypatch.setenv("NUMERATE_DATA", "/somewhere")
    assert str(data.folder()) == "/somewhere"
    assert data.folder(tmp_path) == tmp_path


@pytest.mark.parametrize("place", ["words/words.txt", "words/words.txt.gz", "words.txt"])
def test_a_file_is_read_plain_packed_or_from_a_folder_of_its_own(tmp_path, place):
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(CONTENT) if place.endswith(".gz") else CONTENT)
    assert data.read(words_set(), "words.txt", tmp_path) == CONTENT
    assert data.status(words_set(), tmp_path) == "complete"


def test_a_missing_file_says_how_to_get_it(tmp_path):
    with pytest.raises(DataError, match=r"Words is missing.*numerate data get words.*NUMERATE_DATA"):
        data.read(words_set(), "words.txt", tmp_path)
    assert data.status(words_set(), tmp_path) == "missing"


def refusing(*_, **__):
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize(("ending", "opens"), [("", "pathlib.Path.read_bytes"), (".gz", "gzip.open")])
def test_a_file_that_cannot_be_read_is_not_called_damaged(tmp_path, monkeypatch, ending, opens):
    path = tmp_path / f"words.txt{ending}"
    path.write_bytes(gzip.compress(CONTENT) if ending else CONTENT)
    monkeypatch.setattr(opens, refusing)
    with pytest.raises(DataError) as error:
        data.read(words_set(), "words.txt", tmp_path)
    assert str(error.value) == f"{path} cannot be read: Permission denied"
    assert data.status(words_set(), tmp_path) == "unreadable"
    with pytest.raises(DataError, match="cannot be read"):
        download.get(words_set("https://nowhere.invalid/x"), tmp_path)


def test_a_folder_that_cannot_be_read_does_not_count_as_empty(tmp_path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.stat", refusing)
    with pytest.raises(DataError, match=r"words/words\.txt cannot be read: Permission denied"):
        data.read(words_set(), "words.txt", tmp_path)


@pytest.mark.parametrize(
    "content",
    [CONTENT[:-1], CONTENT.upper(), b"", gzip.compress(CONTENT)[:-6], gzip.compress(CONTENT * 1000), b"\x1f\x8bjunk"],
    ids=["cut", "altered", "empty", "packed and cut", "too long", "no archive"],
)
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / ("words.txt.gz" if content[:2] == b"\x1f\x8b" else "words.txt")).write_bytes(content)
    with pytest.raises(DataError, match=r"is damaged.*SHA-256 differs.*numerate data get words"):
        data.read(words_set(), "words.txt", tmp_path)
    assert data.status(words_set(), tmp_path) == "damaged"


def as_zip(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("inside/words.txt", content)
    return buffer.getvalue()


def as_tar(content):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo("inside/words.txt")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "pack", "member"),
    [
        ("words.txt", bytes, ""),
        ("words.gz", gzip.compress, ""),
        ("words.zip", as_zip, "inside/words.txt"),
        ("words.tar.gz", as_tar, "inside/words.txt"),
    ],
    ids=["plain", "gzip", "zip", "tar"],
)
def test_what_is_fetched_can_be_read_and_is_not_fetched_again(server, tmp_path, name, pack, member):
    address, published = server
    (published / name).write_bytes(pack(CONTENT))
    dataset, lines = words_set(f"{address}/{name}", member), []
    download.get(dataset, tmp_path, tell=lines.append)
    assert data.read(dataset, "words.txt", tmp_path) == CONTENT
    (published / name).unlink()
    download.get(dataset, tmp_path, tell=lines.append)
    assert address in lines[0]
    assert lines[1].endswith("is there")


@pytest.mark.parametrize("content", [b"something else", as_zip(CONTENT)[:40]], ids=["altered", "cut"])
def test_foreign_content_is_not_kept(server, tmp_path, content):
    address, published = server
    (published / "words.zip").write_bytes(content)
    dataset = words_set(f"{address}/words.zip", "" if content[:1] == b"s" else "inside/words.txt")
    with pytest.raises(DataError, match="nothing was kept"):
        download.get(dataset, tmp_path)
    assert not (tmp_path / "words").exists()


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("kind", ["folder", "server"])
def test_a_mirror_serves_files_by_their_names_plain_or_gzipped(server, tmp_path, kind, ending):
    address, folder = server
    (folder / f"words.txt{ending}").write_bytes(gzip.compress(CONTENT) if ending else CONTENT)
    mirror = folder.as_uri() if kind == "folder" else address
    download.get(words_set("https://nowhere.invalid/x"), tmp_path / "into", mirror)
    assert data.read(words_set(), "words.txt", tmp_path / "into") == CONTENT


def test_a_mirror_without_the_file_is_told_by_the_names_looked_for(server, tmp_path):
    address, folder = server
    for mirror in (address, folder.as_uri(), (tmp_path / "nosuch").as_uri()):
        with pytest.raises(DataError) as error:
            download.get(words_set(), tmp_path / "into", mirror)
        told = f"cannot fetch {mirror}/words.txt: there is neither words.txt nor words.txt.gz"
        assert str(error.value) == told


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("ftp://x/y", "an address starts with https:, http: or file:, got 'ftp://x/y'"),
        ("file:///no/such", "cannot fetch file:///no/such: No such file or directory"),
    ],
)
def test_an_address_that_cannot_be_used_is_named(tmp_path, address, sentence):
    with pytest.raises(DataError, match=sentence):
        download.get(words_set(address), tmp_path)


def test_published_addresses_are_https_and_sums_are_sha256():
    files = [file for dataset in data.SETS.values() for file in dataset.files]
    assert all(file.url.startswith("https://") for file in files)
    assert all(len(bytes.fromhex(file.sha256)) == 32 for file in files)


def test_idx_files_hold_big_endian_sizes_and_bytes():
    content = bytes([0, 0, 8, 3]) + struct.pack(">3i", 2, 1, 3) + bytes(range(6))
    assert mnist._idx(content).tolist() == [[[0, 1, 2]], [[3, 4, 5]]]


def test_cifar_records_are_a_label_and_three_planes():
    record = bytes([7]) + bytes([1] * 1024 + [2] * 1024 + [3] * 1024)
    images, labels = cifar10._records(record * 2)
    assert labels.tolist() == [7, 7]
    assert images.shape == (2, 3, 32, 32)
    assert [int(plane.mean()) for plane in images[1]] == [1, 2, 3]


def test_words_end_lines_by_eos_and_characters_by_newlines():
    assert text.words(b" a b \n\n c \n") == ["a", "b", "<eos>", "<eos>", "c", "<eos>"]
    assert "".join(ptb.characters(b" a bc \n d \n")) == "a_bc\nd\n"


def test_ids_are_places_among_the_symbols():
    encoded = text.encode([["b", "a"], ["a"], ["b"]], "ab")
    assert [part.tolist() for part in encoded[:3]] == [[1, 0], [0], [1]]
    assert encoded.symbols == ("a", "b")


def command(monkeypatch, capsys, *words):
    """Exit code, output and errors of ``numerate data ...``."""
    monkeypatch.setattr(sys, "argv", ["numerate", "data", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    return end.value.code or 0, out, err


def test_the_command_lists_and_refuses_in_one_sentence(monkeypatch, capsys, tmp_path):
    code, out, _ = command(monkeypatch, capsys, "list", "--data", tmp_path)
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [[name, "missing"] for name in data.SETS]
    code, _, err = command(monkeypatch, capsys, "get", "mnits")
    assert (code, err.count("\n")) == (2, 1)
    assert "there are mnist, cifar10, ptb, wikitext-2" in err
    code, _, err = command(monkeypatch, capsys, "get", "ptb", "--data", tmp_path, "--mirror", tmp_path.as_uri())
    assert (code, err.count("\n")) == (2, 1)
    assert "cannot fetch file:" in err


def test_damaged_files_are_listed_each_with_a_sentence(monkeypatch, capsys, tmp_path):
    paths = [tmp_path / f"ptb.{name}.txt" for name in ("train", "valid")]
    for path in paths:
        path.write_text("garbage")
    code, out, _ = command(monkeypatch, capsys, "list", "--data", tmp_path)
    assert code == 0
    assert [line.split()[1] for line in out.splitlines() if line.startswith("ptb ")] == ["damaged"]
    told = [line for line in out.splitlines() if line[0] == " "]
    expected = [f"  {path} is damaged: its content is not that of Penn Treebank" for path in paths]
    assert [line.partition(" (SHA-256")[0] for line in told] == expected


@pytest.mark.slow
@pytest.mark.skipif("NUMERATE_DATA" not in os.environ, reason="needs the data sets in $NUMERATE_DATA")
def test_data_sets_are_as_published():
    digits = mnist.load()
    assert torch.bincount(digits.train_labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    np.testing.assert_allclose(digits.train.float().mean() / 255, 0.1307, atol=1e-4)
    assert [len(part) for part in ptb.load_words()] == [929_589, 73_760, 82_430, 10_000]
    assert [len(part) for part in ptb.load_characters()] == [5_017_482, 393_042, 442_423, 50]
    assert [len(part) for part in wikitext2.load()] == [2_088_628, 217_646, 245_569, 33_278]
