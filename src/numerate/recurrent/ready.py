"""The name by which stored results know the presets, which are in :mod:`numerate.recurrent.presets`."""

from numerate.recurrent.presets import *  # noqa: F403
from numerate.recurrent.presets import __all__ as __all__
