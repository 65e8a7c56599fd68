"""Compiling, loading and unloading libraries, and the native random streams."""

import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from numerate.loops.toolchain import cache_folder, compiler, native
from numerate.streams import uniform

SEEDS = torch.tensor([0, 1, 5, 2**32 - 1, 2**40 + 7, 2**63 - 1])

needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler on this machine"
)


ANSWER = 'extern "C" int answer() { return 42; }'


def forget():
    """Unload what nothing uses."""
    native._recent.clear()
    gc.collect()


@pytest.fixture(autouse=True)
def _anew():
    """Nothing is loaded, and every notice is said again."""
    forget()
    for remembered in (cache_folder.notice, cache_folder._usable, compiler.target, compiler.available):
        remembered.cache_clear()


@pytest.fixture
def home(monkeypatch, tmp_path):
    """The user's own cache is empty."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


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
    monkeypatch.setattr(compiler.shutil, "which", lambda name: None)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
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
    assert native.library(ANSWER).answer() == 42
    forget()
    monkeypatch.setattr(compiler, "build", None)
    assert native.library(ANSWER).answer() == 42


@needs_compiler
@pytest.mark.parametrize("command", ["echo", "true", "cat", "false", "env", "'unfinished"])
def test_a_cxx_that_is_no_compiler_is_said_clearly(command, monkeypatch):
    monkeypatch.setenv("CXX", command)
    with pytest.raises(native.NoCompiler, match=r"does not work as a C\+\+ compiler|which is not a command"):
        native.library(ANSWER)


def test_a_wrong_compiler_costs_one_notice_and_no_more():
    code = """
import logging, torch
logging.basicConfig(format="%(message)s")
from numerate.recurrent import GRU
from numerate.tasks import SingleModule
from numerate.train import Training, backends, stack
from numerate.units import NMU
training = Training(NMU, SingleModule("mul"), (0,))
for _ in range(2):
    chosen, loop = backends.choose(lambda: stack.make_step(training)[0])
    torch.manual_seed(0)
    outputs, _ = GRU(2, 3)(torch.ones(20, 1, 2))
print(chosen, outputs.shape[0])
"""
    environment = os.environ | {"CXX": "echo"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "stacked-cpu 20\n"
    assert len(done.stderr.splitlines()) == 2  # one of the engine, one of the layers
    assert done.stderr.count("echo does not work as a C++ compiler") == 2


# ---------------------------------------------------------------- a cache that cannot be trusted or written


def planted(folder, answer=666):
    """A cache in which every library gives another answer, whole and with its digest."""
    fake = cache_folder.Cache(folder)
    native.library(ANSWER)
    for entry in cache_folder.current().entries():
        (fake.folder / entry.path.name).mkdir(mode=0o700)
        for path in entry.path.iterdir():
            shutil.copy(path, fake.folder / entry.path.name)
        code, library = (fake.path(entry.path.name, name) for name in ("loop.cpp", "loop.so"))
        code.write_text(ANSWER.replace("42", str(answer)))
        compiler.build(compiler.find_compiler(), compiler.FLAGS, code, library)
        lines = (cache_folder._line(path.read_bytes(), path.name) for path in (code, library))
        fake.path(entry.path.name, "sha256").write_text("".join(lines))
        for path in (code, library):
            path.chmod(0o600)
    forget()
    cache_folder.current().clear()


@needs_compiler
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770], ids=oct)
def test_a_library_that_another_user_could_have_planted_is_not_loaded(mode, tmp_path, monkeypatch, caplog):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o700)
    planted(shared)
    monkeypatch.setenv("NUMERATE_CACHE", str(shared))
    assert native.library(ANSWER).answer() == 666  # from a folder of one's own it would be
    shared.chmod(mode)
    forget()
    cache_folder._usable.cache_clear()
    assert native.library(ANSWER).answer() == 42
    (notice,) = caplog.messages
    assert f"the cache folder {shared} is not used: other users may write to it" in notice


@needs_compiler
@pytest.mark.parametrize("size", [0, 20, 4096, 10_000])
def test_a_truncated_library_is_built_once_more(size, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path))
    native.library(ANSWER)
    forget()
    (path,) = tmp_path.glob("*/loop.so")
    path.write_bytes(path.read_bytes()[:size])
    assert native.library(ANSWER).answer() == 42
    assert path.stat().st_size > 10_000


@needs_compiler
@pytest.mark.usefixtures("home")
def test_a_cache_folder_that_cannot_be_written_costs_a_notice_and_no_more(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path / "file" / "cache"))
    for answer in (42, 43):
        assert native.library(f'extern "C" int answer() {{ return {answer}; }}').answer() == answer
    (notice,) = caplog.messages
    assert f"the cache folder {tmp_path}/file/cache is not used: nothing can be written to it" in notice


@needs_compiler
def test_a_full_disk_costs_a_notice_and_no_more(tmp_path, monkeypatch, caplog):
    """The compiler is one that finds no space in the cache folder."""
    script = tmp_path / "compiler"
    full = f'case "$*" in *-shared*{tmp_path}/cache*) echo "fatal error: error writing: No space left on device" >&2'
    script.write_text(f'#!/bin/sh\n{full}; exit 1;; esac\nexec {shutil.which("g++") or "clang++"} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path / "cache"))
    for answer in (42, 43):
        assert native.library(f'extern "C" int answer() {{ return {answer}; }}').answer() == answer
    (notice,) = caplog.messages
    assert f"libraries cannot be cached in {tmp_path}/cache (No space left on device)" in notice
    assert not list((tmp_path / "cache").iterdir())


@needs_compiler
@pytest.mark.usefixtures("home")
def test_a_machine_without_any_space_is_said_clearly(monkeypatch):
    def full(*_, **__):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(cache_folder.tempfile, "mkdtemp", full)
    with pytest.raises(native.CompileError, match=r"^no library can be built or loaded \(No space left on device\)$"):
        native.library(ANSWER)


@needs_compiler
def test_two_processes_may_build_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path))
    code = """
import torch
from numerate.loops.toolchain.native import philox_uniform
print(philox_uniform(torch.arange(2), 1, 0, 1, 1).sum())
"""
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
    first, second = (process.communicate()[0] for process in processes)
    assert first == second != b""
    (entry,) = tmp_path.iterdir()
    assert sorted(path.name for path in entry.iterdir()) == ["loop.cpp", "loop.so", "sha256"]


# ---------------------------------------------------------------- unloading


def loaded(folder):
    """Libraries of a cache folder that are mapped into this process."""
    return {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line}


@needs_compiler
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks Linux which libraries are loaded")
def test_libraries_that_nothing_uses_are_unloaded_and_those_in_use_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(native, "RECENT", 2)
    monkeypatch.setattr(native, "_collected", 2)
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path))
    used = native.library("// used\n" + ANSWER)
    function = native.library("// its function is used\n" + ANSWER).answer
    for k in range(8):
        assert native.library(f"// {k}\n{ANSWER}").answer() == 42
    assert len(loaded(tmp_path)) <= 6
    gc.collect()
    assert len(loaded(tmp_path)) == 4  # those two, and two recent ones
    assert used.answer() == function() == 42


@needs_compiler
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks Linux which libraries are loaded")
def test_a_library_is_not_unloaded_during_a_call(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path))
    source = 'extern "C" int usleep(unsigned); extern "C" int wait() { usleep(500000); return 42; }'
    answers = []
    thread = threading.Thread(target=lambda wait: answers.append(wait()), args=[native.library(source).wait])
    thread.start()
    forget()
    assert len(loaded(tmp_path)) == 1
    thread.join()
    assert answers == [42]
    del thread
    gc.collect()
    assert not loaded(tmp_path)


@needs_compiler
def test_a_killed_build_is_cleaned_up(tmp_path, monkeypatch):
    """The compiler kills the process that waits for it, as a machine that goes down does."""
    script = tmp_path / "compiler"
    gone = f'case "$*" in *-shared*) kill -{int(signal.SIGKILL)} $PPID; exit 1;; esac'
    script.write_text(f'#!/bin/sh\n{gone}\nexec {shutil.which("g++") or "clang++"} "$@"\n')
    script.chmod(0o755)
    code = "from numerate.loops.toolchain.native import library; library('int x;')"
    folder = tmp_path / "cache"
    environment = os.environ | {"CXX": str(script), "NUMERATE_CACHE": str(folder)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == -signal.SIGKILL
    left = list(folder.iterdir())  # what was being built, and its lock
    assert len(left) == 2
    for path in left:
        assert path.name.startswith("build-")
        os.utime(path, (0, 0))
    monkeypatch.setenv("NUMERATE_CACHE", str(folder))
    assert native.library(ANSWER).answer() == 42
    assert not any(path.exists() for path in left)


@needs_compiler
def test_processes_that_need_one_library_at_the_same_time_compile_it_once(tmp_path):
    script, calls = tmp_path / "compiler", tmp_path / "calls"
    noted = f'case "$*" in *-shared*) echo once >> {calls}; sleep 0.5;; esac'
    script.write_text(f'#!/bin/sh\n{noted}\nexec {shutil.which("g++") or "clang++"} "$@"\n')
    script.chmod(0o755)
    code = "from numerate.loops.toolchain.native import library; library('int x;')"
    environment = os.environ | {"CXX": str(script), "NUMERATE_CACHE": str(tmp_path / "cache")}
    running = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert calls.read_text() == "once\n"
    assert len(list((tmp_path / "cache").iterdir())) == 1  # and no lock is left


@pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="needs the extra numerate[compiler]")
def test_compiler_from_the_package_registry_works(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler.shutil, "which", lambda name: None)
    assert "ziglang" in native.find_compiler()
    native._philox.cache_clear()
    try:
        assert torch.equal(native.philox_uniform(SEEDS, 3, 0, 1, 70)[0], uniform(SEEDS, 3, 0, 70))
    finally:
        native._philox.cache_clear()
