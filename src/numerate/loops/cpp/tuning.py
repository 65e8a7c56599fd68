"""What the C++ loops were tuned to, on a 2-core Xeon with AVX-512 (48 kB L1, 2 MB L2 per core), GCC 12.2."""

from numerate.loops.passes.nests import Unrolling

EXAMPLES_AT_ONCE = 4
"""Examples in a block of the prelude: a weight is loaded once for them (1.4 to 2.6 times as fast with 100 inputs)."""
UNROLLING = Unrolling(axis=16, statement=20, expensive=8)
"""An unrolled statement is four vectors each time, and compilers take long over long functions."""
UNROLLING_OF_COPIES = Unrolling(axis=16, statement=40, expensive=8)
"""The same for a member's values that become the next step's, of one vector each."""
STACK_VECTORS = 64
"""Arrays of more vectors than this lie in static memory rather than on the stack of a thread."""
L1_BYTES = 24 * 1024
"""Of the nearest cache, what the values of an evaluation that members share may take."""
CHUNK = (256, 2048)
"""Fewest and most examples that are evaluated for all members before the next ones."""
