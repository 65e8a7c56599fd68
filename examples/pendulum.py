"""The formula behind a table: the period of a pendulum, clean and with two per cent of noise."""

import numpy as np
import polars as pl

from numerate import FormulaRegressor

rng = np.random.default_rng(0)
table = pl.DataFrame({"length": rng.uniform(0.1, 3, 200), "g": rng.uniform(1, 20, 200)})
period = 2 * np.pi * np.sqrt(table["length"] / table["g"])

model = FormulaRegressor(seconds=10).fit(table, period)
print("found:", model.formula_, "| exact:", model.exact_)
print(model.latex())
print(model.code("c"))

noisy = period * (1 + 0.02 * rng.standard_normal(200))
model = FormulaRegressor(seconds=10).fit(table, noisy, sample_weight=noisy**-2)
print("with noise:", model.formula_, "| exact:", model.exact_)
for each in model.formulas_:
    print(f"  size {each.size}, relative error {each.relative_error:.3f}")
