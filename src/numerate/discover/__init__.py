"""The formula behind the data: symbolic regression by power units, dictionaries and least squares."""

from numerate.discover.constants import ConstantsFit, fit_constants
from numerate.discover.equations import Equations, equations
from numerate.discover.formula import Dimensions, Formula, Found
from numerate.discover.module import FormulaModule
from numerate.discover.search import search
from numerate.discover.table import read_frame

__all__ = [
    "ConstantsFit",
    "Dimensions",
    "Equations",
    "Formula",
    "FormulaModule",
    "Found",
    "equations",
    "fit_constants",
    "read_frame",
    "search",
]
