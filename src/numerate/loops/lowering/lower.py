"""Lower a traced graph of ATen operations to the intermediate form of :mod:`numerate.loops.form.ir`.

One small function per operation, in three files; an operation is added by adding one.
"""

from numerate.loops.form.ir import Program
from numerate.loops.lowering.elementwise import ELEMENTWISE
from numerate.loops.lowering.lowering import Lowering
from numerate.loops.lowering.reductions import REDUCTIONS
from numerate.loops.lowering.shapes import SHAPES
from numerate.loops.tracing.trace import Traced


def lower(traced: Traced) -> Program:
    """The program of a traced function; raises :class:`NotLowered` with the name of an operation it does not know."""
    return Lowering(traced, ELEMENTWISE | SHAPES | REDUCTIONS).program()
