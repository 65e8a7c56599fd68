"""What ``--on`` and ``--device`` name: an engine, or the devices of this machine."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from numerate.cluster.engine import Engine
from numerate.cluster.local_engine import LocalEngine
from numerate.devices import kind_of, listed_devices

PLACES = "ray, ray://host:port, auto or slurm"


def open_engine(on: str | None, device: str, threads: int | None, workers: int | None, folder: Path) -> Engine | None:
    """The engine that is asked for; None if this process can train by itself.

    Args:
        on: one of :data:`PLACES`; None: this machine, which needs workers for several GPUs only.
        device: as for ``numerate run``.
        threads: cores of a worker; None: 1.
        workers: at most so many; None: as many as there is room for.
        folder: for the files of jobs, on a disk that all machines share.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if on is None:
        if workers is not None:
            raise ValueError("--workers goes with --on")
        devices = listed_devices(device)
        return LocalEngine(gpu_environments(devices, os.environ)) if len(devices) > 1 else None
    if on not in ("ray", "auto", "slurm") and not (on.startswith("ray://") and on != "ray://"):
        raise ValueError(f"--on is {PLACES}, got {on!r}")
    if device != kind_of(device).name:
        raise ValueError(f"on a cluster the engine chooses the GPUs: --device is cpu or cuda, got {device!r}")
    if on == "slurm":
        from numerate.cluster.slurm_engine import SlurmEngine

        return SlurmEngine(folder, device, threads or 1, workers)
    from numerate.cluster.ray_engine import RayEngine

    return RayEngine("local" if on == "ray" else on, device, threads or 1, workers)


def gpu_environments(devices: Sequence[str], environment: Mapping[str, str]) -> list[dict[str, str]]:
    """For each of several GPUs, the environment of a process that sees it alone."""
    visible = [part for part in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if part]
    numbers = [int(device.partition(":")[2]) for device in devices]
    return [{"CUDA_VISIBLE_DEVICES": visible[i] if visible else str(i)} for i in numbers]
