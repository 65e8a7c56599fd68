"""Every attack at small size: nothing gives way."""

import random

import pytest
from torture_frame import Setting, attacks

ATTACKS = attacks()


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_gives_way(name, tmp_path):
    result = ATTACKS[name](Setting(tmp_path, random.Random(f"0 {name}")))
    assert result.tried > 0
    assert not result.failures, "\n".join(result.failures)
