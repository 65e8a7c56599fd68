"""Curves for trackers, and as event files that TensorBoard's own format description reads."""

import struct

import numpy as np
import pytest
from report_samples import primer

from numerate.report.tensorboard import write_events
from numerate.results import Row

pytest.importorskip("tensorboardX", reason="event files need tensorboardX")


def scalars(path):
    """(tag, step) -> value, from the records of an event file: length, checksum, message, checksum."""
    from tensorboardX.proto.event_pb2 import Event  # type: ignore[attr-defined]

    data, found = path.read_bytes(), {}
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + length])
        found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
        data = data[16 + length :]
    return found


def test_points_leave_out_what_is_not_finite():
    curves = {"steps": np.array([0, 10]), "test": np.array([np.inf, 0.5]), "validation": np.array([1.0, np.nan])}
    assert list(Row("e", {}, 0, curves=curves).points()) == [(0, {"validation": 1.0}), (10, {"test": 0.5})]
    assert list(Row("e", {}, 0).points()) == []


def test_every_run_has_its_curves_in_a_file_of_its_own(tmp_path):
    rows = primer(ops=("add",), n=2, models=["NAU"], spans=[(1, 2)])
    assert write_events(rows, tmp_path) == 2
    assert write_events(rows, tmp_path) == 2  # and writes nothing anew
    files = sorted(tmp_path.rglob("events*"))
    assert len(files) == 2
    for row, path in zip(sorted(rows, key=lambda row: row.key.name), sorted(files, key=lambda path: path.parent.name)):
        found = scalars(path)
        assert len(found) == 3 * 51
        for i, step in enumerate(row.curves["steps"]):
            assert found["test", step] == pytest.approx(row.curves["test"][i])
