"""Pictures of gates, from the arrays that ``inspect`` gives."""

import numpy as np
import pytest
import torch

from numerate.recurrent import ULSTM

gates = pytest.importorskip("numerate.report.gates")


def test_histogram_counts_every_unit_once(tmp_path):
    before, after = (ULSTM(2, 64).inspect(torch.randn(5, 3, 2)).activations[-1]["forget"] for _ in range(2))
    ax = gates.forget_histogram({"before": before, "after": after})
    assert [patch.get_data().values.sum() for patch in ax.patches] == [64, 64]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["before", "after"]
    ax.figure.savefig(tmp_path / "forget.png")


def test_timescales_fall_from_all_units_to_the_slowest(tmp_path):
    forget = np.linspace(0, 0.99, 100)
    ax = gates.timescale_plot({"start": forget, "tensor": torch.tensor(forget, requires_grad=True)}, longest=50)
    x, y = ax.lines[0].get_data()
    np.testing.assert_allclose(x, 1 / (1 - forget))
    np.testing.assert_allclose(y, np.linspace(1, 0.01, 100))
    np.testing.assert_array_equal(ax.lines[1].get_data(), (x, y))
    ax.figure.savefig(tmp_path / "timescales.png")
