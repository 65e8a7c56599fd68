"""Ray: orders are tasks that Ray never retries by itself, as the driver counts what each order has cost."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from numerate.cluster.engine import Engine, Finished, NoEngine, missing_extra
from numerate.devices import CPU, kind_of

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # leave CUDA_VISIBLE_DEVICES alone where no GPU was asked for
    "RAY_DEDUP_LOGS": "0",
}
STORE_BYTES = 2**28
"""Object store of a Ray that is started here; a reply has a few megabytes at most."""


class RayEngine(Engine):
    """Workers of a Ray cluster.

    Args:
        address: ``local`` starts one on this machine, ``auto`` is the one this process belongs to; else
            ``ray://host:port``.
        device: ``cpu`` or ``cuda``; an order then has one GPU for itself.
        threads: cores of an order.
        workers: orders at the same time, at most; None: as many as the cluster has room for.
    """

    def __init__(
        self, address: str = "local", device: str = "cpu", threads: int = 1, workers: int | None = None
    ) -> None:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        try:
            import ray
        except ModuleNotFoundError as error:
            raise missing_extra("ray", error.name) from None
        self.ray, self.workers, self.threads = ray, workers, threads
        self.gpus = 0 if kind_of(device) is CPU else 1
        self.ours = not ray.is_initialized()
        if self.ours:
            _connect(ray, address)
        self.tasks: dict[Any, int] = {}
        self.excluded: set[str] = set()
        self.task = ray.remote(_task())

    def slots(self) -> int:
        nodes = [n for n in self.ray.nodes() if n["Alive"] and n["NodeID"] not in self.excluded]
        count = sum(self._room(node["Resources"]) for node in nodes)
        return count if self.workers is None else min(count, self.workers)

    def _room(self, resources: dict[str, float]) -> int:
        cores = int(resources.get("CPU", 0) // self.threads)
        return min(cores, int(resources.get("GPU", 0))) if self.gpus else cores

    def submit(self, number: int, order: bytes) -> None:
        options: dict[str, Any] = {"max_retries": 0, "num_cpus": self.threads, "num_gpus": self.gpus}
        if self.excluded:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(sorted(self.excluded))})"}
        self.tasks[self.task.options(**options).remote(order)] = number

    def as_completed(self, seconds: float) -> Iterator[Finished]:
        if not self.tasks:
            time.sleep(min(seconds, 0.1))
            return
        waiting = list(self.tasks)
        ready, _ = self.ray.wait(waiting, num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self.ray.wait(waiting, num_returns=len(waiting), timeout=0)
        for task in ready:
            yield self._finished(task, self.tasks.pop(task))

    def _finished(self, task: Any, number: int) -> Finished:
        errors = self.ray.exceptions
        try:
            return Finished(number, self.ray.get(task))
        except (errors.NodeDiedError, errors.ObjectLostError, errors.OwnerDiedError):
            return Finished(number, None, "its machine left the cluster", blameless=True)
        except errors.OutOfMemoryError:
            return Finished(number, None, "its worker ran out of memory")
        except errors.WorkerCrashedError:
            return Finished(number, None, "its worker died: it was killed, or crashed")
        except errors.RayTaskError as error:
            return Finished(number, None, str(error.cause or error).strip().splitlines()[-1])
        except errors.RayError as error:
            return Finished(number, None, str(error).strip().splitlines()[0])

    def exclude(self, node: str) -> bool:
        self.excluded.add(node)
        return bool(node)

    def close(self) -> None:
        """End the tasks; a Ray that was started here ends too."""
        for task in self.tasks:
            try:
                self.ray.cancel(task, force=True)
            except Exception:  # it is over, or the cluster is gone
                continue
        self.tasks = {}
        if self.ours:
            self.ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        settings |= {"include_dashboard": False, "object_store_memory": STORE_BYTES}
    try:
        ray.init(address=address, **settings)
    except (ConnectionError, RuntimeError, ValueError, ImportError, OSError) as error:
        place = {"local": "start a local Ray", "auto": "find the Ray cluster of this job"}
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise NoEngine(f"cannot {place.get(address, f'reach Ray at {address}')}: {reason}") from None
    logging.getLogger("ray").setLevel(logging.CRITICAL)  # what becomes of workers is told by the driver


def _task() -> Callable[[bytes], bytes]:
    """The task; Ray sends it whole, so that a machine with another numerate, or none, can say so."""

    def numerate_order(data: bytes) -> bytes:
        import json
        import platform

        import ray

        node = ray.get_runtime_context().get_node_id()
        try:
            from numerate.cluster.worker import work
        except ImportError as error:
            sentence = f"no numerate that can work here ({error}); install the same versions there"
            header = {"kind": "refused", "where": platform.node(), "node": node, "sentence": sentence}
            text = json.dumps(header).encode()
            return len(text).to_bytes(8, "little") + text
        return work(data, node)

    return numerate_order
