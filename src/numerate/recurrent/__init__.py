"""Recurrent units: cells as data and pure steps, gates that combine with them, and one module that unrolls any."""

from numerate.recurrent.cell import Cell, ColumnCell
from numerate.recurrent.controlled import ControlledNALU, ControlledNALUCell
from numerate.recurrent.deep import Block, DeepModel
from numerate.recurrent.diagonal import DiagonalCell
from numerate.recurrent.dispatch import use_loop
from numerate.recurrent.dnc import DNC, DNCCell
from numerate.recurrent.eurnn import EURNN, EURNNCell
from numerate.recurrent.gates import GATES, Gate, cumax, refine, timescale
from numerate.recurrent.goru import GORU, GORUCell
from numerate.recurrent.gru import GRU, GRUCell
from numerate.recurrent.init import chrono_, identity_, orthogonal_, uniform_gate_
from numerate.recurrent.janet import JANET, JANETCell
from numerate.recurrent.layer import CellLayer, Inspection, Recurrent, Step
from numerate.recurrent.lmu import LMU, LMUCell
from numerate.recurrent.lru import LRU, LRUCell
from numerate.recurrent.lstm import LSTM, LSTMCell
from numerate.recurrent.mingru import MinGRU, MinGRUCell, MinLSTM, MinLSTMCell
from numerate.recurrent.model import SequenceModel
from numerate.recurrent.nru import NRU, NRUCell
from numerate.recurrent.presets import (
    CGRU,
    CLSTM,
    OGRU,
    OLSTM,
    OMGRU,
    OMLSTM,
    ONLSTM,
    ORGRU,
    ORLSTM,
    RGRU,
    RLSTM,
    UGRU,
    ULSTM,
    UMGRU,
    UMLSTM,
    URGRU,
    URLSTM,
)
from numerate.recurrent.rma import RMA, RMACell
from numerate.recurrent.rma_heads import RMAHeads, read_strength_loss
from numerate.recurrent.rmc import RMC, RMCCell
from numerate.recurrent.rnn import RNN, RNNCell
from numerate.recurrent.s4d import S4D, S4DCell
from numerate.recurrent.s5 import S5, S5Cell
from numerate.recurrent.s6 import S6, S6Cell
from numerate.recurrent.slstm import SLSTM, SLSTMCell
from numerate.recurrent.statistical import StatisticalRU, StatisticalRUCell
from numerate.recurrent.ugrnn import UGRNN, UGRNNCell
from numerate.recurrent.unit import UnitCell, UnitRNN
from numerate.recurrent.words import WordModel

__all__ = [
    "CGRU",
    "CLSTM",
    "DNC",
    "EURNN",
    "GATES",
    "GORU",
    "GRU",
    "JANET",
    "LMU",
    "LRU",
    "LSTM",
    "NRU",
    "OGRU",
    "OLSTM",
    "OMGRU",
    "OMLSTM",
    "ONLSTM",
    "ORGRU",
    "ORLSTM",
    "RGRU",
    "RLSTM",
    "RMA",
    "RMC",
    "RNN",
    "S4D",
    "S5",
    "S6",
    "SLSTM",
    "UGRNN",
    "UGRU",
    "ULSTM",
    "UMGRU",
    "UMLSTM",
    "URGRU",
    "URLSTM",
    "Block",
    "Cell",
    "CellLayer",
    "ColumnCell",
    "ControlledNALU",
    "ControlledNALUCell",
    "DNCCell",
    "DeepModel",
    "DiagonalCell",
    "EURNNCell",
    "GORUCell",
    "GRUCell",
    "Gate",
    "Inspection",
    "JANETCell",
    "LMUCell",
    "LRUCell",
    "LSTMCell",
    "MinGRU",
    "MinGRUCell",
    "MinLSTM",
    "MinLSTMCell",
    "NRUCell",
    "RMACell",
    "RMAHeads",
    "RMCCell",
    "RNNCell",
    "Recurrent",
    "S4DCell",
    "S5Cell",
    "S6Cell",
    "SLSTMCell",
    "SequenceModel",
    "StatisticalRU",
    "StatisticalRUCell",
    "Step",
    "UGRNNCell",
    "UnitCell",
    "UnitRNN",
    "WordModel",
    "chrono_",
    "cumax",
    "identity_",
    "orthogonal_",
    "read_strength_loss",
    "refine",
    "timescale",
    "uniform_gate_",
    "use_loop",
]
