"""Labels and messages as they may be shown: text from a results file or from a user's code is data, never a command."""

import re
import unicodedata
from collections.abc import Iterable

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that a terminal acts on or that cannot be written: controls, overrides, surrogates, breaks."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
LONGEST_NAME = 120
"""Bytes: file systems take 255, ending and number included."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def printable(text: object, keep: str = "") -> str:
    """``text`` with the replacement character for what a terminal would act on, line ends too, but for ``keep``."""
    return "".join(c if c in keep or unicodedata.category(c) not in HIDDEN else REPLACEMENT for c in str(text))


def file_names(labels: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Label -> name of its file without folder and ending; no two are the same, none is among ``taken``."""
    used, names = {name.casefold() for name in taken}, {}
    for label in labels:
        name = stem = _file_name(label)
        number = 1
        while name.casefold() in used:
            number += 1
            name = f"{stem}-{number}"
        used.add(name.casefold())
        names[label] = name
    return names


def _file_name(label: str) -> str:
    """Letters, digits and a few signs of ``label``; a space becomes '-', anything else '_'; no leading dot."""
    name = re.sub(r"[^\w.,+()•=-]", "_", label.replace(" ", "-")).lstrip(".")
    return name.encode()[:LONGEST_NAME].decode(errors="ignore") or "unnamed"


def spreadsheet_cell(value: object) -> object:
    """``value`` for a CSV file: text that a spreadsheet would run as a formula gets an apostrophe before it."""
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
