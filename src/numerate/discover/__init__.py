"""The formula behind the data: symbolic regression by power units, dictionaries and least squares."""

from numerate.discover.formula import Dimensions, Formula, Found
from numerate.discover.search import search

__all__ = ["Dimensions", "Formula", "Found", "search"]
