"""The GPU target: a step as two CUDA kernels."""
