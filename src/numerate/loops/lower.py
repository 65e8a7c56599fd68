"""Lower a traced graph of ATen operations to the intermediate form of :mod:`numerate.loops.ir`.

One small function per operation, in three files; an operation is added by adding one.
"""

from numerate.loops.ir import Program
from numerate.loops.lower_elementwise import ELEMENTWISE
from numerate.loops.lower_reductions import REDUCTIONS
from numerate.loops.lower_shapes import SHAPES
from numerate.loops.lowering import Lowering
from numerate.loops.trace import Traced


def lower(traced: Traced) -> Program:
    """The program of a traced function; raises :class:`NotLowered` with the name of an operation it does not know."""
    return Lowering(traced, ELEMENTWISE | SHAPES | REDUCTIONS).program()
