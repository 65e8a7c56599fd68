"""The kinds of device that loops run on. Everything that differs between them is a field of one record.

Code asks a field (``kind_of(device).asynchronous``) or looks up its own table by ``kind_of(device)``; it does not
compare names. torch is imported when a function needs it.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DeviceKind:
    """One kind of device.

    Args:
        name: torch's name of the type, as in ``cuda:0``.
        asynchronous: whether work is queued on streams and finishes later.
        concurrent_groups: how many groups of runs are trained at the same time.
        stacked_members: fewest and most members that the stacked loop computes together.
        stacked_numbers: how many numbers the largest tensor of the stacked loop may have.
        fused_recurrence: whether torch has one fused operation for a whole sequence (cuDNN).
        autocast_storage: whether time loops store numbers of autocast's type; elsewhere they keep single precision.
    """

    name: str
    asynchronous: bool
    concurrent_groups: int
    stacked_members: tuple[int, int]
    stacked_numbers: int
    fused_recurrence: bool
    autocast_storage: bool

    def available(self) -> bool:
        """Whether torch finds such a device here."""
        import torch

        return self is CPU or getattr(torch, self.name).is_available()

    def hardware(self, device: str) -> str | None:
        """What the maker calls the device, where torch can tell; the CPU is described by the machine."""
        import torch

        return None if self is CPU else getattr(torch, self.name).get_device_name(device)


CPU = DeviceKind(
    name="cpu",
    asynchronous=False,
    concurrent_groups=1,
    stacked_members=(16, 256),
    stacked_numbers=2**18,  # about what a core's second-level cache holds
    fused_recurrence=False,
    autocast_storage=False,
)
CUDA = DeviceKind(
    name="cuda",
    asynchronous=True,
    concurrent_groups=12,  # one group seldom fills a GPU
    stacked_members=(256, 4096),
    stacked_numbers=2**28,
    fused_recurrence=True,
    autocast_storage=True,
)
KINDS = {kind.name: kind for kind in (CPU, CUDA)}


def find_kind(device: Any) -> DeviceKind | None:
    """The kind of a ``torch.device`` or of its name (``cuda:1``); None for a kind that no loop of ours runs on."""
    return KINDS.get(str(device).partition(":")[0])


def kind_of(device: Any) -> DeviceKind:
    """As :func:`find_kind`; raises ValueError for a device of another kind."""
    kind = find_kind(device)
    if kind is None:
        raise ValueError(f"device must be {' or '.join(KINDS)}, got {str(device)!r}")
    return kind


def available_kind(device: Any) -> DeviceKind:
    """As :func:`kind_of`; raises ValueError, too, if torch finds no such device here."""
    kind = kind_of(device)
    if not kind.available():
        name = kind.name
        raise ValueError(f"device {name} was requested, but torch finds no {name.upper()} device; use {CPU.name}")
    return kind


def listed_devices(device: str) -> list[str]:
    """The devices of this machine that a user names: ``cuda`` is every visible GPU, ``cuda:0,2`` these two.

    Raises ValueError for one that is not there.
    """
    kind, (_, _, numbers) = available_kind(device), device.partition(":")
    if kind is CPU:
        return [device]
    import torch

    count = getattr(torch, kind.name).device_count()
    if not numbers:
        return [f"{kind.name}:{i}" for i in range(count)] if count > 1 else [device]
    parts = [part.strip() for part in numbers.split(",")]
    if not all(part.isdigit() and int(part) < count for part in parts) or len(set(parts)) < len(parts):
        raise ValueError(
            f"device must be {kind.name} or some of {kind.name}:{','.join(map(str, range(count)))}, got {device!r}"
        )
    return [f"{kind.name}:{int(part)}" for part in parts]
