"""What the time loops were tuned to: the CPU's on a 2-core Xeon with AVX-512, the GPU's on an H200."""

ROWS_EACH = 4
"""CPU: rows of the batch for which a further thread is worthwhile."""
WORK_EACH = 2**25
"""CPU: multiplications for which a further thread is worthwhile: about 0.2 ms, several times what a thread costs."""
THREADS, WARPS = 256, 8
"""GPU: of a block; ``grid.cuh`` and ``rowloop.cuh`` have the same."""
WEIGHTS = 144
"""GPU: numbers of the weight that a thread can keep in registers."""
SUMS = 64
"""GPU: running sums that it can keep beside them."""
STEP = 1500
"""GPU: cycles of a step beside its products: activations, sums, waiting for memory."""
ROW = 6000
"""GPU: cycles of a row whose units a block shares, in both directions."""
