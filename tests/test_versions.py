"""The lowest versions that are tested are the lowest that are allowed."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_lowest_versions_that_are_allowed_are_the_ones_that_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = [*project["dependencies"], *project["optional-dependencies"]["bench"]]
    tested = [line for line in (ROOT / ".ci" / "lowest.txt").read_text().splitlines() if not line.startswith("#")]
    assert [_padded(text.replace(">=", "==")) for text in allowed] == [_padded(text) for text in tested]


def test_every_version_that_is_pinned_is_allowed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text().lower(), re.MULTILINE))
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    versions = (text.split(">=") for group in groups for text in group if not text.startswith("numerate["))
    for name, lowest in versions:
        assert _numbers(pinned[name.partition("[")[0]]) >= _numbers(lowest), name


def _numbers(version):
    return [int(number) for number in re.findall(r"\d+", version)]


def _padded(text):
    """numpy==1.26 is numpy==1.26.0."""
    name, version = text.split("==")
    return name, [*_numbers(version), 0, 0][:3]
