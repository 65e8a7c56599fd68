"""How, where and when a run was done: kept beside its result, and never part of a comparison."""

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np

from numerate import __version__
from numerate.results.encoding import canonical, decode_mapping


@dataclass(frozen=True)
class Provenance:
    """How, where and when a run was done; a resumed run may differ in all of this.

    Args:
        backend: the loop that trained it.
        versions: package name -> version.
        hardware: machine, cores, device.
        timing: ``seconds`` of this run, or ``group_seconds`` and ``group_runs`` of the group it was trained in.
        created: date and time, ISO 8601.
    """

    backend: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, float] = field(default_factory=dict)
    created: str = ""

    @property
    def seconds(self) -> float:
        """Time of this run alone: measured, or its share of its group; 0 if nobody measured."""
        alone = self.timing.get("seconds", 0.0)
        return alone or self.timing.get("group_seconds", 0.0) / max(1.0, self.timing.get("group_runs", 1.0))

    @cached_property
    def stored(self) -> tuple[str, str, str, str, str]:
        """As it is stored; the runs of a group share it."""
        texts = (canonical(self.versions), canonical(self.hardware), canonical(self.timing))
        return self.backend, *texts, self.created

    @classmethod
    def here(cls, backend: str = "", timing: Mapping[str, float] | None = None, device: str = "cpu") -> Self:
        """This process, this machine, now; torch is asked only if it is already imported."""
        versions = {"numerate": __version__, "python": platform.python_version(), "numpy": np.__version__}
        hardware: dict[str, Any] = {"machine": platform.machine(), "cores": os.cpu_count(), "device": device}
        hardware["system"] = platform.system()
        if torch := sys.modules.get("torch"):
            versions["torch"] = str(torch.__version__)
            if device.startswith("cuda"):
                hardware["accelerator"] = torch.cuda.get_device_name(device)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(backend, versions, hardware, dict(timing or {}), created)


@lru_cache(maxsize=64)
def from_stored(backend: str, versions: str, hardware: str, timing: str, created: str) -> Provenance:
    """The inverse of :attr:`Provenance.stored`. Raises ValueError if a text is not what we write."""
    return Provenance(backend, decode_mapping(versions), decode_mapping(hardware), decode_mapping(timing), created)
