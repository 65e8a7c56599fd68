"""Processes of this machine: one per GPU, or as many as asked for. Orders and replies go through pipes, as bytes."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Queue
from threading import Thread

from numerate.cluster.engine import Engine, Finished
from numerate.cluster.worker import receive, send

PATIENCE = 5.0
"""Seconds for a process that has closed its pipe to end."""


@dataclass
class _Worker:
    """A place for one order at a time; its process is restarted when it has died."""

    environment: Mapping[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    number: int | None = None


class LocalEngine(Engine):
    """Workers that are processes of this machine.

    Args:
        environments: what is special in the environment of each worker: ``{"CUDA_VISIBLE_DEVICES": "2"}``.
    """

    def __init__(self, environments: Sequence[Mapping[str, str]]) -> None:
        self.workers = [_Worker(environment) for environment in environments]
        self.threads: list[Thread] = []
        self.over: Queue[tuple[_Worker, Finished]] = Queue()

    def slots(self) -> int:
        return len(self.workers)

    def submit(self, number: int, order: bytes) -> None:
        worker = next(worker for worker in self.workers if worker.number is None)
        worker.number = number
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        self.threads.append(Thread(target=self._exchange, args=(worker, number, order), daemon=True))
        self.threads[-1].start()

    def as_completed(self, seconds: float) -> Iterator[Finished]:
        while True:
            try:
                worker, finished = self.over.get(timeout=seconds)
            except Empty:
                return
            worker.number = None
            seconds = 0.001
            yield finished

    def close(self) -> None:
        for worker in self.workers:
            if worker.process:
                worker.process.kill()
        for thread in self.threads:
            thread.join()
        for worker in self.workers:
            if worker.process:
                _end(worker.process)

    def _exchange(self, worker: _Worker, number: int, order: bytes) -> None:
        """Have one order done, in a thread that waits for it."""
        data, reason = None, "its worker could not be started"
        try:
            process = worker.process = self._alive(worker)
            assert process.stdin
            assert process.stdout
            send(process.stdin, order)
            data = receive(process.stdout)
        except OSError as error:
            reason = f"its worker could not be reached: {error.strerror}"
        if data is None and worker.process:
            reason, worker.process = _ended(_end(worker.process)), None
        self.over.put((worker, Finished(number, data, "" if data else reason)))

    def _alive(self, worker: _Worker) -> "subprocess.Popen[bytes]":
        if worker.process and worker.process.poll() is None:
            return worker.process
        command = [sys.executable, "-c", "from numerate.cluster.worker import main; main()"]
        environment = {**os.environ, **worker.environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )


def _end(process: "subprocess.Popen[bytes]") -> int:
    """Its exit code, once it has ended; one that does not is killed."""
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            assert pipe
            pipe.close()
    return process.wait()


def _ended(code: int) -> str:
    return f"its worker was killed by signal {-code}" if code < 0 else f"its worker ended with exit code {code}"
