"""What to train (:class:`Training`), how (backends), and the loop that never loses a finished run (:func:`train`)."""

from numerate.train.backends import BACKENDS
from numerate.train.specification import Adam, Penalty, Restart, Training
from numerate.train.trainer import Progress, train

__all__ = ["BACKENDS", "Adam", "Penalty", "Progress", "Restart", "Training", "train"]
