"""Compilers, NVRTC and the cache."""
