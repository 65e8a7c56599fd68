"""Words of a text, short programs and photographs: each example is what its definition says."""

import math
import re

import pytest
import torch
from torch.func import vmap

from numerate.data import cifar10, ptb
from numerate.data.images import Images
from numerate.tasks import Programs, SequentialPhotographs, Words
from numerate.tasks.programs import KINDS, PADDING, SYMBOLS, program
from numerate.tasks.words import article_starts, laid_out


def test_articles_begin_at_titles_and_not_at_sections_or_sums():
    lines = ["", "= A B =", "", "= = Plot = =", "", "x = y =", "", "= 1", "", "= C =", "", "end"]
    words = [word for line in lines for word in (*line.split(), "<eos>")]
    symbols = tuple(dict.fromkeys(words))
    starts = article_starts(torch.tensor([symbols.index(word) for word in words]), symbols).tolist()
    assert [words[start + 1] for start in starts] == ["A", "C"]


@pytest.mark.parametrize("whole", [False, True])
def test_every_word_follows_its_own_and_articles_start_anew(whole):
    ids, starts = torch.arange(50), torch.tensor([0, 13, 14, 40])
    parts = laid_out(ids, starts, columns=3, length=4, whole=whole)
    x, y, mask, reset = (parts[name] for name in ("x", "y", "mask", "reset"))
    assert torch.equal(y[mask], x[mask] + 1)
    seen = sorted(y[mask].tolist())
    assert seen == (list(range(1, 50)) if not whole else seen)
    assert len(set(seen)) == len(seen)
    assert reset[0].all()
    for batch, column in reset[1:].nonzero().tolist():  # only where an article begins, or where nothing is left
        assert int(y[batch + 1, 0, column]) in starts or not mask[batch + 1, :, column].any()
    going_on = ~reset[1:] & mask[1:, 0]
    assert torch.equal(x[1:, 0][going_on], y[:-1, -1][going_on])


def test_words_are_those_of_the_text_and_batches_stack(small_ptb):
    task, text = Words("ptb", 2, 5, articles=False), ptb.load_words()
    data = task.data()
    columns = torch.cat([task.batch(torch.tensor(0), torch.tensor(step), data).x for step in range(task.epoch)]).T
    assert torch.equal(columns[0], text.train[: columns.shape[1]])
    stacked = vmap(lambda step: task.batch(torch.tensor(0), step, data).y)(torch.tensor([1, task.epoch]))
    assert torch.equal(stacked[1], task.batch(torch.tensor(0), torch.tensor(0), data).y)
    counts = sum(float(task.evaluation("test", i, data).mask.sum()) for i in range(task.evaluations("test")))  # type: ignore[union-attr]
    assert counts == len(text.test) - 1
    flat = torch.zeros(5, 2, task.outputs)
    assert task.loss(flat, task.evaluation("test", 0, data)).item() == pytest.approx(task.guessing())


def test_words_of_no_such_text_and_articles_of_penn_treebank_are_refused():
    with pytest.raises(ValueError, match="text must be"):
        Words("wikitext-3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Penn Treebank has no articles"):
        Words("ptb")


def python_of(code: str) -> str:
    """A program as an expression of Python."""
    loop = re.compile(r"x=(\d+|\([^()]*\))for\[(\d)\]x\+=(\d+)")
    before = None
    while before != code:
        before, code = code, loop.sub(lambda m: f"{m[1]}+{m[2]}*{m[3]}", code, count=1)
        code = re.sub(r"\((\d+)\)", r"\1", code)
        code = re.sub(r"\(([^()x=]*)\)", lambda m: str(eval(spaced(m[1]))), code, count=1)
        code = re.sub(r"(?<=\D)(-\d+)", r"\1", code)
    return spaced(code)


def spaced(code: str) -> str:
    return code.replace("if", " if ").replace("else", " else ")


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_what_the_programs_compute(kind):
    generator = torch.Generator().manual_seed(0)
    for case in range(60):
        length, nesting = 1 + case % 5, 1 + case % 3
        random = iter(torch.randint(2**32, (60,), generator=generator).tolist())
        code, answer = program(kind, length, nesting, random)
        if "-" in code and nesting > 1:
            continue  # a difference may be negative, and loops in brackets are not the checker's
        assert int(answer) == eval(python_of(code)) % 10 ** (length + 1)
        assert all(len(number) == length for number in re.findall(r"\d+", re.sub(r"for\[\d\]", "for", code)))


def test_programs_fit_and_answers_are_read_at_the_end():
    task = Programs("program", 3, 2, 5, 2, 2)
    data = task.data() | task.order(7, 0)
    batch = task.batch(torch.tensor(7), torch.tensor(3), data)
    steps = task.read_steps + task.answer_steps
    assert batch.x.shape == (steps, 5, len(SYMBOLS))
    assert torch.equal(batch.x[task.read_steps :], torch.zeros(task.answer_steps, 5, len(SYMBOLS)))
    assert (batch.x[: task.read_steps].sum(-1) == 1).all()
    assert Programs().read_steps == 163
    right = torch.nn.functional.one_hot(batch.y, len(SYMBOLS)).float()
    found = task.measures(right, batch)
    assert found["error"].tolist() == [0.0, float((data["answers"][1] != PADDING).sum())]
    assert found["answers"].tolist() == [5.0, 5.0]
    assert task.loss(torch.zeros_like(right), batch).item() == pytest.approx(math.log(len(SYMBOLS)), rel=1e-5)


def test_training_mixes_lengths_and_tests_have_the_largest():
    task = Programs("addition", 4, 2, 64, 1, 1)
    digits = lambda answers: (answers != PADDING).sum(-1).float().mean()  # noqa: E731
    assert digits(task.order(0, 0)["answers"]) < digits(task.data()["test_answers"]) - 1
    assert not torch.equal(task.order(0, 0)["programs"], task.order(0, 1)["programs"])
    assert not torch.equal(task.order(0, 0)["programs"], task.order(1, 0)["programs"])
    with pytest.raises(ValueError, match="at most 9 digits, got 10"):
        Programs(length=10)


def test_photographs_are_read_row_by_row_in_three_colours(monkeypatch):
    pictures = torch.arange(4 * 3 * 32 * 32).view(4, 3, 32, 32).remainder(251).to(torch.uint8)
    monkeypatch.setattr(cifar10, "load", lambda: Images(pictures, torch.arange(4), pictures, torch.arange(4)))
    monkeypatch.setattr(SequentialPhotographs, "_sizes", lambda self: (3, 1, 4))
    task = SequentialPhotographs(batch_size=2)
    batch = task.evaluation("test", 1, task.data())
    assert batch.x.shape == (1024, 2, 3)
    assert torch.equal(batch.x[33, 0] * 255, pictures[2, :, 1, 1].float())
    assert batch.y.tolist() == [2, 3]
