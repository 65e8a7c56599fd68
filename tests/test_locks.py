"""A lock that is held by another thread at the time of a fork does not stop the child."""

import os
import subprocess
import sys
import threading

import pytest

from numerate import locks
from numerate.locks import ForkSafeLock

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),  # Python 3.12 on says so
]


def in_child(work) -> int:
    """Exit code of a forked child that calls ``work``; 99 if it hangs."""
    child = os.fork()
    if child == 0:
        import faulthandler

        faulthandler.dump_traceback_later(20, exit=True)
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def enter(lock):
    def work():
        with lock, lock:
            pass

    return work


def test_a_fork_waits_for_another_thread_and_the_child_can_take_the_lock():
    lock, held, release = ForkSafeLock(), threading.Event(), threading.Event()
    done = []

    def work():
        with lock:
            held.set()
            release.wait(0.5)
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    held.wait()
    assert in_child(lambda: done or os._exit(1)) == 0  # what the lock guards was finished first
    assert in_child(enter(lock)) == 0
    thread.join()
    enter(lock)()


def test_a_fork_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    lock, held, release = ForkSafeLock(), threading.Event(), threading.Event()

    def work():
        with lock:
            held.set()
            release.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    held.wait()
    assert in_child(enter(lock)) == 0
    release.set()
    thread.join()
    enter(lock)()


def test_a_thread_that_forks_under_the_lock_leaves_it_in_both_processes():
    lock = ForkSafeLock()
    lock.__enter__()

    def leave():
        lock.__exit__()
        enter(lock)()

    assert in_child(leave) == 0
    leave()


def test_a_child_can_trace_while_its_parent_compiles():
    """Forked in the midst of the parent's first loops."""
    code = """
import faulthandler, os, threading, time, warnings
warnings.simplefilter("ignore")
import torch
from numerate.recurrent import GRU, use_loop
from numerate.loops.tracing import trace
from numerate.recurrent.dispatch import unroll
started, forked = threading.Event(), threading.Event()
run = unroll.run_native  # torch's own first calls are not to be forked around
unroll.run_native = lambda *a, **k: (forked.wait(), run(*a, **k))[-1]
make_fx = trace.make_fx
trace.make_fx = lambda *a, **k: (started.set(), time.sleep(0.5), make_fx(*a, **k))[-1]
def forward(hidden):
    with use_loop("native"):
        return GRU(2, hidden)(torch.ones(20, 1, 2))
thread = threading.Thread(target=forward, args=[3])
thread.start()
started.wait()
child = os.fork()
forked.set()
if child == 0:
    faulthandler.dump_traceback_later(100, exit=True)
    try:
        forward(4)
    except RuntimeError as error:  # torch built for CUDA refuses derivatives in a child; what matters is no hang
        os._exit("Autograd-and-Fork" not in str(error))
    os._exit(0)
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.stdout == "0\n", done.stderr
