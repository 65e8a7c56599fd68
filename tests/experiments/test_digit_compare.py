"""Comparing handwritten digits (Primer, 7.2): networks, verdicts; on made-up images."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from numerate.data import mnist
from numerate.data.images import Images
from numerate.experiments import Options, running, select
from numerate.experiments.primer2022 import digit_compare
from numerate.experiments.primer2022.digit_compare import CNN, TOLD, PairNetwork
from numerate.report import Claim
from numerate.results import Row, Store
from numerate.units import NSR


@torch.no_grad()
def test_one_network_reads_both_images_and_the_nsr_compares_what_it_read() -> None:
    x = torch.randn(5, 2, 784)
    network = PairNetwork(partial(NSR), logit=False, numbers=True)
    network.head.compare_(">")
    read = torch.cat([network.reader(x[:, i]) for i in range(2)], 1)
    found = network(x.flatten(1))
    torch.testing.assert_close(found[:, 1:], read)
    torch.testing.assert_close(found[:, :1], network.head(read))


def test_a_cnn_sees_both_images() -> None:
    x = torch.randn(3, 2 * 784, requires_grad=True)
    (gradient,) = torch.autograd.grad(PairNetwork()(x).sum(), x)
    assert (gradient.view(3, 2, 784).abs().sum((0, 2)) > 0).all()
    with pytest.raises(ValueError, match=r"reads 2 · 784 pixels"):
        digit_compare.pair_network(784, 1)


def judged(seeds: int = 6, apart: float = 1e-4, **accuracies: float) -> dict[str, Claim]:
    """Verdicts where runs of a model have this accuracy and a little more, ``apart`` from seed to seed."""
    names = {"cnn": CNN, "mlp": "MLP", "one": "NSR", "ten": "NSR, 10 paths", "told": TOLD}
    rows = [
        Row(
            "x", {}, seed, labels={"unit": names[name], "symbol": symbol, "task": "digits"},
            scores={"best_test_accuracy": value + apart * seed}, curves={"gradient_norm": np.array([np.nan, 1.0])},
        )
        for name, value in accuracies.items() for symbol in (">", "=") for seed in range(seeds)
    ]  # fmt: skip
    claims = digit_compare.claims(digit_compare.compare(rows, Options("quick")))
    return dict(zip(("usable", "behind", "comparable", "signal"), claims))


def test_a_verdict_for_each_sentence() -> None:
    as_said = judged(cnn=0.98, mlp=0.95, one=0.8, ten=0.951, told=0.97)
    assert [claim.holds for claim in as_said.values()] == [True, True, True, True]
    reverse = judged(cnn=0.7, mlp=0.95, one=0.8, ten=0.7, told=0.8)
    assert [claim.holds for claim in reverse.values()] == [False, False, False, None]
    equal = judged(cnn=0.95, mlp=0.95, one=0.95, ten=0.95, told=0.95)
    assert [claim.holds for claim in equal.values()] == [True, None, True, None]
    unexplained = judged(cnn=0.98, mlp=0.95, one=0.8, ten=0.95, told=0.95)
    assert unexplained["signal"].holds is False


def test_no_verdict_where_the_seeds_cannot_decide() -> None:
    as_said: dict[str, float] = {"cnn": 0.98, "mlp": 0.95, "one": 0.8, "ten": 0.951, "told": 0.97}
    for seeds in range(1, 6):  # the median of five or fewer has no interval
        assert [claim.holds for claim in judged(seeds, **as_said).values()] == [None] * 4
    reverse = judged(2, cnn=0.7, mlp=0.95, one=0.6, ten=0.6, told=0.6)
    assert [claim.holds for claim in reverse.values()] == [None] * 4
    # 0.82 to 0.87 is on both sides of 0.85, half the errors of guessing >; the MLP's 0.815 to 0.865 is not apart
    wide = judged(apart=0.01, cnn=0.98, mlp=0.815, one=0.6, ten=0.82, told=0.97)
    assert [wide["usable"].holds, wide["comparable"].holds] == [None, None]


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images whose every pixel is the digit."""
    labels = [torch.arange(count) % 10 for count in (60_000, 10_000)]
    pictures = [label.to(torch.uint8).view(-1, 1, 1).expand(-1, 28, 28) for label in labels]
    monkeypatch.setattr(mnist, "load", lambda data=None: Images(pictures[0], labels[0], pictures[1], labels[1]))


def test_digit_compare_runs(images: None, tmp_path: Path) -> None:
    result = running.run("primer2022/digit-compare", Options("smoke", seeds=1), tmp_path)
    assert "What is read from an image" in result.page.read_text()


class NoNumber(nn.Module):
    """A head that diverges at once."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((outputs, inputs), torch.nan))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


def test_a_head_that_diverges_leaves_the_other_runs_alone(images: None, tmp_path: Path) -> None:
    result = running.run("primer2022/digit-compare", Options("smoke", seeds=1, units=(NoNumber, "MLP")), tmp_path)
    assert result.failed == 0
    with Store(tmp_path / "results.sqlite") as store:
        rows = {row.labels["unit"]: row for row in store.rows()}
    assert set(rows) == {"NoNumber", "MLP"}
    assert digit_compare.measure([rows["NoNumber"]]).ours["accuracy"].value == 0
    assert math.isfinite(rows["MLP"].scores["best_test"])


def test_quick_runs_are_too_short_for_a_verdict() -> None:
    (experiment,) = select(["primer2022/digit-compare"])
    page: Any = experiment.show
    assert page.judged == ("paper",)
