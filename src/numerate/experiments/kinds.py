"""What ``numerate show`` may make of a stored configuration: our units, cells and tasks, and the models listed here."""

from functools import cache

from numerate.experiments.memory.deep import deep_model
from numerate.experiments.models import sequence_model, two_layers
from numerate.experiments.nalu2018.digits import series_network
from numerate.experiments.nalu2018.models import recurrent
from numerate.experiments.nalu2018.program_evaluation import last_number
from numerate.experiments.nalu2018.word_models import FactorAndTerm, number_reader
from numerate.experiments.nau2020.digit_models import digit_network
from numerate.experiments.primer2022.deciding import Branch, Fold, Relax, Tally
from numerate.experiments.primer2022.digit_compare import pair_network
from numerate.experiments.ur2020.figure12 import refined_model, uniform_model
from numerate.experiments.ur2020.images import regularised_model
from numerate.experiments.ur2020.language import word_model
from numerate.train.kinds import Kinds, kinds, listed

MODELS = (
    two_layers, sequence_model, recurrent, series_network, digit_network, pair_network, Branch, Fold, Relax, Tally,
    refined_model, uniform_model, regularised_model, word_model, deep_model, number_reader, FactorAndTerm, last_number,
)  # fmt: skip
"""Functions of the experiments that make a model; one that is missing here is not shown as a formula."""


@cache
def shown_kinds() -> Kinds:
    return {**kinds(), **listed(MODELS)}
