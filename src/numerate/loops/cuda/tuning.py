"""What the CUDA kernels were tuned to, on an H200 (compute capability 9.0, CUDA 12)."""

from numerate.loops.passes.nests import Unrolling

# ---------------------------------------------------------------- statements

UNROLLING = Unrolling(axis=16, statement=40, expensive=8)
REPLICATED_ELEMENTS = 16
"""Statements of the member of up to so many elements are run by every thread."""
REMATERIALISED_OPERATIONS = 3
"""Operations that are computed again, one upon the other, at most."""

# ---------------------------------------------------------------- threads

SMALL_MEMBER, MEDIUM_MEMBER, LARGE_MEMBER = 8, 32, 128
"""Threads of a member in training: without shared memory, with some, with sums over the batch in it."""
SMALL_EVALUATION, LARGE_EVALUATION = 128, 512
"""Threads of a block in evaluation: where an example is a few lines, and where it runs through loops."""
BLOCK = 64
"""Threads of a block whose members need no shared memory; several members share one."""
SHARED_BYTES = 232_448
"""Of shared memory that a block can have."""

# ---------------------------------------------------------------- registers

SUMS_IN_REGISTERS = 64
"""Sums over the batch that a thread keeps in registers."""
DRAWN_AT_ONCE = 32
"""Random numbers that a thread draws at once into registers, at most."""
BLOCKS_AT_ONCE = 5
"""Fours of random numbers that it draws side by side inside a loop, at most."""
COLUMNS_AT_ONCE = 16
"""Elements of a sum over the batch in shared memory that a thread adds up side by side."""

# ---------------------------------------------------------------- work

LIGHT, MEDIUM, HEAVY = 50, 100, 200
"""Instructions of one example, roughly: up to which several examples are computed side by side, to hide latencies."""
EXPENSIVE = 8
"""Instructions of a division, root or elementary function, roughly."""

# ---------------------------------------------------------------- evaluation

SINGLE_PRECISION_LOSSES = 16
"""Losses of a thread added in single precision before the sum goes on in double precision."""
MEMBERS_SIDE_BY_SIDE = 5
"""Members of equal constants that are evaluated together; it divides the papers' 25, 50 and 100 seeds."""
MEMBERS_AND_EXAMPLES = ((2, 4), (2, 2), (1, 4), (1, 2), (1, 1))
"""Members and examples of each that a thread takes at once where an example runs through loops: what members have in
common is read and computed once for them, and a weight is read once for the examples."""
