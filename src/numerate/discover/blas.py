"""The threads of the BLAS while searches run."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_lock = threading.Lock()
_searches = 0
_limits: threadpool_limits | None = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, the BLAS works on one thread: the problems are small, and more threads only wait.

    The setting belongs to the process. Of searches that overlap in several threads, the first makes it and the last
    one to end takes it back.
    """
    global _searches, _limits
    with _lock:
        if _searches == 0:
            _limits = threadpool_limits(1, user_api="blas")
        _searches += 1
    try:
        yield
    finally:
        with _lock:
            _searches -= 1
            if _searches == 0 and _limits is not None:
                _limits.restore_original_limits()
                _limits = None
