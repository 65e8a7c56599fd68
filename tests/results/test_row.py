"""What identifies a run, and what does and does not make two results different."""

from dataclasses import replace

import numpy as np
import pytest

from numerate.results import Provenance, Row, canonical, config_hash

ROW = Row("primer2022/table11", {"unit": "NMU", "range": (1, 2), "lr": 1e-3}, 3, scores={"threshold": 1e-7})


def test_one_configuration_has_one_hash_however_it_is_spelt():
    spellings = [
        {"range": (1, 2), "lr": 1e-3},
        {"lr": 0.001, "range": [1.0, 2.0]},
        {"lr": np.float64(1e-3), "range": np.array([1, 2])},
    ]
    assert len({config_hash(config) for config in spellings}) == 1
    assert config_hash({"range": (1, 3), "lr": 1e-3}) != config_hash(spellings[0])


def test_the_hash_of_a_configuration_never_changes():
    assert config_hash({"unit": "NMU", "steps": 50_000, "range": [1, 2]}) == "10ace591d798656ba7bc1a2dc1f4c8a8"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_configuration_with_no_json_form_is_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        canonical({"x": value})


@pytest.mark.parametrize("config", [{"x": object()}, {1: 2}, {"x": {1, 2}}])
def test_a_configuration_holds_plain_values_only(config):
    with pytest.raises(TypeError, match="configuration"):
        canonical(config)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 4},
        {"config": {"unit": "NAU"}},
        {"experiment": "other"},
        {"labels": {"unit": "X"}},
        {"status": "diverged", "stopped_at": 7, "reason": "NaN"},
        {"curves": {"test": np.zeros(2)}},
        {"scores": {"threshold": 2e-7}},
        {"weights": {"final": {"weight": np.ones(1)}}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_part_of_a_result_counts(change):
    assert replace(ROW, **change) != ROW


def test_circumstances_do_not_count():
    other = replace(ROW, provenance=Provenance("stacked", timing={"seconds": 1.5}, created="today"))
    assert other == ROW
    assert hash(other) == hash(ROW)


def test_other_names_leave_a_run_what_it_is():
    run = ROW
    other = run.relabelled("zoo", {"unit": "another"})
    assert (other.experiment, other.labels) == ("zoo", {"unit": "another"})
    fresh = replace(other)  # what it is known by worked out anew
    assert (other.key, other.digest, other.result) == (fresh.key, fresh.digest, fresh.result)
    assert other.key == run.key
    assert other != run


def test_a_run_that_diverged_says_where_and_why():
    with pytest.raises(ValueError, match="at which step"):
        replace(ROW, status="diverged")


@pytest.mark.parametrize("name", ["seed", "stopped_at"])
def test_seed_and_step_are_whole_numbers_that_the_file_can_hold(name):
    for value in (1.5, 1.0, "1"):
        with pytest.raises(TypeError, match=f"{name} must be a whole number, got"):
            replace(ROW, **{name: value})
    for value in (2**63, -(2**63) - 1):
        with pytest.raises(ValueError, match=f"{name} must be a whole number of at most 64 bits, got {value}"):
            replace(ROW, **{name: value})
    assert replace(ROW, **{name: np.int64(2**63 - 1)}) == replace(ROW, **{name: 2**63 - 1})


@pytest.mark.parametrize("name", ["config", "labels"])
def test_configuration_and_labels_have_names(name):
    with pytest.raises(TypeError, match=f"{name} must map names to values"):
        replace(ROW, **{name: [1]})


def test_curves_of_one_run_have_one_length():
    with pytest.raises(ValueError, match="one length"):
        replace(ROW, curves={"steps": np.zeros(3), "test": np.zeros(2)})


def test_a_row_without_threshold_says_so():
    assert ROW.threshold == 1e-7
    with pytest.raises(ValueError, match="no threshold"):
        _ = replace(ROW, scores={}).threshold


def test_circumstances_name_versions_and_machine():
    here = Provenance.here("stacked", {"seconds": 2.0})
    assert {"numerate", "python", "numpy"} <= here.versions.keys()
    assert here.hardware["cores"] >= 1
    assert here.timing == {"seconds": 2.0}


def test_a_run_takes_its_share_of_its_group():
    assert Provenance(timing={"group_seconds": 50.0, "group_runs": 100}).seconds == 0.5
    assert Provenance(timing={"seconds": 2.0}).seconds == 2.0
    assert Provenance().seconds == 0.0
