"""Processes of this machine: one per GPU, or as many as asked for. Orders and replies go through pipes, as bytes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, Queue
from threading import Thread

from numerate.cluster.engine import Engine, Finished
from numerate.processes import Process, end, exchange, how_it_ended, start


@dataclass
class _Worker:
    """A place for one order at a time; its process is restarted when it has died."""

    environment: Mapping[str, str]
    process: Process | None = None
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
                end(worker.process)

    def _exchange(self, worker: _Worker, number: int, order: bytes) -> None:
        """Have one order done, in a thread that waits for it."""
        data, reason = None, "its worker could not be started"
        try:
            process = worker.process = self._alive(worker)
            data = exchange(process, order)
        except OSError as error:
            reason = f"its worker could not be reached: {error.strerror}"
        if data is None and worker.process:
            reason, worker.process = f"its worker {how_it_ended(end(worker.process))}", None
        self.over.put((worker, Finished(number, data, "" if data else reason)))

    def _alive(self, worker: _Worker) -> Process:
        if worker.process and worker.process.poll() is None:
            return worker.process
        return start("numerate.cluster.worker:main", worker.environment)
