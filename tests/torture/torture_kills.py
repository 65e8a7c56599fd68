"""Runs that are killed or interrupted at random moments: continued, they give the rows of one that was not."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from torture_frame import Result, Setting, environment

from numerate.results import Store

TRAINING = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
from numerate.results import Store
from numerate.tasks import SingleModule
from numerate.train import Training, train
from numerate.units import NMU, NALU
seeds, sizes = tuple(range(3)), {"steps": 600, "evaluate_every": 20, "evaluation_size": 50, "batch": 16}
work = [
    Training(unit, SingleModule(operation), seeds, labels={"unit": unit.__name__, "operation": operation}, **sizes)
    for unit in (NMU, NALU) for operation in ("mul", "add")
]
print("ready", flush=True)
with Store(Path(sys.argv[1])) as store:
    for training in work:
        train([training], store, experiment="torture", backend="stacked", checkpoint_seconds=0.02)
print("done", flush=True)
"""
"""Four groups of three runs, with a checkpoint at almost every evaluation."""

BY_SIGNAL = -2
"""The command was over and Python on its way out; a shell shows it as 130 too."""
COMMAND = ["run", "primer2022/table11", "--size", "smoke", "--units", "NMU,NALU", "--seeds", "2", "--ranges", "[1,2)"]


def _started(path: Path) -> subprocess.Popen[str]:
    """The training, once it has begun."""
    running = subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(path)], stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert running.stdout
    assert running.stdout.readline() == "ready\n"
    return running


def _finished(running: subprocess.Popen[str]) -> bool:
    assert running.stdout
    with running:
        return running.stdout.read() == "done\n"


def _digest(path: Path) -> tuple[int, str]:
    with Store(path) as store:
        refused = store.check()
        assert not refused, f"{len(refused)} runs are not as they were written"
        return len(store.rows()), store.digest()


def killed_trainings(setting: Setting) -> Result:
    """kill -9 at random moments, again and again until a start is left to finish."""
    reference = setting.folder / "reference.sqlite"
    running = _started(reference)
    began = time.monotonic()
    if not _finished(running):
        return Result(1, {}, ("the training fails without being killed",))
    length, expected = time.monotonic() - began, _digest(reference)
    counts: Counter[str] = Counter()
    failures = []
    tried = 0
    for number in range(setting.times(1, 25)):
        path = setting.folder / f"{number}.sqlite"
        for _ in range(setting.times(2, 5)):
            running = _started(path)
            time.sleep(setting.draw.uniform(0, length / 2))
            running.send_signal(signal.SIGKILL)
            counts["had finished" if _finished(running) else "killed"] += 1
            tried += 1
        if not _finished(_started(path)):
            failures.append(f"history {number}: it cannot be continued")
        elif _digest(path) != expected:
            failures.append(f"history {number}: its rows are not those of an uninterrupted one")
        else:
            counts["continued to the same rows"] += 1
    return Result(tried, dict(counts), tuple(failures))


def interrupted_commands(setting: Setting) -> Result:
    """Ctrl-C at random moments of the command, imports included: exit code 130, one sentence, then continued."""
    reference = setting.folder / "reference"
    began = time.monotonic()
    code, told = _command(reference, None)
    length = time.monotonic() - began
    if code != 0:
        return Result(1, {}, (f"the command fails without being interrupted: {told}",))
    expected = _digest(reference / "results.sqlite")
    counts: Counter[str] = Counter()
    failures = []
    tried = setting.times(2, 60)
    out = setting.folder / "interrupted"
    for number in range(tried):
        code, told = _command(out, setting.draw.uniform(0, length))
        counts[f"exit {code}"] += 1
        if code not in (0, 130, BY_SIGNAL) or told not in ("", "stopped; the same command continues where it was\n"):
            failures.append(f"attempt {number}: exit code {code}: {told.strip()[-300:]}")
        if code == 0:
            failures += _differs(out, expected, number)
            shutil.rmtree(out)
    code, told = _command(out, None)
    failures += [f"it cannot be continued: {told}"] if code else _differs(out, expected, tried)
    return Result(tried, dict(sorted(counts.items())), tuple(failures))


def _differs(out: Path, expected: tuple[int, str], number: int) -> list[str]:
    same = _digest(out / "results.sqlite") == expected
    return [] if same else [f"attempt {number}: the rows are not those of an uninterrupted run"]


def _command(out: Path, delay: float | None) -> tuple[int, str]:
    """Exit code and complaints of the command, with Ctrl-C after a while."""
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from numerate.__main__ import main; print('ready', flush=True); main()"
    command = [sys.executable, "-c", code, *COMMAND, "--out", os.fspath(out)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as running:
        assert running.stdout
        assert running.stdout.readline() == "ready\n"
        if delay is not None:
            try:
                running.wait(delay)
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGINT)
        _, told = running.communicate()
    return running.returncode, told


ATTACKS = {"kills": killed_trainings, "interrupts": interrupted_commands}
