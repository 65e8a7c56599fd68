"""What to train (:class:`Training`), how (backends), and the loop that never loses a finished run (:func:`train`).

:func:`least_squares` is the second optimiser: Levenberg–Marquardt, for functions that fit given data.
"""

from numerate.loops.least_squares.fit import LeastSquaresResult, least_squares
from numerate.loops.least_squares.marquardt import LevenbergMarquardt
from numerate.train.backends import BACKENDS
from numerate.train.networks.specification import NetworkTraining, Stop
from numerate.train.progress import Progress
from numerate.train.schedules import Cosine, Linear, Steps, Warmup
from numerate.train.specification import Adam, Penalty, Plateau, Restart, Settings, Training
from numerate.train.trainer import train

__all__ = [
    "BACKENDS",
    "Adam",
    "Cosine",
    "LeastSquaresResult",
    "LevenbergMarquardt",
    "Linear",
    "NetworkTraining",
    "Penalty",
    "Plateau",
    "Progress",
    "Restart",
    "Settings",
    "Steps",
    "Stop",
    "Training",
    "Warmup",
    "least_squares",
    "train",
]
