"""Neural Arithmetic Logic Units (Trask et al., 2018)."""
