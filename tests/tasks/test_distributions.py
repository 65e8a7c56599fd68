"""Tasks on distributions that have no criterion."""

import pytest

from numerate.tasks import DistributedArithmetic, Distribution

AROUND, ABOVE = Distribution("uniform", -1, 1), Distribution("uniform", 0, 1)


def test_a_root_is_not_asked_of_negative_numbers():
    with pytest.raises(ValueError, match="the train of sqrt must not go below 0"):
        DistributedArithmetic("sqrt", AROUND, ABOVE)
    with pytest.raises(ValueError, match="the test of sqrt must not go below 0"):
        DistributedArithmetic("sqrt", ABOVE, AROUND)
    DistributedArithmetic("sqrt", ABOVE, ABOVE)


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_must_be_one(limit):
    with pytest.raises(ValueError, match="limit must be positive and finite"):
        DistributedArithmetic("add", AROUND, ABOVE, limit=limit)
