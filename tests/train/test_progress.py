"""What a call of train tells of its progress."""

import pytest

from numerate.train.progress import Progress, Reporter


def test_the_time_left_of_a_resumed_group_follows_from_this_calls_steps_alone():
    told: list[Progress] = []
    report = Reporter(told.append, total=1, missing=1, steps=1000, end=None)
    report.resume("group", 900)
    report.started -= 10.0  # seconds, in which ten more steps were done
    report.under_way["group"] = 910
    report.show("NMU", "stacked")
    assert told[-1].fraction == pytest.approx(0.91)
    assert told[-1].remaining == pytest.approx(90.0, rel=1e-3)
    assert report.under_way == {"group": 910}


def test_no_time_is_told_before_a_step_is_done():
    told: list[Progress] = []
    report = Reporter(told.append, total=1, missing=1, steps=1000, end=None)
    report.resume("group", 900)
    report.show("NMU", "stacked")
    assert told[-1].remaining is None
