"""Slurm, through submitit: an order is a job, its reply a file of bytes in the folder of the jobs.

What a job returns by submitit's own way is not used. A reply appears whole, by a rename; those that a killed driver
left behind are taken in by the next one.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from numerate.cluster.engine import Engine, Finished, NoEngine, missing_extra
from numerate.devices import CPU, kind_of

WORKERS = 64
"""Jobs at the same time, unless told otherwise."""
MINUTES = 60
"""That a job may take; a piece should take two."""
POLL = 0.2
BLAMELESS = ("NODE_FAIL", "PREEMPTED", "REQUEUED", "BOOT_FAIL")


class SlurmEngine(Engine):
    """Jobs of a Slurm cluster. ``sbatch``'s environment (``SBATCH_PARTITION``, ``SBATCH_ACCOUNT``) holds for them.

    Args:
        folder: of the jobs' files, on a disk that all machines share.
        device: ``cpu`` or ``cuda``; a job then has one GPU.
        threads: cores of a job.
        workers: jobs at the same time.
        cluster: submitit's name of the executor; ``local`` and ``debug`` run jobs on this machine.
    """

    seconds = 120.0

    def __init__(
        self, folder: Path, device: str = "cpu", threads: int = 1, workers: int | None = None, cluster: str = "slurm"
    ) -> None:
        try:
            import submitit
        except ModuleNotFoundError as error:
            raise missing_extra("slurm", error.name) from None
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.workers, self.cluster = folder.absolute(), workers or WORKERS, cluster
        try:
            self.executor = submitit.AutoExecutor(folder=self.folder, cluster=cluster)
        except RuntimeError:
            raise NoEngine("--on slurm needs Slurm's commands (sbatch, sacct), which are not here") from None
        gpus = 0 if kind_of(device) is CPU else 1
        self.executor.update_parameters(
            name="numerate", timeout_min=MINUTES, cpus_per_task=threads, gpus_per_node=gpus, tasks_per_node=1
        )
        self.jobs: dict[int, tuple[Any, Path]] = {}
        self.excluded: set[str] = set()

    def slots(self) -> int:
        return self.workers

    def submit(self, number: int, order: bytes) -> None:
        reply = self.folder / f"{uuid4().hex}.reply"
        self.jobs[number] = self.executor.submit(work_to_file, order, str(reply)), reply

    def as_completed(self, seconds: float) -> Iterator[Finished]:
        until = time.monotonic() + seconds
        while True:
            over = [number for number, (job, reply) in self.jobs.items() if reply.exists() or job.done()]
            for number in over:
                yield self._finished(number, *self.jobs.pop(number))
            if over or time.monotonic() >= until:
                return
            time.sleep(POLL)

    def _finished(self, number: int, job: Any, reply: Path) -> Finished:
        try:
            data = reply.read_bytes()
            reply.unlink()
            return Finished(number, data)
        except FileNotFoundError:
            state = str(job.state)
            return Finished(number, None, f"its job {job.job_id} ended as {state}", state.startswith(BLAMELESS))

    def leftovers(self) -> Iterator[bytes]:
        for reply in self.folder.glob("*.reply"):
            yield reply.read_bytes()
            reply.unlink()

    def exclude(self, node: str) -> bool:
        if self.cluster != "slurm" or not node:
            return False
        self.excluded.add(node)
        self.executor.update_parameters(slurm_exclude=",".join(sorted(self.excluded)))
        return True

    def close(self) -> None:
        """Cancel the jobs."""
        for job, _ in self.jobs.values():
            job.cancel()
        self.jobs = {}


def work_to_file(order: bytes, path: str) -> None:
    """What a job does."""
    from numerate.cluster.worker import work

    unfinished = Path(f"{path}.{os.getpid()}")
    unfinished.write_bytes(work(order, os.environ.get("SLURMD_NODENAME", "")))
    unfinished.rename(path)
