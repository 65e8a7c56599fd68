"""What an example costs, roughly."""

import math

from numerate.loops.form.ir import Map, Statement
from numerate.loops.form.operations import is_cheap
from numerate.loops.passes.nests import Nest


def instructions(nests: list[Nest], expensive: int) -> int:
    """Instructions of one example; ``expensive``: those of a division, a root or an elementary function."""
    return sum(
        math.prod(nest.loops) * len(list(placed.unrolled())) * (1 if _cheap(placed.statement) else expensive)
        for nest in nests
        for placed in nest.statements
    )


def _cheap(statement: Statement) -> bool:
    return not isinstance(statement, Map) or is_cheap(statement.function, moderate=False)
