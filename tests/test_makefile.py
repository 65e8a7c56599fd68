"""``make`` mends an environment whose installation was interrupted."""

import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="needs make")


# Does what a Python does for the Makefile, without the seconds that a real environment takes.
FAKE = """#!/bin/sh
case "$*" in
  "-m venv --clear "*) rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; touch "$4/bin/pip";;
  "-m venv --without-pip "*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python";;
  "-m pip --version") test -e "$(dirname "$0")/pip";;
  *) exit 1;;
esac
"""


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.slow)])
def python(request, tmp_path):
    if request.param == "real":
        return sys._base_executable  # type: ignore[attr-defined]
    (tmp_path / "python").write_text(FAKE)
    (tmp_path / "python").chmod(0o755)
    return str(tmp_path / "python")


@pytest.fixture
def start(tmp_path, python):
    """``make GOAL`` with an environment in a folder of its own; ``install`` stands for the command that installs."""

    def start(goal, install="$(BIN)/python -m pip --version"):
        words = [f"PYTHON={python}", f"VENV={tmp_path}/venv", f"INSTALL={install} #"]
        goal = f"{tmp_path}/venv/{goal}"
        heeds = partial(
            signal.signal, signal.SIGINT, signal.SIG_DFL
        )  # also where this process was started to ignore it
        return subprocess.Popen(
            ["make", *words, goal], cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL, preexec_fn=heeds
        )

    return start


def has_pip(venv):
    return subprocess.run([venv / "bin" / "python", "-m", "pip", "--version"], capture_output=True).returncode == 0


def test_an_environment_without_pip_is_made_anew(tmp_path, python, start):
    venv = tmp_path / "venv"
    subprocess.run([python, "-m", "venv", "--without-pip", venv], check=True)
    assert not has_pip(venv)
    assert start(".ok").wait(120) == 0
    assert has_pip(venv)
    assert start(".dev", install="true").wait(120) == 0
    assert sorted(path.name for path in venv.glob(".*") if path.name != ".gitignore") == [".dev", ".ok"]


@pytest.mark.parametrize("goal", [".ok", ".dev"])
def test_an_interrupted_installation_is_started_afresh(goal, tmp_path, start):
    venv = tmp_path / "venv"
    if goal == ".dev":
        assert start(".ok", install="true").wait(120) == 0
    # Without a child of its own: a shell whose child ends well goes on after the interruption.
    process = start(goal, install=f": > {venv}/half; exec sleep 60")
    while not (venv / "half").exists():
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) != 0
    assert not (venv / ".dev").exists()
    assert start(goal).wait(120) == 0
    assert not (venv / "half").exists()
    assert has_pip(venv)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.1, 0.3, 0.6, 1, 1.5, 2, 3, 4, 6])
def test_an_interruption_at_any_time_is_mended(delay, tmp_path, start):
    process = start(".ok")
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(30)
    assert start(".ok").wait(120) == 0
    assert has_pip(tmp_path / "venv")
