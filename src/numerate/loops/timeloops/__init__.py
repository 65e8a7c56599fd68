"""Loops over the time steps of a sequence."""
