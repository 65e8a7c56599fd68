"""Epidemics that are none."""

import pytest

from numerate.tasks import FractionalSIR


@pytest.mark.parametrize("settings", [{"days": 0}, {"every": 0}, {"days": -4}, {"every": -4}], ids=str)
def test_an_epidemic_lasts_and_is_seen(settings):
    with pytest.raises(ValueError, match="days and every must be at least 1"):
        FractionalSIR(**settings)


def test_days_are_a_multiple_of_every():
    with pytest.raises(ValueError, match="must be a multiple of every"):
        FractionalSIR(days=10, every=4)
