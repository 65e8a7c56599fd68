"""The published numbers, at the published size: minutes, so only with ``pytest -m slow``."""

import pytest

from numerate.experiments import Options, select
from numerate.experiments.nau2020 import tables as nau2020
from numerate.experiments.primer2022 import tables as primer2022
from numerate.results import Store
from numerate.train import train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def finished(id_, folder):
    (experiment,), options = select([id_]), Options("paper")
    with Store(folder / "results.sqlite") as store:
        work = experiment.work(options)
        train(work.trainings, store, experiment=id_)
        return work.rows_of(store.rows()), options


def test_at_most_10_of_the_primers_207_success_rates_differ(tmp_path):
    rows, options = finished("primer2022", tmp_path)
    compared = primer2022.compare(list(primer2022.TABLES), rows, options)
    assert len(compared.cells) == 207
    assert compared.count("differs") <= 10


def test_table_1_of_neural_arithmetic_units_agrees(tmp_path):
    rows, options = finished("nau2020/table1", tmp_path)
    compared = nau2020.compare("1", rows, options)
    assert compared.count("agrees") == 3
