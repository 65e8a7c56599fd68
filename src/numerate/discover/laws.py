"""Laws whose measurements come with the package."""

from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class MeasuredLaw:
    """A table and how the law is asked for; ``size`` is the largest formula wanted."""

    name: str
    title: str
    about: str
    input: str
    target: str
    units: str | None = None
    size: int | None = None

    @property
    def path(self) -> Path:
        return DATA / f"{self.name}.csv"


LAWS = (
    MeasuredLaw(
        "kepler",
        "Kepler's third law",
        "period P of the eight planets against their distance a from the Sun",
        "a",
        "P",
        units="AU, year",
    ),
    MeasuredLaw(
        "leavitt",
        "Leavitt's law",
        "magnitude M of Cepheids against the logarithm of their period; the simplest formula, her straight line",
        "logP",
        "M",
        size=5,
    ),
    MeasuredLaw("hubble", "Hubble's law", "velocity v of galaxies against their distance D, as of 1929", "D", "v"),
)
