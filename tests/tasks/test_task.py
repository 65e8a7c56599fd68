"""What every task asks of its ranges."""

import numpy as np
import pytest

from numerate.tasks import (
    Arithmetic,
    Characters,
    DigitSequences,
    Distribution,
    Identity,
    LargeScale,
    PermutedPixels,
    RecurrentArithmetic,
    SequentialPhotographs,
    SingleModule,
    StaticArithmetic,
    Words,
)

UNIONS = [
    lambda span: SingleModule("add", span),
    lambda span: SingleModule("add", test_range=span),
    lambda span: Arithmetic("add", span),
    lambda span: Arithmetic("add", test_range=span),
]
"""Tasks that take a union of two intervals."""
INTERVALS = [
    Identity,
    lambda span: StaticArithmetic("add", train_scale=span),
    lambda span: StaticArithmetic("add", test_scale=span),
    lambda span: RecurrentArithmetic("add", scale=span),
    lambda span: LargeScale("add", train_range=span),
    lambda span: LargeScale("add", test_range=span),
]
NO_RANGES = [
    (1.0, 2.0, 3.0),
    (1.0,),
    (),
    (1.0, float("inf")),
    (float("-inf"), 1.0),
    (float("nan"), 1.0),
    (2.0, 1.0),
    (1.0, 1.0),
    ("1", "2"),
    ((1.0, 2.0),),
    ((1.0, 2.0), 3.0),
    ((1.0, 2.0), (3.0, 4.0), (5.0, 6.0)),
    ((1.0, 2.0), (3.0, float("inf"))),
    1.0,
]


@pytest.mark.parametrize("span", NO_RANGES, ids=str)
@pytest.mark.parametrize("task", [*UNIONS, *INTERVALS])
def test_what_is_no_range_is_refused_in_one_sentence(task, span):
    with pytest.raises(ValueError, match=r"must be \(low, high\) with finite low < high"):
        task(span)


@pytest.mark.parametrize("task", INTERVALS)
def test_a_union_is_refused_where_one_interval_is_taken(task):
    with pytest.raises(ValueError, match=r"must be \(low, high\) with finite low < high, got \(\(-6"):
        task(((-6.0, -2.0), (2.0, 6.0)))


@pytest.mark.parametrize("span", [(1, 2), [1.0, 2.0], (np.float32(1), np.int64(2))], ids=str)
@pytest.mark.parametrize("task", [*UNIONS, *INTERVALS])
def test_numbers_may_be_of_any_type(task, span):
    task(span)


def test_a_distribution_has_finite_ends():
    for low, high in ((0.0, float("inf")), (float("nan"), 1.0), (2.0, 1.0)):
        with pytest.raises(ValueError, match="finite low < high"):
            Distribution("normal", low, high)
    with pytest.raises(ValueError, match="low must be 0 for an exponential"):
        Distribution("exponential", 1.0, 2.0)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (lambda: PermutedPixels(batch_size=50_001), "50,000 training images do not fill a batch of 50,001"),
        (lambda: DigitSequences("sum", 1000), "training images make no 64 sequences of 1,000"),
    ],
)
def test_a_batch_larger_than_the_data_set_is_refused(task, said):
    with pytest.raises(ValueError, match=said):
        task()


def test_tasks_on_data_sets_say_which_one_they_read():
    tasks = Words(), Words("ptb", articles=False), Characters(), PermutedPixels(), SequentialPhotographs()
    assert [task.data_set.name for task in tasks] == ["wikitext-2", "ptb", "ptb", "mnist", "cifar10"]
