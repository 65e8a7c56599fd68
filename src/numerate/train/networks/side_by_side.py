"""Groups of runs on their way to the store: one after the other, or several side by side on a GPU."""

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any

import torch

from numerate.devices import kind_of
from numerate.train.networks.gpu_streams import MOST, lanes
from numerate.train.networks.group import NetworkGroup

_MEMORY_EACH = 16 * 2**30  # bytes of a GPU for each group

Part = Callable[[], None]


def places(device: str) -> int:
    """How many groups are trained at once: on a GPU up to MOST, as its memory allows; on a CPU one."""
    if not kind_of(device).asynchronous:
        return 1
    return max(1, min(MOST, torch.cuda.get_device_properties(device).total_memory // _MEMORY_EACH))


def train_groups(groups: Iterator[NetworkGroup], report: Any, checkpoint_seconds: float, device: str) -> None:
    """Train all; when the time is up, those under way save their state and no more are begun."""
    count = places(device)
    if count > 1:
        _side_by_side(groups, report, checkpoint_seconds, device, count)
        return
    for group in groups:
        for part in group.run(report, checkpoint_seconds):
            part()
        if report.time_is_up():
            return


class _Running:
    """A group on a stream that no other group uses meanwhile."""

    def __init__(self, group: NetworkGroup, report: Any, checkpoint_seconds: float, stream: torch.cuda.Stream) -> None:
        self.fills_device = group.fills_device
        self.parts = group.run(report, checkpoint_seconds)
        self.stream = stream
        self.stream.wait_stream(torch.cuda.current_stream(stream.device))

    def next_part(self) -> Part | None:
        """What is to be computed next, after rows and state have been stored; None at the end."""
        with torch.cuda.stream(self.stream):
            return next(self.parts, None)

    def compute(self, part: Part) -> None:
        with torch.cuda.stream(self.stream):
            part()
        self.stream.synchronize()


def _side_by_side(
    groups: Iterator[NetworkGroup], report: Any, checkpoint_seconds: float, device: str, count: int
) -> None:
    """Threads compute, this one stores. A group that fills the device is alone there."""
    running: dict[Future[None], _Running] = {}
    upcoming = next(groups, None)
    free = [one.training for one in lanes(device)[:count]]

    def proceed(group: _Running) -> None:
        if (part := group.next_part()) is not None:
            running[pool.submit(copy_context().run, group.compute, part)] = group
        else:  # the group has let go of its graphs, so that another may record where it did
            free.append(group.stream)

    with ThreadPoolExecutor(count, initializer=lambda: torch.set_num_threads(1)) as pool:
        while upcoming is not None or running:
            while upcoming is not None and _has_room(running, upcoming, count):
                proceed(_Running(upcoming, report, checkpoint_seconds, free.pop()))
                upcoming = None if report.time_is_up() else next(groups, None)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                group = running.pop(future)
                future.result()  # raises what the part has raised
                proceed(group)
            if report.time_is_up():
                upcoming = None


def _has_room(running: dict[Future[None], _Running], group: NetworkGroup, count: int) -> bool:
    if not running:
        return True
    alone = group.fills_device or any(other.fills_device for other in running.values())
    return not alone and len(running) < count
