"""Pairs of handwritten digits: images, truths, share of equal ones; on made-up images."""

import pytest
import torch
import torch.nn.functional as F

from numerate.data import mnist
from numerate.data.images import Images
from numerate.tasks import DigitPairs
from numerate.tasks.batches import Batch


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images whose every pixel is the digit; the labels repeat 0, 1, ..., 9."""
    labels = [torch.arange(count) % 10 for count in (60_000, 10_000)]
    pictures = [label.to(torch.uint8).view(-1, 1, 1).expand(-1, 28, 28) for label in labels]
    monkeypatch.setattr(mnist, "load", lambda data=None: Images(pictures[0], labels[0], pictures[1], labels[1]))


def test_a_pair_is_true_where_the_digits_in_its_images_say_so(images: None) -> None:
    for symbol, holds in ((">", torch.gt), ("=", torch.eq)):
        task = DigitPairs(symbol, batch_size=500, held_out=600)
        data = task.data() | task.order(3, 0)
        parts = [task.evaluation(split, i, data) for split in ("validation", "test") for i in range(2)]
        for batch in (task.batch(torch.tensor(3), torch.tensor(7), data), *parts):
            shown = ((batch.x.unflatten(1, (2, 784))[..., 0] * 0.3081 + 0.1307) * 255).round()
            assert torch.equal(batch.y[:, 1:], shown)
            assert torch.equal(batch.y[:, 0], holds(shown[:, 0], shown[:, 1]).float())
        assert [len(part.y) for part in parts] == [500, 100, 500, 100]
        assert (task.evaluations("validation"), task.evaluations("test")) == (2, 2)


def test_two_pairs_in_five_are_equal_and_no_digit_is_rarer_among_them(images: None) -> None:
    task = DigitPairs("=", batch_size=20_000)
    batch = task.batch(torch.tensor(1), torch.tensor(0), task.data() | task.order(1, 0))
    assert batch.y[:, 0].mean() == pytest.approx(0.4, abs=0.02)
    equal = batch.y[batch.y[:, 0] == 1, 1]
    assert torch.bincount(equal.long()).float().div(len(equal)).tolist() == pytest.approx([0.1] * 10, abs=0.015)
    again = task.batch(torch.tensor(1), torch.tensor(1), task.data() | task.order(1, 1))
    assert not torch.equal(batch.x, again.x)


def test_loss_and_answers_by_hand() -> None:
    y = torch.tensor([[1.0, 3.0, 2.0], [0.0, 4.0, 5.0]])
    prediction = torch.tensor([[0.25, 3.0, 3.0], [0.25, 4.0, 7.0]])
    entropy = -(torch.tensor(0.25).log() + torch.tensor(0.75).log()) / 2
    plain, told = DigitPairs(">"), DigitPairs(">", told=True)
    assert plain.loss(prediction[:, :1], Batch(y, y)) == pytest.approx(entropy.item())
    assert told.loss(prediction, Batch(y, y)) == pytest.approx(entropy.item() + 5 / 4)
    assert plain.measures(prediction, Batch(y, y))["accuracy"].tolist() == [1, 2]
    with pytest.raises(ValueError, match="symbol must be one of"):
        DigitPairs("==")


def test_loss_is_torchs_cross_entropy_to_the_last_bit() -> None:
    """Also where a probability is 0 or 1."""
    logits = torch.cat((10 * torch.randn(200, generator=torch.Generator().manual_seed(0)), torch.tensor([200.0, -200])))
    y = (torch.arange(202) % 2).float()
    task = DigitPairs(">")
    losses = lambda p: (task.loss(p[:, None], Batch(y, y[:, None])), F.binary_cross_entropy(p, y))  # noqa: E731
    ours, theirs = (
        (loss.detach(), *torch.autograd.grad(loss, (leaf,)))
        for i in range(2)
        for leaf in [logits.clone().requires_grad_()]
        for loss in [losses(leaf.sigmoid())[i]]
    )
    assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("told", [False, True])
def test_a_prediction_that_is_not_a_number_is_wrong_and_its_loss_is_none(told: bool) -> None:
    y = torch.tensor([[1.0, 3.0, 2.0], [0.0, 4.0, 5.0]])
    prediction = torch.full((2, 3), torch.nan, requires_grad=True)
    task, batch = DigitPairs(">", told), Batch(y, y)
    loss = task.loss(prediction, batch)
    assert loss.isnan()
    (gradient,) = torch.autograd.grad(loss, prediction)
    assert gradient[:, 0].isnan().all()  # so the parameters are no longer finite, and the run counts as diverged
    measures = task.measures(prediction, batch)
    assert measures["accuracy"].tolist() == [0, 2]
    assert measures["error"].tolist() == [2, 2]
