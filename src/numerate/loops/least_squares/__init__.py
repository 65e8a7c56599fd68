"""Nonlinear least squares from many starts at once: Levenberg–Marquardt with one start per lane, in float64."""
