"""Neural Arithmetic Units (Madsen & Johansen, 2020)."""
