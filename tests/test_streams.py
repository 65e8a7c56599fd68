"""Counter-based random numbers: known answers, and independence of everything but (seed, purpose, step, position)."""

import pytest
import torch

from numerate.streams import Domain, derived_seed, first_words, philox4x32, uniform, words

# The known-answer vectors published with Random123 for philox4x32, 10 rounds.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN, ids=["zeros", "ones", "pi"])
def test_known_answers(counter, key, expected):
    c0, c1, c2, c3 = (torch.tensor(int(word, 16)) for word in counter.split())
    k0, k1 = (torch.tensor(int(word, 16)) for word in key.split())
    assert " ".join(f"{word.item():08x}" for word in philox4x32((c0, c1, c2, c3), (k0, k1))) == expected


def test_words_are_the_counter_blocks_in_order():
    seed, domain, step = 7, int(Domain.TRAIN), 3
    expected = []
    for block in range(3):
        counter = torch.tensor(block), torch.tensor(step), torch.tensor(0), torch.tensor(0)
        expected += [word.item() for word in philox4x32(counter, (torch.tensor(seed), torch.tensor(domain)))]
    assert words(torch.tensor(seed), domain, step, 12).tolist() == expected


@pytest.mark.parametrize("count", [1, 3, 4, 5, 1000])
def test_a_longer_draw_starts_with_the_shorter(count):
    assert torch.equal(words(torch.tensor(1), 2, 3, count), words(torch.tensor(1), 2, 3, 1003)[:count])


def test_a_seed_does_not_depend_on_its_neighbours():
    seeds = torch.tensor([[0, 1, 2], [10, 11, 2**31]])
    together = words(seeds, Domain.INIT, 5, 6)
    assert together.shape == (2, 3, 6)
    for i in range(2):
        for j in range(3):
            assert torch.equal(together[i, j], words(seeds[i, j], Domain.INIT, 5, 6))


def test_every_coordinate_matters():
    base = words(torch.tensor(1), Domain.TRAIN, 1, 8)
    for other in [
        words(torch.tensor(2), Domain.TRAIN, 1, 8),
        words(torch.tensor(1), Domain.TEST, 1, 8),
        words(torch.tensor(1), Domain.TRAIN, 2, 8),
    ]:
        assert not (base == other).any()


def test_steps_beyond_32_bits_are_their_own():
    low, high = words(torch.tensor(1), 0, 5, 4), words(torch.tensor(1), 0, 2**32 + 5, 4)
    assert not (low == high).any()
    counter = torch.tensor(0), torch.tensor(5), torch.tensor(1), torch.tensor(0)
    expected = philox4x32(counter, (torch.tensor(1), torch.tensor(0)))
    assert high.tolist() == [word.item() for word in expected]


def test_words_fit_32_bits():
    drawn = words(torch.arange(50), 0, 0, 100)
    assert drawn.dtype == torch.int64
    assert drawn.min() >= 0
    assert drawn.max() < 2**32


def test_uniform_moments():
    """Mean 1/2, variance 1/12, neighbours uncorrelated; tolerances are five standard errors of 400 000 draws."""
    drawn = uniform(torch.arange(400), Domain.TRAIN, 0, 1000).double()
    count = drawn.numel()
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 1 / 2) < 5 * (1 / 12 / count) ** 0.5
    assert abs(drawn.var() - 1 / 12) < 5 * (1 / 180 / count) ** 0.5
    centred = drawn - 0.5
    assert abs((centred[:, 1:] * centred[:, :-1]).mean()) < 5 / 12 / count**0.5
    assert abs((centred[1:] * centred[:-1]).mean()) < 5 / 12 / count**0.5


def test_uniform_is_a_multiple_of_2_to_the_minus_24():
    drawn = uniform(3, Domain.NOISE, 9, 256)
    assert drawn.dtype == torch.float32
    assert torch.equal(drawn * 2**24, (drawn * 2**24).round())


def test_derived_seeds_are_positive_and_apart():
    seeds = {derived_seed(seed, domain, step) for seed in range(20) for domain in Domain for step in range(3)}
    assert len(seeds) == 20 * len(Domain) * 3
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derived_seed(1, Domain.INIT) == derived_seed(1, Domain.INIT)


def test_plain_numbers_give_the_same_words_as_tensors():
    for seed, step in ((0, 0), (7, 3), (2**32 - 1, 2**40 + 5)):
        expected = words(torch.tensor(seed), Domain.INIT, step, 4).tolist()
        assert list(first_words(seed, Domain.INIT, step)) == expected
