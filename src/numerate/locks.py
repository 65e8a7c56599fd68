"""A lock that a process can fork around."""

import os
from threading import RLock
from typing import Any

PATIENCE = 60.0
"""Seconds that a fork waits for what another thread does under the lock."""


class ForkSafeLock:
    """A reentrant lock that is free in a forked child, whatever other threads did at the time.

    A fork waits until the lock is free, so that the child finds whole what the lock guards; after :data:`PATIENCE`
    seconds it goes ahead, and the child gets a new lock. Where two locks are held at once, create the inner one first:
    a fork takes the last one first.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._waited = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._after_in_child)

    def __enter__(self) -> "ForkSafeLock":
        self._lock.acquire()
        return self

    def __exit__(self, *_: Any) -> None:
        self._lock.release()

    def _before(self) -> None:
        waited = self._lock.acquire(timeout=PATIENCE)
        if waited:
            self._waited = True

    def _after(self) -> None:
        if self._waited:
            self._waited = False
            self._lock.release()

    def _after_in_child(self) -> None:
        if self._waited:
            self._after()
        else:
            self._lock = RLock()
