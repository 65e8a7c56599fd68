"""Random ranges by a fixed rule, so that no unit can be tuned to the ranges it is judged on."""

from collections.abc import Iterator
from dataclasses import dataclass

from numerate.streams import Domain, uniform
from numerate.tasks.single_module import SingleModule
from numerate.tasks.task import Range

REPORTED = 20_261
"""Seed of the ranges that reports are made of."""
DEVELOPMENT = 20_260
"""Seed of ranges to develop a unit on."""
SMALLEST, LARGEST = -3.0, 4.0
NARROWEST = 0.01


@dataclass(frozen=True)
class AnyRange(SingleModule):
    """The single module task with a scale-free success criterion.

    Success: as in :class:`SingleModule`, but redundant inputs do not count in the threshold of × and ÷, where ε times
    their size would be added to numbers without one.
    """

    def threshold(self) -> float:
        if self.operation in ("add", "sub"):
            return super().threshold()
        return SingleModule(self.operation, self.train_range, self.test_range, 2, self.epsilon).threshold()


def random_ranges(count: int, seed: int = REPORTED) -> Iterator[tuple[Range, Range]]:
    """``count`` training ranges, each with its extrapolation range; the first ones do not depend on ``count``.

    The scale s is log-uniform from 1e-3 to 1e4, the width w uniform from 1 % to 100 % of it. One in three is
    [s, s + w), one [-s - w, -s), and one lies across 0: [-u w, (1 - u) w) with u uniform. Tests go from the end that is
    farther from 0 to three times that, on both sides for ranges across 0.
    """
    for place in range(count):
        scale, width, sign, share = uniform(seed, Domain.TASK, place, 4).double().tolist()
        scale = 10 ** (SMALLEST + (LARGEST - SMALLEST) * scale)
        width = (NARROWEST + (1 - NARROWEST) * width) * scale
        end = scale + width
        if sign < 1 / 3:
            yield (scale, end), (end, 3 * end)
        elif sign < 2 / 3:
            yield (-end, -scale), (-3 * end, -end)
        else:
            end = max(share, 1 - share) * width
            yield (-share * width, (1 - share) * width), ((-3 * end, -end), (end, 3 * end))
