"""Compiling, caching, and the native random streams."""

import importlib.util
import shutil
import subprocess
import sys

import pytest
import torch

from numerate.loops.toolchain import native
from numerate.streams import uniform

SEEDS = torch.tensor([0, 1, 5, 2**32 - 1, 2**40 + 7, 2**63 - 1])

needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler on this machine"
)


@needs_compiler
@pytest.mark.parametrize("count", [1, 3, 4, 63, 64, 65, 1000])
@pytest.mark.parametrize("step", [0, 7, 2**32 - 2])
def test_native_streams_equal_the_reference_bit_for_bit(count, step):
    expected = torch.stack([uniform(SEEDS, 3, step + t, count) for t in range(4)])
    assert torch.equal(native.philox_uniform(SEEDS, 3, step, 4, count), expected)


@needs_compiler
def test_streams_do_not_depend_on_threads():
    one, three = (native.philox_uniform(SEEDS, 1, 0, 5, 9, threads) for threads in (1, 3))
    assert torch.equal(one, three)


def test_no_compiler_is_said_clearly(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(native.shutil, "which", lambda name: None)
    monkeypatch.setattr(native.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(native.NoCompiler, match=r"numerate\[compiler\]"):
        native.library("int x;")


def test_wrong_cxx_is_said_clearly(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(native.NoCompiler, match="no-such-compiler"):
        native.find_compiler()


@needs_compiler
def test_compiler_messages_are_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path))
    with pytest.raises(native.CompileError, match="nonsense"):
        native.library("nonsense;")
    assert not list(tmp_path.iterdir())


@needs_compiler
def test_source_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path))
    source = 'extern "C" int answer() { return 42; }'
    assert native.library(source).answer() == 42
    monkeypatch.setattr(native, "_compile", None)
    assert native.library(source).answer() == 42


@needs_compiler
def test_a_damaged_library_is_built_once_more(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path))
    build, built = native._compile, []

    def truncated(*arguments):
        build(*arguments)
        built.append(arguments[-1])
        if len(built) == 1:
            built[-1].write_bytes(built[-1].read_bytes()[:20])

    monkeypatch.setattr(native, "_compile", truncated)
    with pytest.raises(native.CompileError, match=rf"^libraries cannot be loaded from {tmp_path} \(file too short\)"):
        native.library('extern "C" int answer() { return 42; }')
    assert native.library('extern "C" int answer() { return 42; }').answer() == 42
    assert len(built) == 2


@needs_compiler
def test_a_cache_folder_that_cannot_be_written_costs_a_notice_and_no_more(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path / "file" / "cache"))
    for answer in (42, 43):
        assert native.library(f'extern "C" int answer() {{ return {answer}; }}').answer() == answer
    (notice,) = caplog.messages
    assert f"nothing can be kept in the cache folder {tmp_path}" in notice


@needs_compiler
def test_two_processes_may_build_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path))
    code = "from numerate.loops.toolchain.native import *; print(philox_uniform(torch.arange(2), 1, 0, 1, 1).sum())"
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
    first, second = (process.communicate()[0] for process in processes)
    assert first == second != b""
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".cpp", ".so"]


@pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="needs the extra numerate[compiler]")
def test_compiler_from_the_package_registry_works(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path))
    monkeypatch.setattr(native.shutil, "which", lambda name: None)
    assert "ziglang" in native.find_compiler()
    native._philox.cache_clear()
    try:
        assert torch.equal(native.philox_uniform(SEEDS, 3, 0, 1, 70)[0], uniform(SEEDS, 3, 0, 70))
    finally:
        native._philox.cache_clear()
