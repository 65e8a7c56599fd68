"""Numbers in words and program evaluation of the NALU paper: models, measures, reports at smoke size."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from numerate.experiments import Options, experiments
from numerate.experiments.nalu2018 import number_words, program_evaluation
from numerate.experiments.nalu2018.word_models import FactorAndTerm, NumberReader
from numerate.results import Row, Store
from numerate.tasks import NumberWords
from numerate.tasks.number_words import SMALL, TENS, VOCABULARY
from numerate.train import Cosine, NetworkTraining, train
from numerate.units import NAC, Dense

TASK = NumberWords()


def test_factors_and_terms_of_english_are_right_everywhere():
    model = FactorAndTerm(30, 1)
    terms = [*range(20), *range(20, 100, 10), 0, 0]
    assert len(SMALL) + len(TENS) == 28
    with torch.no_grad():
        model.log_factor.fill_(0)[0, VOCABULARY.index("hundred")] = math.log(100)
        model.tens.copy_(torch.tensor([terms]) / 10)
    batch = TASK.evaluation("test", 0, TASK.data())
    assert torch.allclose(model(batch.x), batch.y)


@pytest.mark.parametrize("read", ["final", "summed"])
def test_the_lstm_is_read_after_the_last_word_or_at_every_word(read):
    model = NumberReader(30, 1, Dense, 4, read)
    batch = TASK.evaluation("validation", 0, TASK.data())
    for column in (0, 3, 50):
        words = batch.x[:, column][batch.x[:, column].any(-1)]
        outputs = model.layer((words @ model.embedding.T).unsqueeze(1))[0][:, 0]
        expected = model.head(outputs[-1] if read == "final" else outputs.sum(0))
        assert torch.allclose(model(batch.x)[column], expected, atol=1e-6)


def test_nac_on_an_lstm_cannot_pass_its_width():
    model = NumberReader(30, 1, NAC, 16)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(100)
    assert float(model(TASK.evaluation("test", 0, TASK.data()).x).detach().abs().max()) <= 16


def row(unit, **scores):
    return Row("", {}, 0, scores=scores, labels={"unit": unit, "setting": ""})


def test_the_best_run_is_chosen_by_validation():
    runs = [row("LSTM", best_validation=v, best_test=t, best_test_fitted=0.1) for v, t in ((3.0, 1.0), (2.0, 5.0))]
    found = number_words.measure([replace(run, labels={**run.labels, "set": "test"}) for run in runs])
    assert found.ours["mae_best"].value == 5.0
    assert found.ours["mae"].value == 3.0


def test_sentences_on_words_need_all_their_models():
    runs = [row(number_words.OWN, best_validation=0.5, best_test=0.3, best_test_fitted=0.1)]
    found = number_words.claims(number_words.compare(runs, Options("paper")))
    assert [claim.holds for claim in found] == [None, None, None, None, True]
    assert "not run" in found[0].ours


@pytest.mark.parametrize("only", [number_words.FINAL, number_words.SUMMED])
def test_a_sentence_on_both_lstms_needs_both(only):
    numbers = {"best_validation": 30.0, "best_test": 30.0, "best_test_fitted": 0.1}
    runs = [row(only, **numbers), row(number_words.WITH_NAC, **numbers | {"best_test": 400.0})]
    runs.append(row(number_words.WITH_NALU, **numbers | {"best_test": 0.4}))
    found = number_words.claims(number_words.compare(runs, Options("paper")))
    assert [claim.holds for claim in found] == [None] * 5


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("table11", ["LSTM + NALU", "factor and term", "0.41", "29.4", "32.2", "second-hand"]),
        ("figure6", ["four digits", "two standard deviations", "NALU 0 of 1"]),
        ("figure6-programs", ["four digits", "if statements"]),
    ],
)
def test_runs_and_report_are_complete(tmp_path, name, texts):
    experiment = experiments("nalu2018")[f"nalu2018/{name}"]
    work = experiment.work(Options("smoke"))
    with Store(tmp_path / "results.sqlite") as store:
        train(work.trainings, store, experiment=experiment.id, threads=1)
        rows = work.rows_of(store.rows())
    assert len(rows) == len(work.keys)
    page = experiment.show(work, rows, tmp_path).page.read_text()
    assert all(text in page for text in texts), [text for text in texts if text not in page]


class Mean(torch.nn.Linear):
    """A user's unit, made of two sizes alone."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, bias=False)
        torch.nn.init.constant_(self.weight, 1 / inputs)


def test_a_users_unit_is_the_cell_or_the_layer_on_top():
    units = Options("smoke", units=(Mean,))
    (cell,) = experiments("nalu2018")["nalu2018/figure6"].work(units).trainings
    x = torch.tensor([8.0, 3.0]).view(2, 1, 1)
    assert cell.build(0)(x).item() == pytest.approx((8 / 2 + 3) / 2)
    (head,) = experiments("nalu2018")["nalu2018/table11"].work(units).trainings
    assert isinstance(head.build(0).head, Mean)


def test_a_schedule_ends_with_the_run_that_a_user_asks_for():
    for name in ("table11", "figure6"):
        (own,) = (
            experiments("nalu2018")[f"nalu2018/{name}"]
            .work(Options("paper", steps=1000, units=("factor and term",) if name == "table11" else ("NALU",)))
            .trainings
        )
        assert isinstance(own, NetworkTraining)
        assert own.steps == 1000
        assert own.schedule == Cosine(1000)


def group(unit, *ends):
    """Two runs with these shares of right digits at their ends."""
    curves = {f"test_matching_{d}": np.array([0.0, end]) for d, end in zip((2, 3, 4), ends)}
    return [Row("", {}, s, curves=curves, labels={"unit": unit, "task": "addition"}) for s in (0, 1)]


def test_sentences_on_figure_6_are_judged_by_the_last_digits():
    rows = [*group("LSTM", 1, 0.1, 0.1), *group("UGRNN", 0.97, 0.3, 0.2), *group("DNC", 0.99, 0.1, 0.1)]
    claims = program_evaluation.claims(program_evaluation.FIGURES[0])
    judged = claims([*rows, *group("NALU", 1, 1, 0.99)], Options("paper"))
    assert [claim.holds for claim in judged] == [True, True, True]
    judged = claims([*rows, *group("NALU", 0.9, 1, 0.9)], Options("paper"))
    assert [claim.holds for claim in judged] == [False, False, True]
    assert [claim.holds for claim in claims(rows, Options("paper"))] == [None, None, None]
    assert [claim.holds for claim in claims([*rows, *group("NALU", 1, 1, 1)], Options("quick"))] == [None, None, None]


def test_the_papers_sentences_are_of_sums_and_those_of_programs_are_ours():
    rows = [row for name in (*program_evaluation.OTHERS, "NALU") for row in group(name, 1, 0, 0)]
    sums, programs = (
        program_evaluation.claims(figure)(rows, Options("paper")) for figure in program_evaluation.FIGURES
    )
    assert len(sums) == 3
    assert not any(claim.text.startswith("(Ours)") for claim in sums)
    assert len(programs) == 2
    assert all(claim.text.startswith("(Ours)") for claim in programs)
