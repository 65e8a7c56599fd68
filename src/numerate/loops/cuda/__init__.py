"""A step as one CUDA kernel."""
