"""A results file that is deleted, moved or replaced while it is open: noticed, and its runs saved elsewhere."""

import re
import shutil
from pathlib import Path

import pytest
from results_samples import row

from numerate.results import Store, StoreError


def saved(error):
    """The file that the message names."""
    found = re.search(r"its runs are saved in (\S+);", str(error.value))
    assert found
    with Store(Path(found[1]), readonly=True) as store:
        return store.rows()


@pytest.mark.parametrize("loss", ["deleted", "moved", "replaced"])
def test_a_lost_file_is_noticed_and_its_runs_are_saved(tmp_path, loss):
    folder = tmp_path / "results"
    path = folder / "runs.sqlite"

    def lose(store: Store) -> None:
        store.add([row(0)])
        if loss == "moved":
            folder.rename(tmp_path / "elsewhere")
        else:
            shutil.rmtree(folder)
        if loss == "replaced":
            Store(path).close()
        store.add([row(1)])

    with pytest.raises(StoreError, match="was deleted, moved or replaced while in use") as error, Store(path) as store:
        lose(store)
    assert f"numerate rows import {tmp_path}" in str(error.value)
    assert saved(error) == [row(0), row(1)]


@pytest.mark.parametrize("action", ["rows", "checkpoint", "nothing"])
def test_a_loss_is_noticed_at_reading_at_a_checkpoint_and_at_the_end(tmp_path, action):
    def lose(store: Store) -> None:
        store.add([row(0)])
        shutil.rmtree(tmp_path / "results")
        if action == "rows":
            store.rows()
        elif action == "checkpoint":
            store.checkpoint("group", {})

    with pytest.raises(StoreError, match="deleted") as error, Store(tmp_path / "results" / "a.sqlite") as store:
        lose(store)
    assert saved(error) == [row(0)]
    assert not (tmp_path / "results").exists()


def test_an_error_of_the_caller_is_not_replaced(tmp_path):
    def lose() -> None:
        with Store(tmp_path / "results" / "a.sqlite"):
            shutil.rmtree(tmp_path / "results")
            raise KeyError

    with pytest.raises(KeyError):
        lose()
