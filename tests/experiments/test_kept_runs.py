"""The runs that are kept beside the docs, from which their tables and pictures can be made again."""

from pathlib import Path

import pytest

from numerate.experiments import Options, select
from numerate.results import Store
from numerate.results.gzipped import expand

KEPT = sorted((Path(__file__).parents[2] / "docs" / "runs").glob("*.sqlite.gz"))


def test_runs_are_kept():
    assert KEPT


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_kept_runs_are_whole_and_are_what_a_command_would_train(path, tmp_path):
    expand(path, tmp_path / "kept.sqlite")
    with Store(tmp_path / "kept.sqlite", readonly=True) as store:
        assert not store.check()
        for experiment in store.experiments():
            (found,) = select([experiment])
            wanted = {key for size in ("quick", "paper") for key in found.work(Options(size)).keys}
            assert {row.key for row in store.rows(experiment)} <= wanted, experiment
