"""The papers' numbers as data: look up what was printed, with its interval and where it stands.

>>> from numerate import published
>>> cell = published.one(paper="primer2022", model="NMU", op="mul", range=(-2, -1), metric="success_rate")
>>> cell.value, cell.low, cell.high, cell.n
(0.8, 0.61, 0.91, 25)
"""

from numerate.published.lookup import cells, get, one, papers, raw, settings, tables, threshold, thresholds
from numerate.published.names import printed_name
from numerate.published.records import Published, Range, Setting, Threshold, parse_range, show_range

__all__ = [
    "Published",
    "Range",
    "Setting",
    "Threshold",
    "cells",
    "get",
    "one",
    "papers",
    "parse_range",
    "printed_name",
    "raw",
    "settings",
    "show_range",
    "tables",
    "threshold",
    "thresholds",
]
