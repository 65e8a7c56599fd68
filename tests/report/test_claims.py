"""The sentence that counts the paper's claims."""

import pytest

from numerate.report import Claim, Notes


@pytest.mark.parametrize(
    ("held", "sentence"),
    [
        ([], ""),
        ([None], "The paper's claim cannot be told."),
        ([True, True, False, None], "Of the paper's 4 claims 2 hold, 1 does not hold, 1 cannot be told."),
        ([False, False], "Of the paper's 2 claims 2 do not hold."),
    ],
)
def test_claims_are_counted_and_ours_are_not(held, sentence):
    claims = [Claim("(Ours) First.", "", True), *(Claim("Theirs.", "", value) for value in held)]
    assert Notes(claims=claims).verdict == sentence


@pytest.mark.parametrize(
    ("text", "said", "test"),
    [
        ("It holds.", "It holds.", ""),
        ("It is fast (our test: median of at most 500).", "It is fast.", "median of at most 500"),
        ("It is (A & B, 2025; our test: p < 0.05 (ranks)).", "It is (A & B, 2025).", "p < 0.05 (ranks)"),
        ("It (the unit) works.", "It (the unit) works.", ""),
    ],
)
def test_our_test_is_told_apart_from_what_the_paper_says(text, said, test):
    claim = Claim(text, "")
    assert (claim.said, claim.test) == (said, test)
