"""What is stored is on disk, once, the same for everyone; what cannot be used says so in one sentence."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from results_samples import row

from numerate.results import Added, Provenance, Store, StoreError, records


def test_a_row_comes_back_as_it_went_in(path):
    with Store(path) as store:
        store.add([row()])
    with Store(path) as store:
        (back,) = store.rows()
    assert back == row()
    assert back.provenance == row().provenance
    assert back.weights["final"]["0.weight"].dtype == np.float32
    assert back.scores["snapped_kept"] == 1.0
    assert np.isnan(back.scores["snapped_test"])
    np.testing.assert_array_equal(back.curves["test"], row().curves["test"])


def test_a_diverged_run_keeps_step_and_reason(path):
    lost = row(status="diverged", stopped_at=1234, reason="NaN in weight")
    with Store(path) as store:
        store.add([lost])
        (back,) = store.rows()
    assert (back.status, back.stopped_at, back.reason) == ("diverged", 1234, "NaN in weight")


def test_adding_twice_changes_nothing(path):
    with Store(path) as store:
        assert store.add([row(0), row(1)]) == Added(new=2)
        before = store.digest()
        assert store.add([row(1), row(2)]) == Added(new=1, same=1)
        assert len(store.rows()) == 3
        assert store.digest() != before


def test_a_stored_result_is_never_overwritten(path):
    with Store(path) as store:
        store.add([row()])
        other = row(scores={"threshold": 5.0})
        assert store.add([other]).conflicts == (row().key,)
        assert store.rows() == [row()]


def test_missing_keeps_the_order_asked(path):
    keys = [row(seed).key for seed in (5, 3, 4, 1)]
    with Store(path) as store:
        store.add([row(3), row(1)])
        assert store.missing(keys) == [keys[0], keys[2]]


def test_rows_are_chosen_by_experiment_label_or_key(path):
    others = [row(unit="NAU"), row(span=(-2, 2)), row(7, experiment="primer2022/table9", config={"x": 1})]
    with Store(path) as store:
        store.add([row(), *others])
        assert store.rows("primer2022/table9") == [others[2]]
        assert store.rows(where={"unit": "NAU"}) == [others[0]]
        assert store.rows(where={"range": (-2, 2)}) == [others[1]]
        assert len(store.rows("primer2022/table11", where={"unit": ["NAU", "NMU"], "range": [(1, 2)]})) == 2
        assert len(store.rows(where=lambda labels: labels["range"][0] < 0)) == 1
        assert store.rows(where={"colour": "red"}) == []
        assert store.rows(keys=[others[0].key]) == [others[0]]
        assert store.experiments() == {"primer2022/table11": 3, "primer2022/table9": 1}


def test_order_of_writing_and_circumstances_do_not_show(tmp_path):
    rows = [row(seed, unit) for unit in ("NMU", "NALU") for seed in range(3)]
    with Store(tmp_path / "a.sqlite") as one, Store(tmp_path / "b.sqlite") as two:
        one.add(rows)
        for each in reversed(rows):
            two.add([replace(each, provenance=Provenance("emitted", created="later"))])
        assert one.rows() == two.rows()
        assert one.digest() == two.digest()


def test_a_file_is_not_exported_into_itself_nor_are_runs_that_are_not_there(path, tmp_path):
    with Store(path) as store:
        store.add([row()])
        with pytest.raises(StoreError, match="is the results file itself"):
            store.export(tmp_path / "." / path.name)
        with pytest.raises(StoreError, match="has no runs of 'nosuch'; it has primer2022/table11"):
            store.export(tmp_path / "other.sqlite", "nosuch")
        (tmp_path / "link.sqlite").hardlink_to(path)
        with pytest.raises(StoreError, match="is the results file itself"):
            store.export(tmp_path / "link.sqlite")
        assert not list(tmp_path.glob("link.sqlite-*"))
    assert not (tmp_path / "other.sqlite").exists()


def test_a_file_with_the_table_of_earlier_formats_still_serves(path):
    with Store(path) as store:
        store.add([row(0)])
        store._file.db.execute("CREATE TABLE points (config_hash TEXT, seed INTEGER, step INTEGER)")
    with Store(path) as store:
        assert store.add([row(0), row(1)]) == Added(1, 1)
    with Store(path, readonly=True) as store:
        assert [each.seed for each in store.rows()] == [0, 1]
        assert store.check() == []


def test_a_transaction_is_all_or_nothing(path):
    def interrupted(store: Store) -> None:
        with store.transaction():
            store.add([row()])
            store.drop_checkpoint("group")
            raise KeyboardInterrupt

    with Store(path) as store:
        store.checkpoint("group", {})
        with pytest.raises(KeyboardInterrupt):
            interrupted(store)
        assert store.rows() == []
        assert store.checkpoints() == ["group"]
        store.add([row()])
        assert len(store.rows()) == 1


def test_a_transaction_within_another_is_undone_alone(path):
    broken = row(9, curves={"test": np.array(["text"])})
    with Store(path) as store:
        with store.transaction():
            store.add([row(0)])
            with pytest.raises(TypeError, match="must hold numbers"):
                store.add([row(1), broken])
            with store.transaction():
                store.add([row(2)])
                with pytest.raises(TypeError, match="must hold numbers"):
                    store.add([row(3), broken])
        assert [each.seed for each in store.rows()] == [0, 2]


def test_runs_move_into_a_file_that_another_process_has_open(path, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    there = tmp_path / "there.sqlite"
    with Store(path) as store, Store(there) as reader:
        store.add([row(0), row(1)])
        assert store.export(there) == Added(new=2)
        assert reader.rows() == [row(0), row(1)]
        shutil.copy(there, tmp_path / "copy.sqlite")
        monkeypatch.setattr(time, "sleep", lambda _: reader.close())
        assert store.export(there) == Added(same=2)
    assert not list(tmp_path.glob("there.sqlite-*"))
    with Store(tmp_path / "copy.sqlite", readonly=True) as copy:
        assert copy.rows() == [row(0), row(1)]


def test_runs_can_leave_their_weights_behind(path, tmp_path):
    with Store(path) as store:
        store.add([row(0), row(1)])
        assert store.export(tmp_path / "small.sqlite", weights=False) == Added(new=2)
        whole = store.rows()
    with Store(tmp_path / "small.sqlite", readonly=True) as small:
        for found, kept in zip(small.rows(), whole):
            assert kept.weights
            assert found == replace(kept, weights={})
            with pytest.raises(ValueError, match="was stored without its best weights"):
                found.stored_weights("best")
            np.testing.assert_array_equal(found.curves["test"], kept.curves["test"])


def test_a_run_without_weights_is_the_same_run(path, tmp_path):
    light = tmp_path / "light.sqlite"
    with Store(path) as store, Store(tmp_path / "there.sqlite") as there:
        store.add([row(0)])
        store.export(light, weights=False)
        assert store.import_(light) == Added(same=1)
        assert store.rows() == [row(0)]
        assert there.import_(light) == Added(new=1)
        assert there.rows() == [replace(row(0), weights={})]
        assert there.import_(path) == Added(same=1)
        assert there.rows() == [row(0)]
        assert not there.check()
        there.add([row(1)])
        assert there.add([replace(row(1), weights={}, scores={"threshold": 3.0})]) == Added(conflicts=(row(1).key,))


def test_runs_move_between_files(tmp_path):
    with Store(tmp_path / "here.sqlite") as here, Store(tmp_path / "there.sqlite") as there:
        here.add([row(0), row(1), row(2, experiment="other", config={"x": 1})])
        assert here.export(tmp_path / "carry.sqlite", "primer2022/table11") == Added(new=2)
        assert here.export(tmp_path / "carry.sqlite") == Added(new=1, same=2)
        assert sorted(p.name for p in tmp_path.glob("carry*")) == ["carry.sqlite"]
        there.add([row(0), row(1, scores={"threshold": 3.0})])
        merged = there.import_(tmp_path / "carry.sqlite")
        assert merged == Added(new=1, same=1, conflicts=(row(1).key,))
        assert "1 contradict" in str(merged)
        assert there.import_(tmp_path / "carry.sqlite").new == 0


def test_runs_are_read_from_a_read_only_folder(tmp_path):
    folder = tmp_path / "disc"
    with Store(folder / "runs.sqlite") as store:
        store.add([row()])
    folder.chmod(0o500)
    (folder / "runs.sqlite").chmod(0o400)
    try:
        with Store(folder / "runs.sqlite", readonly=True) as store:
            assert store.rows() == [row()]
            with pytest.raises(StoreError, match="cannot be written"):
                store.add([row(1)])
    finally:
        folder.chmod(0o700)


def test_frames_hold_labels_scores_and_curves(path):
    polars = pytest.importorskip("polars")
    with Store(path) as store:
        store.add([row(0), row(1, span=(0.1, 0.2)), row(2, "NAU", scores={})])
        frame = store.frame()
        assert store.frame(curves=False).height == 3
        assert store.frame("nothing").height == 0
    assert frame.height == 3
    assert set(frame["unit"]) == {"NMU", "NAU"}
    assert frame.filter(polars.col("unit") == "NAU")["threshold"].to_list() == [None]
    assert [0.1, 0.2] in frame["range"].to_list()
    assert frame["steps"].to_list()[0] == [0, 1000, 2000]


def test_a_label_whose_values_have_no_common_type_is_text(path):
    pytest.importorskip("polars")
    values = [3, [1.0, 2.0], [[-6, -2], [2, 6]], "all"]
    with Store(path) as store:
        store.add([row(seed, labels={"seeds": seed, "value": value}) for seed, value in enumerate(values)])
        store.add([row(4, labels={"seeds": 4, "span": [1, 2]}), row(5, labels={"seeds": 5, "span": [0.5, 2]})])
        frame = store.frame().sort("seed")
    assert frame["value"].to_list() == ["3", "[1,2]", "[[-6,-2],[2,6]]", '"all"', None, None]
    assert frame["span"].to_list() == [None] * 4 + [[1.0, 2.0], [0.5, 2.0]]
    assert frame["seeds"].to_list() == list(range(6))


def test_a_name_that_stands_for_something_else_already_says_its_kind():
    labels = {"seed": 99, "label_seed": 98, "unit": "NMU"}
    scores = {"unit": 0.5, "config": 0.25, "test": 0.125}
    (record,) = records([row(7, labels=labels, scores=scores, curves={"test": np.arange(2)})])
    assert {name: record[name] for name in ("seed", "label_seed", "label_label_seed")} == {
        "seed": 7,
        "label_seed": 99,
        "label_label_seed": 98,
    }
    assert (record["unit"], record["score_unit"]) == ("NMU", 0.5)
    assert (record["config"], record["score_config"]) == (row(7).config_text, 0.25)
    assert (record["test"], record["curve_test"]) == (0.125, [0, 1])


def test_a_missing_library_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with Store(path) as store, pytest.raises(ModuleNotFoundError, match="pip install pandas"):
        store.to_pandas()


def test_an_experiments_rows_include_those_it_shares(path, tmp_path):
    with Store(path) as store:
        store.add([row(0), row(1), row(2, experiment="mine", config={"x": 1})])
        store.share("mine", {row(0).key: {"unit": "my NMU"}, row(2, config={"x": 1}).key: {}})
        shared = replace(row(0), experiment="mine", labels={"unit": "my NMU"})
        assert store.rows("mine") == [row(2, experiment="mine", config={"x": 1}), shared]
        assert store.frame("mine").height == 2
        assert len(store.rows()) == 3
        assert store.experiments() == {"mine": 2, "primer2022/table11": 2}
        assert store.export(tmp_path / "mine.sqlite", "mine") == Added(new=2)
        assert store.export(tmp_path / "all.sqlite") == Added(new=3)
    for name in ("mine", "all"):
        with Store(tmp_path / f"{name}{name}.sqlite") as other:
            if name == "mine":
                other.add([row(0)])
            other.import_(tmp_path / f"{name}.sqlite")
            assert shared in other.rows("mine")
            assert row(0) in other.rows()


def test_a_file_that_knows_nothing_of_sharing_still_serves(path):
    with Store(path) as store:
        store.add([row(0)])
        store._file.db.execute("DROP TABLE shared")
    with Store(path, readonly=True) as store:
        assert store.rows("primer2022/table11") == [row(0)]
        assert store.rows("mine") == []
    with Store(path) as store:
        store.share("mine", {row(0).key: {}})
        assert len(store.rows("mine")) == 1


# Several processes


def _write(path: Path, seeds: range) -> None:
    with Store(path) as store:
        for seed in seeds:
            store.add([row(seed)])


def test_writers_that_start_at_once_lose_nothing(path):
    """Half of the runs are written by two processes each; the file does not exist before."""
    context = get_context("spawn")
    writers = [context.Process(target=_write, args=(path, range(start, start + 40))) for start in (0, 20, 40)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    with Store(path) as store:
        assert sorted(r.seed for r in store.rows()) == list(range(80))
        assert store.check() == []


WRITER = """
import sys
sys.path.insert(0, {tests!r})
from results_samples import row
from numerate.results import Store
import numpy as np
with Store({path!r}) as store:
    for seed in range({start}, 100_000):
        with store.transaction():
            store.checkpoint("group-{start}", {{"seed": np.array(seed)}}, {{"seed": seed}})
            store.add([row(seed), row(seed, "NAU")])
        print(seed, flush=True)
"""


def test_kill_9_loses_nothing_that_was_acknowledged(path):
    """Two writers, each killed at a moment of chance, four times over; what they had reported is there, whole."""
    draw = np.random.default_rng(7)
    acknowledged: dict[int, int] = {}
    for round_ in range(4):
        starts = [1000 * round_, 1000 * round_ + 500]
        programs = [WRITER.format(tests=str(Path(__file__).parent), path=str(path), start=start) for start in starts]
        writers = [
            subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for code in programs
        ]
        for writer in writers:
            assert writer.stdout
            assert writer.stdout.readline()  # has begun
        for writer, start in zip(writers, starts):
            assert writer.stdout
            time.sleep(draw.uniform(0.02, 0.2))
            os.kill(writer.pid, signal.SIGKILL)
            # Not communicate(): it reads past the pipe's buffer, where lines that came with the first may lie.
            with writer:
                *whole, _torn = writer.stdout.read().split("\n")  # the kill may fall within a line
            acknowledged[start] = int(whole[-1]) if whole else start
    with Store(path) as store:
        assert store.check() == []
        rows = store.rows()
        seeds = {r.seed for r in rows}
        for start, last in acknowledged.items():
            assert set(range(start, last + 1)) <= seeds
            saved = store.load_checkpoint(f"group-{start}")
            assert saved is not None
            assert saved.meta["seed"] in (last, last + 1)
        assert len(rows) == 2 * len(seeds), "a transaction was torn"
        assert all(each == row(each.seed, each.labels["unit"]) for each in rows)


def test_results_need_neither_torch_nor_the_extras():
    code = (
        "import sys, numerate.results; print([m for m in ('torch', 'polars', 'scipy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
