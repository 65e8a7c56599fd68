"""How groups of runs share a GPU; streams are stood in for, so that it runs anywhere."""

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from numerate.train.networks import side_by_side


class Group:
    """Three parts; ``under_way`` holds the names of those that are being computed, ``seen`` all such moments."""

    under_way: set[str]
    seen: list[set[str]]

    def __init__(self, name: str, fills_device: bool = False, fails: bool = False) -> None:
        self.name, self.fills_device, self.fails = name, fills_device, fails
        self.parts = 0

    def run(self, report: Any, checkpoint_seconds: float) -> Iterator[Callable[[], None]]:
        assert threading.current_thread() is threading.main_thread()  # rows and checkpoints are written here
        for _ in range(3):
            yield self.part
            assert threading.current_thread() is threading.main_thread()
            if report.time_is_up():
                return
        report.finished.append(self.name)

    def part(self) -> None:
        self.under_way.add(self.name)
        self.seen.append(set(self.under_way))
        pause.wait(0.02)
        self.under_way.discard(self.name)
        self.parts += 1
        if self.fails:
            raise RuntimeError(f"{self.name} fails")


pause = threading.Event()


class Report:
    def __init__(self, until: int = 10**9) -> None:
        self.finished: list[str] = []
        self.asked, self.until = 0, until

    def time_is_up(self) -> bool:
        self.asked += 1
        return self.asked > self.until


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    def stream() -> Any:
        return SimpleNamespace(device="cuda", wait_stream=lambda other: None, synchronize=lambda: None)

    made = tuple(SimpleNamespace(training=stream(), recording=stream()) for _ in range(5))
    monkeypatch.setattr(side_by_side, "lanes", lambda device: made)
    monkeypatch.setattr(side_by_side, "places", lambda device: 3)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    Group.under_way, Group.seen = set(), []


def train(groups: list[Group], report: Report) -> None:
    side_by_side.train_groups(iter(groups), report, 5.0, "cuda")  # type: ignore[arg-type]


def test_small_groups_share_the_device_as_far_as_there_are_places() -> None:
    report = Report()
    train([Group(str(k)) for k in range(8)], report)
    assert sorted(report.finished) == [str(k) for k in range(8)]
    assert max(map(len, Group.seen)) == 3


def test_a_group_that_fills_the_device_is_alone() -> None:
    report = Report()
    train([Group("a"), Group("large", fills_device=True), Group("b"), Group("c")], report)
    assert report.finished[:2] == ["a", "large"]
    assert sorted(report.finished) == ["a", "b", "c", "large"]
    assert all(len(names) == 1 for names in Group.seen if "large" in names)


def test_what_a_thread_raises_ends_the_training() -> None:
    groups = [Group("a"), Group("b", fails=True), *(Group(str(k)) for k in range(5))]
    with pytest.raises(RuntimeError, match="b fails"):
        train(groups, Report())
    assert sum(group.parts for group in groups) < 18
    assert not Group.under_way


def test_when_the_time_is_up_no_group_is_begun_and_those_under_way_end() -> None:
    groups = [Group(str(k)) for k in range(8)]
    report = Report(until=3)
    train(groups, report)
    assert not report.finished
    assert sum(group.parts > 0 for group in groups) == 3
