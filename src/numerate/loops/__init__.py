"""Loops around a pure training step or a recurrent cell: trace it, emit native code around it, run it.

Knows nothing of units or tasks. The folders, in the order data flows (``docs/engine.md`` walks one step through):

- ``step`` and ``plain``: what a step is, and loops in plain torch, the reference among them;
- ``tracing``: from a module to a flat graph of ATen operations;
- ``form``: the intermediate form, its table of operations and its reference interpreter;
- ``lowering``: from the graph to the form, one rule per operation;
- ``passes``: from program to program, and decisions about loops and placement;
- ``kernel``: the form of a kernel, with loops, variables, memory and barriers;
- ``printers``: from a kernel to text, one for each dialect;
- ``cpp`` and ``cuda``: for each target its list of passes (``pipeline``), its schedule, its tuning, and the loop that
  runs the result;
- ``timeloops``: the same for loops over the time steps of a sequence;
- ``least_squares``: the same for Levenberg–Marquardt, a start or an expression in each lane;
- ``toolchain``: compilers, NVRTC, and the cache.
"""
