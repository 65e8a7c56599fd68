"""Loops around a pure training step or a recurrent cell: trace it, emit native code around it, run it.

Knows nothing of units or tasks. The folders, in the order data flows (``docs/engine.md`` walks one step through):

- ``step`` and ``plain``: what a step is, and loops in plain torch, the reference among them;
- ``tracing``: from a module to a flat graph of ATen operations;
- ``form``: the intermediate form and its reference interpreter;
- ``lowering``: from the graph to the form, one rule per operation;
- ``passes``: what is decided before anything is printed;
- ``cpp`` and ``cuda``: one printer for each target, and the loop that runs what it printed;
- ``toolchain``: compilers, NVRTC, and the cache;
- ``timeloops``: the same for loops over the time steps of a sequence;
- ``least_squares``: the same for Levenberg–Marquardt, a start or an expression in each lane.
"""
