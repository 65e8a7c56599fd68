"""Presets: the papers' gates on the LSTM and the GRU (Gu et al., 2020), and ON-LSTM (Shen et al., 2019)."""

from numerate.recurrent.gru import GRU
from numerate.recurrent.layer import CellLayer
from numerate.recurrent.lstm import LSTM

__all__ = [
    "CGRU", "CLSTM", "OGRU", "OLSTM", "OMGRU", "OMLSTM", "ONLSTM", "ORGRU", "ORLSTM",
    "RGRU", "RLSTM", "UGRU", "ULSTM", "UMGRU", "UMLSTM", "URGRU", "URLSTM",
]  # fmt: skip

STORED_MODULE = "numerate.recurrent.ready"
"""The module by which stored results, and pickled layers, know these classes."""


def with_gate(base: type[CellLayer], gate: str) -> type[CellLayer]:
    """``base`` with another gate as its default, named as the paper does: URLSTM."""
    name = gate + base.__name__
    doc = f"{base.__name__} layer with gate {gate}-; see :class:`{base.cell_type.__name__}` for its keywords."
    body = {"__doc__": doc, "__module__": STORED_MODULE, "cell_type": base.cell_type, "preset": {"gate": gate}}
    return type(name, (base,), body)


CLSTM = with_gate(LSTM, "C")
OLSTM = with_gate(LSTM, "O")
ULSTM = with_gate(LSTM, "U")
RLSTM = with_gate(LSTM, "R")
OMLSTM = with_gate(LSTM, "OM")
ORLSTM = with_gate(LSTM, "OR")
UMLSTM = with_gate(LSTM, "UM")
URLSTM = with_gate(LSTM, "UR")

CGRU = with_gate(GRU, "C")
OGRU = with_gate(GRU, "O")
UGRU = with_gate(GRU, "U")
RGRU = with_gate(GRU, "R")
OMGRU = with_gate(GRU, "OM")
ORGRU = with_gate(GRU, "OR")
UMGRU = with_gate(GRU, "UM")
URGRU = with_gate(GRU, "UR")


class ONLSTM(LSTM):
    """ON-LSTM (Shen et al., 2019) as its code has it: gate OM-, two biases, the start of ``nn.Linear``.

    Its DropConnect, ``weight_dropout``, rescales weights in evaluation. See :class:`LSTMCell` for its keywords.
    """

    __module__ = STORED_MODULE
    preset = {
        "gate": "OM",
        "recurrent_bias": True,
        "start": "linear",
        "weight_dropout_rescales": "evaluation",
    }
