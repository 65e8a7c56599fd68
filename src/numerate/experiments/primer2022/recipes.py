"""How the Primer trained each unit on the single module task (Tables 5 to 8, and the released code)."""

from numerate.experiments.recipe import Recipe
from numerate.train import Adam, Penalty, Restart
from numerate.units import GNALU, INALU, NAC, NALU, NAU, NMU, NPU, After, Growth, NACMul, Ramp, RealNPU, l1, penalty


def sparse(scale: float) -> tuple[Penalty, ...]:
    """The sparsity penalty of NAU and NMU, warmed up from step 20,000 to 35,000."""
    return (Penalty(penalty, Ramp(scale, 20_000, 35_000)),)


def shrink(start: float, end: float) -> tuple[Penalty, ...]:
    """The L1 penalty of the NPUs, ten times stronger after every 10,000 steps."""
    return (Penalty(l1, Growth(start, end)),)


INALU_RECIPE = Recipe(
    INALU,
    Adam(clip="value", limit=0.1),
    (Penalty(penalty, After(0.05, 10_000), below=1.0),),
    Restart(),
)
SUMS = {
    "NAC+": Recipe(NAC),
    "G-NALU": Recipe(GNALU),
    "iNALU": INALU_RECIPE,
    "NALU": Recipe(NALU),
    "NAU": Recipe(NAU, penalties=sparse(0.01)),
}
SHARED = {"NAC•": Recipe(NACMul), **{name: SUMS[name] for name in ("G-NALU", "iNALU", "NALU")}}
FAST = Adam(5e-3)
RECIPES: dict[str, dict[str, Recipe]] = {
    "add": SUMS,
    "sub": SUMS,
    "mul": {
        **SHARED,
        "NMU": Recipe(NMU, penalties=sparse(10.0)),
        "NPU": Recipe(NPU, FAST, shrink(1e-7, 1e-5)),
        "Real NPU": Recipe(RealNPU, FAST, shrink(1e-7, 1e-5)),
    },
    "div": {
        **SHARED,
        "NPU": Recipe(NPU, FAST, shrink(1e-9, 1e-7)),
        "Real NPU": Recipe(RealNPU, FAST, shrink(1e-9, 1e-7)),
    },
}
"""Operation -> printed name of the unit -> recipe."""
