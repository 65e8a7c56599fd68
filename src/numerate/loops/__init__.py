"""Loops around a pure training step or a recurrent cell: trace it, emit native code around it, run it.

Knows nothing of units or tasks. In the order to read them (``docs/engine.md`` walks one step through):

- what a step is, and loops in plain torch: ``step``, ``eager`` (the reference), ``stacked``;
- from a module to statements: ``trace``, ``ir``, ``lowering`` with its rules ``lower_*``, and ``interpreter``;
- from statements to text: ``nests``, ``cases``; for C++ ``cpp_emitter``, ``cpp_training``, ``cpp_evaluation``; for CUDA
  ``homes``, ``spread``, ``again``, ``cuda_emitter``, ``cuda_training``, ``cuda_evaluation``;
- compile and run: ``native`` and ``cpp``, ``nvrtc`` and ``cuda``; ``kept`` keeps the texts;
- recurrent layers: ``pointwise``, ``rowcode``, ``timeloop``, and on a GPU ``cuda_timeloop``, ``cuda_rowloop``.
"""
