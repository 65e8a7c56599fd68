"""Loops in plain torch: the reference, and one stacked computation."""
