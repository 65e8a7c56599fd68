"""How the papers print what we name otherwise."""

PRINTED = {
    "NAC": "NAC+",
    "NACMul": "NAC•",
    "NACMulSigmoid": "NAC•,σ",
    "NACMulNMU": "NAC•,NMU",
    "GNALU": "G-NALU",
    "INALU": "iNALU",
    "RealNPU": "Real NPU",
    "GatedNAUNMU": "Gated NAU/NMU",
}
"""Name of our class -> name in the papers' tables, where they differ."""

OPERATIONS = {
    "+": "add",
    "-": "sub",
    "−": "sub",
    "*": "mul",
    "×": "mul",
    "/": "div",
    "÷": "div",
    "²": "square",
    "√": "sqrt",
}


def printed_name(model: str) -> str:
    """The name under which the papers print a unit; any other name stays as it is."""
    return PRINTED.get(model, model)
