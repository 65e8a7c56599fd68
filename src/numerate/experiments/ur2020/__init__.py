"""Gu et al. (2020): improving the gating mechanism of recurrent neural networks."""
