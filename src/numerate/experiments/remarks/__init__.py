"""What reports say about an experiment beside its numbers: the texts of each paper, in a TOML file beside this one."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any


@cache
def _texts(paper: str) -> dict[str, Any]:
    return tomllib.loads((resources.files(__name__) / f"{paper}.toml").read_text(encoding="utf-8"))


def about(paper: str, name: str) -> str:
    """The sentence under the title: what was asked, and how."""
    return _texts(paper)["about"][name]


def reasons(paper: str, *names: str) -> tuple[str, ...]:
    """Why numbers may differ from the published ones: the sentences of these groups."""
    return tuple(sentence for name in names for sentence in _texts(paper)["reasons"][name])
