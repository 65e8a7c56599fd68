"""Chandar et al. (2019): towards non-saturating recurrent units for modelling long-term dependencies."""
