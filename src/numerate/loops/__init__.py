"""Loops around a pure training step or a recurrent cell: trace it, emit native code around it, run it.

Knows nothing of units or tasks. Start with :mod:`numerate.loops.step` (what a step is), then
:mod:`~numerate.loops.eager` (the reference), :mod:`~numerate.loops.trace`, :mod:`~numerate.loops.ir`,
:mod:`~numerate.loops.lower` and the emitters :mod:`~numerate.loops.cpp` and :mod:`~numerate.loops.cuda`.
"""
