"""Pieces: as large as their measured cost allows; lost ones are tried again, a run that kills its worker is found."""

import pytest
from cluster_samples import trainings

from numerate.cluster.pieces import PARTS, TRIES, WHOLE_TRIES, Pieces
from numerate.results import Key
from numerate.train.stack import Run

TARGET = 60.0


def runs(count, form=0):
    training = trainings()[form]
    return {Key(f"form {form}", seed): Run(training, seed) for seed in range(count)}


def pieces(*counts, most=4096, fewest=16):
    return Pieces([(runs(count, i), most) for i, count in enumerate(counts)], fewest, TARGET)


@pytest.mark.parametrize("seconds", [0.02, 0.5, 3.0])
def test_pieces_come_to_take_the_target_time(seconds):
    queue, sizes = pieces(30_000, most=100_000), []
    for _ in range(7):
        piece = queue.next(slots=2)
        assert piece is not None
        piece.form.learn(piece, piece.steps, seconds * len(piece.runs))
        sizes.append(len(piece.runs))
    assert sizes[0] == 16
    assert sizes[-1] == pytest.approx(TARGET / seconds, rel=0.05)


def test_a_device_that_takes_no_longer_for_more_runs_gets_more():
    """A GPU that is not full: 20 seconds for any piece of up to 1,000 runs."""
    queue, sizes = pieces(30_000, fewest=16), []
    for _ in range(8):
        piece = queue.next(slots=1)
        assert piece is not None
        piece.form.learn(piece, piece.steps, 20 * max(1.0, len(piece.runs) / 1000))
        sizes.append(len(piece.runs))
    assert sizes[:3] == [16, 48, 144]
    assert sizes[-1] == pytest.approx(3000, rel=0.05)


def test_every_worker_gets_some_and_memory_is_kept():
    queue = pieces(1000, most=64)
    queue.forms[0].step_seconds, queue.forms[0].measured = 1e-9, 1000
    piece = queue.next(slots=2)
    assert piece is not None
    assert len(piece.runs) == 64
    queue = pieces(100)
    queue.forms[0].step_seconds, queue.forms[0].measured = 1e-9, 1000
    assert [len(piece.runs) for piece in iter(lambda: queue.next(slots=4), None)] == [25, 19, 16, 16, 16, 8]


def test_a_piece_has_one_form_and_the_largest_form_comes_first():
    queue = pieces(5, 40)
    order = [{key.config for key in piece.runs} for piece in iter(lambda: queue.next(slots=1), None)]
    assert order == [{"form 1"}] * 3 + [{"form 0"}]


def test_a_run_that_kills_its_workers_is_found_and_the_others_are_finished():
    queue = pieces(64, fewest=64)
    deadly, finished, given_up, losses = Key("form 0", 37), set(), {}, 0
    while piece := queue.next(slots=1):
        if deadly in piece.runs:
            losses += 1
            given_up |= queue.lose(piece, "it died")
        else:
            finished |= piece.runs.keys()
    assert given_up == {deadly: f"given up after {TRIES} tries: it died"}
    assert finished == runs(64).keys() - {deadly}
    assert losses == WHOLE_TRIES + 2 + TRIES  # 64 runs, then 16 and 4, then alone
    assert PARTS**3 == 64


def test_machines_that_are_switched_off_are_no_fault_of_a_run():
    queue = pieces(1)
    for _ in range(15):
        piece = queue.next(slots=1)
        assert piece is not None
        assert queue.lose(piece, "its machine left", blameless=True) == {}
    piece = queue.next(slots=1)
    assert piece is not None
    assert piece.lost == 0
