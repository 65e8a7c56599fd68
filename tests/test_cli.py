"""The command as a newcomer types it: what it prints, what it writes, and one sentence for what is wrong."""

import csv
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import rich.console

from numerate import __version__
from numerate.cli import main
from numerate.cli_progress import Bar, Lines
from numerate.results import Store
from numerate.train import Progress

OWN = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(outputs))

    def forward(self, x):
        return x.prod(-1, keepdim=True) * self.scale
"""


OPTIONS = ["--size", "smoke", "--seeds", "2", "--units", "NMU,myunits:Mine", "--ranges", "[1,2) [-2,-1)"]


def process(*words):
    return subprocess.run([sys.executable, "-m", "numerate", *words], capture_output=True, text=True, check=False)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def numerate(capfd, monkeypatch):
    """Call the command in this process, as the console script does."""

    def call(*words, cwd=None):
        monkeypatch.setattr(sys, "argv", ["numerate", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "100")
        if cwd is not None:
            monkeypatch.chdir(cwd)
        try:
            code = main() or 0
        except SystemExit as end:
            code = int(end.code or 0)
        return Done(code, *capfd.readouterr())

    return call


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small experiment with a unit of the user's own, run once for all tests here."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "myunits.py").write_text(OWN)
    words = ["run", "primer2022/table11", *OPTIONS, "--out", str(folder / "results")]
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    around = os.environ | {"COLUMNS": "100", "PYTHONPATH": path}
    command = [sys.executable, "-m", "numerate", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=around, check=False)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(folder))
    yield folder, done.stdout
    sys.path.remove(str(folder))


def test_a_users_own_unit_appears_in_table_and_report_like_ours(finished):
    folder, printed = finished
    assert "NMU" in printed
    assert "Mine" in printed
    report = folder / "results" / "primer2022" / "table11"
    page = (report / "report.html").read_text()
    assert "Mine" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    with (report / "table.csv").open() as file:
        rows = {(line["series"], line["x"]): line for line in csv.DictReader(file)}
    assert len(rows) == 4
    mine = next(line for (unit, _), line in rows.items() if unit == "Mine")
    assert float(mine["success_rate"]) == 1.0  # it starts as the exact product
    assert {path.suffix for path in report.iterdir()} >= {".html", ".csv", ".png", ".svg", ".pdf"}


def test_running_again_trains_nothing_and_reports_the_same(finished, numerate):
    folder, _ = finished
    page = folder / "results" / "primer2022" / "table11" / "report.html"
    before = page.read_bytes()
    for command in ("run", "report"):
        done = numerate(command, "primer2022/table11", *OPTIONS, "--out", "results", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert page.read_bytes() == before


def test_show_tells_weights_and_formula_of_one_run(finished, numerate):
    folder, printed = finished
    hint = re.search(r"^one of its runs: numerate (show [0-9a-f]+-\d+ --out .+)$", printed, re.MULTILINE)
    assert hint
    shown = numerate(*hint[1].split(), cwd=folder)
    assert shown.returncode == 0, shown.stderr
    assert "formula" in shown.stdout
    assert "x1" in shown.stdout
    assert "validation" in shown.stdout


def test_every_run_is_listed_by_a_name_that_show_knows(finished, numerate, monkeypatch):
    monkeypatch.delitem(sys.modules, "myunits", raising=False)
    folder, printed = finished
    hint = re.search(r"^all of them: numerate (rows list .+)$", printed, re.MULTILINE)
    assert hint
    lines = numerate(*hint[1].split(), cwd=folder).stdout.splitlines()
    assert len(lines) == 8
    (line,) = [line for line in lines if "unit Mine" in line and "range [−2, −1)" in line and "seed 1" in line]
    assert line.endswith(": solved at step 0")
    shown = numerate("show", line.split()[0], "--out", "results", cwd=folder).stdout
    for part in ("Mine", "[−2, −1)", "Adam(", "--import would import myunits and call Mine", "at the start to"):
        assert part in " ".join(shown.split())
    assert "myunits" not in sys.modules
    done = numerate("show", line.split()[0], "--import", "--out", "results", cwd=folder)
    assert done.stderr == "as --import asks: import myunits and call Mine\n"
    assert "no formula is known for Mine" in " ".join(done.stdout.split())
    assert "myunits" in sys.modules
    done = numerate("rows", "list", "--experiment", "nau2020", "--out", "results", cwd=folder)
    assert done.returncode == 2
    assert "no runs of 'nau2020' in results/results.sqlite; there are runs of: primer2022/table11" in done.stderr


def test_a_papers_name_lists_the_runs_of_all_its_experiments(finished, numerate):
    done = numerate("rows", "list", "--experiment", "primer2022", "--out", "results", cwd=finished[0])
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 8
    done = numerate("rows", "list", "--experiment", "primer", "--out", "results", cwd=finished[0])
    assert done.returncode == 2


def test_borrowed_runs_are_listed_by_the_experiment_that_stored_them(finished, tmp_path, numerate):
    with Store(finished[0] / "results" / "results.sqlite", readonly=True) as store:
        rows = store.rows()
    with Store(tmp_path / "results.sqlite") as store:
        store.add([row.relabelled("zoo", row.labels) for row in rows])
    done = numerate("report", "primer2022/table11", *OPTIONS, "--out", tmp_path)
    hint = re.search(r"^it is stored with the runs of zoo: numerate (rows list .+)$", done.stdout, re.MULTILINE)
    assert hint
    assert len(numerate(*shlex.split(hint[1])).stdout.splitlines()) == 8


def test_a_report_names_units_that_have_runs_and_are_not_shown(finished, numerate):
    told = "other units have runs, too: Mine; --units shows them"
    assert told in numerate("report", "primer2022/table11", "--out", "results", cwd=finished[0]).stdout
    assert "other units" not in numerate("report", "primer2022/table11", *OPTIONS, cwd=finished[0]).stdout


def test_runs_without_labels_are_listed_by_their_seed(finished, tmp_path, numerate):
    with Store(finished[0] / "results" / "results.sqlite", readonly=True) as store:
        rows = store.rows()
    with Store(tmp_path / "results.sqlite") as store:
        store.add([rows[0].relabelled("mine", {})])
    assert f"  mine: seed {rows[0].seed}: " in numerate("rows", "list", "--out", tmp_path).stdout


def test_a_damaged_run_does_not_hide_another(finished, tmp_path, numerate):
    shutil.copytree(finished[0] / "results", tmp_path / "results")
    with Store(tmp_path / "results" / "results.sqlite") as store:
        first, *_ = store.keys()
        store._file.db.execute("UPDATE runs SET scores = 'x' WHERE seed = 1")
    assert first.seed == 0
    assert numerate("show", first.name, "--out", "results", cwd=tmp_path).returncode == 0


def test_report_takes_the_largest_size_of_which_every_run_is_there(finished, numerate):
    folder, _ = finished
    page = folder / "results" / "primer2022" / "table11" / "report.html"
    before = page.read_bytes()
    without = [word for word in OPTIONS if word not in ("--size", "smoke")]
    pasted = [word.replace("-2,-1", "−2, −1") for word in without]  # as our own texts have it
    assert numerate("report", "primer2022/table11", *pasted, "--out", "results", cwd=folder).returncode == 0
    assert page.read_bytes() == before
    assert "only NMU, Mine" in page.read_text()


def test_report_takes_the_runs_there_are_where_no_size_is_complete(finished, tmp_path, numerate):
    shutil.copy(finished[0] / "results" / "results.sqlite", tmp_path)
    done = numerate("report", "primer2022/table11", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Size smoke: " in done.stdout


def test_time_that_is_over_before_a_run_is_finished_is_no_error(tmp_path, numerate):
    words = ["nru2019/figure1", "--size", "smoke", "--units", "LSTM", "--out", tmp_path]
    done = numerate("run", *words, "--seconds", "0")
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"1 of the missing runs is under way, \d+% of its updates done; to go on: numerate run", done.stdout
    )
    assert numerate("report", *words).returncode == 2


def test_experiments_whose_turn_comes_after_the_end_are_left(tmp_path, numerate):
    several = ["nru2019/figure1", "nru2019/figure4"]
    done = numerate("run", *several, "--size", "smoke", "--units", "LSTM", "--out", tmp_path, "--seconds", "0")
    assert done.returncode == 0, done.stderr
    assert "no finished run of nru2019/figure1" in done.stdout
    assert "nru2019/figure4: the time is up; the same command goes on with it" in done.stdout


def test_the_experiment_is_named_if_there_are_several(tmp_path, numerate):
    done = numerate("run", "primer2022/table9", "primer2022/table11", "--units", "NMU", "--out", tmp_path)
    assert done.returncode == 2
    assert "numerate: primer2022/table9: unit 'NMU' is not part of this experiment" in done.stderr


def test_rows_move_between_machines(finished, tmp_path, numerate):
    folder, _ = finished
    moved = tmp_path / "moved.sqlite"
    out = numerate("rows", "export", moved, "--out", folder / "results")
    assert "8 new" in out.stdout, out.stderr
    for expected in ("8 new, 0 already there", "0 new, 8 already there"):
        done = numerate("rows", "import", moved, "--out", tmp_path / "elsewhere")
        assert expected in done.stdout, done.stderr


def test_compressed_rows_move_too(finished, tmp_path, numerate):
    folder, _ = finished
    moved = tmp_path / "moved.sqlite.gz"
    out = numerate("rows", "export", moved, "--no-weights", "--out", folder / "results")
    assert "8 new" in out.stdout, out.stderr
    done = numerate("rows", "import", moved, "--out", tmp_path / "elsewhere")
    assert "8 new, 0 already there" in done.stdout, done.stderr
    done = numerate("rows", "export", moved, "--out", folder / "results")
    assert done.returncode == 2
    assert "exists; shards and compressed files are made from a new file" in done.stderr


def test_importing_what_is_not_there_makes_no_store(tmp_path, numerate):
    done = numerate("rows", "import", "nothere.sqlite", "--out", "elsewhere", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no results file nothere.sqlite" in done.stderr
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_with_spaces_is_quoted_in_the_hint(finished, tmp_path, numerate):
    folder = tmp_path / "with spaces"
    shutil.copytree(finished[0] / "results", folder)
    done = numerate("report", "primer2022/table11", *OPTIONS, "--out", folder)
    hint = re.search(r"^one of its runs: numerate (show .+)$", done.stdout, re.MULTILINE)
    assert hint
    assert numerate(*shlex.split(hint[1])).returncode == 0


@pytest.mark.parametrize("title", ["zoo", "primer2022/inalu-magnitude"])
def test_the_time_left_is_shown_in_eighty_columns(title):
    line = Bar(title)
    label = "Modified Real NPU mul Single module, 100 inputs"
    line.tell(Progress(1184, 2944, 300, 1184, 0.5, 640.0, label, "emitted"))
    console = rich.console.Console(width=80, file=(written := io.StringIO()))
    console.print(line.bar.get_renderable())
    (shown,) = written.getvalue().splitlines()
    assert "1,184 of 2,944 runs, 25% solved 0:00:00 11 min left" in shown
    assert shown.endswith("…")
    line.tell(Progress(1184, 2944, 30, 120, 0.5, 640.0, label, "emitted"))  # the others were there before
    console = rich.console.Console(width=120, file=(written := io.StringIO()))
    console.print(line.bar.get_renderable())
    assert "1,184 of 2,944 runs, 25% of 120 now trained solved" in written.getvalue()


def test_where_there_is_no_terminal_progress_is_a_line_of_a_log(capsys):
    now = Progress(1184, 2944, 300, 1184, 0.5, 640.0, "NMU mul\x1b[31m", "emitted")
    with Lines("zoo", pause=0.0) as tell:
        tell(now)
    with Lines("zoo") as tell:  # once a minute
        tell(now)
    assert (
        capsys.readouterr().err
        == "zoo: 50.0%, 1,184 of 2,944 runs, 25% solved, 11 min left, NMU mul\N{REPLACEMENT CHARACTER}[31m\n"
    )


def test_version_and_help_do_not_load_torch():
    assert process("--version").stdout.strip() == f"numerate {__version__}"
    code = "import sys\nfrom numerate import cli\nsys.argv = ['numerate', '--help']\n"
    code += "try:\n    cli.main()\nexcept SystemExit:\n    pass\nprint('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip().endswith("False")


def test_the_cache_is_shown_and_cleared_without_torch(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path))
    entry, left = tmp_path / ("a" * 32), tmp_path / "build-left"
    for folder in (entry, left):
        folder.mkdir()
        (folder / "loop.so").write_bytes(bytes(1_500_000))
    code = "import sys; from numerate.cli import app; app(standalone_mode=False); print('torch' in sys.modules)"
    shown, cleared = (
        subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True).stdout
        for words in (["cache"], ["cache", "--clear"])
    )
    assert shown == f"{tmp_path}: 1 entry, 1 unfinished, 1.5 MB of at most 1000 (NUMERATE_CACHE_SIZE)\nFalse\n"
    assert cleared == f"{tmp_path}: 3.0 MB removed\nFalse\n"
    assert not list(tmp_path.iterdir())


def test_lists_name_units_tasks_and_experiments(numerate):
    units = numerate("list", "units").stdout
    names = [line.split()[0] for line in units.splitlines()[1:] if line[0] != " "]
    assert names == sorted(names, key=str.casefold)
    assert re.search(r"^RealNPU +real_npu +Products of any powers\. *$", units, re.MULTILINE)
    assert re.search(r"^NACMul +nac_mul +NAC•, products and quotients of sizes\. *$", units, re.MULTILINE)
    assert "SingleModule" in numerate("list", "tasks").stdout
    assert "ten_parameter_function" in numerate("list", "tasks").stdout
    assert "random_ranges" not in numerate("list", "tasks").stdout  # a function, but not of a task
    assert "primer2022/table11" in numerate("list").stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "nosuch"], "there is no experiment 'nosuch'"),
        (["run", "primer2022/table9", "--size", "huge"], "size must be one of smoke, quick, paper, got 'huge'"),
        (["run", "primer2022/table9", "--units", "NMU"], "unit 'NMU' is not part of this experiment"),
        (["run", "primer2022/table9", "--units", "no.such:Unit"], "cannot import 'no.such'"),
        (["run", "primer2022/table9", "--units", ""], "no units are named"),
        (["run", "primer2022/table9", "--units", "json:loads"], "loads cannot make a model of (inputs, outputs)"),
        (["run", "primer2022/table9", "--units", "os.path:join"], "join cannot make a model of (inputs, outputs)"),
        (["run", "primer2022/table9", "--units", "torch.nn:Bilinear"], "Bilinear cannot make a model"),
        (["run", "primer2022/table9", "--units", "torch.nn:Identity"], "Identity has no parameters to train"),
        (["run", "primer2022/table9", "--units", "json:nosuch"], "module 'json' has no 'nosuch'"),
        (["run", "primer2022/table9", "--units", "os:environ"], "is not a class or function that makes a model"),
        (["run", "primer2022/table9", "--ranges", "[3,4)"], "range [3, 4) is not part of this experiment"),
        (["run", "primer2022/figure18", "--ranges", "[5,6)"], "range [5, 6) is not part of this experiment"),
        (["run", "nau2020/figure3", "--ranges", "[5,6)"], "range [5, 6) is not part of this experiment"),
        (["run", "nau2020/table1", "--ranges", "[1,2)"], "nau2020/table1 has no choice of ranges"),
        (["run", "discover", "--ranges", "[1,2)"], "discover has no choice of ranges"),
        (["run", "discover", "--units", "NAU"], "discover has no choice of units"),
        (["run", "nau2020/figure10", "--units", "NAU"], "nau2020/figure10 has no choice of units"),
        (["run", "nau2020/moments", "--units", "NAU"], "nau2020/moments has no choice of units"),
        (["run", "zoo", "discover", "--units", "NAU"], "discover has no choice of units"),
        (["run", "memory", "--tasks", "nosuch"], "allowed are parity; counting mod 3; selective copying, T = 16"),
        (["run", "memory", "--tasks", ""], "no tasks are named; leave --tasks out for all"),
        (["run", "primer2022/table9", "--tasks", "parity"], "primer2022/table9 at size quick has no choice of tasks"),
        (["run", "primer2022/table9", "--threads", "0"], "threads must be at least 1, got 0"),
        (["run", "primer2022/table9", "--threads", "-1"], "threads must be at least 1, got -1"),
        (["run", "primer2022/table9", "--seeds", "10000000000"], "seeds must be at least 1 and at most 100,000"),
        (["run", "primer2022/table9", "--ranges", "nonsense"], "ranges are given as"),
        (["run", "primer2022/table9", "--ranges", "[1,2"], "ranges are given as '[1,2) [-2,-1)', got '[1,2'"),
        (["run", "primer2022/table9", "--ranges", "[1,2) x"], "ranges are given as"),
        (["run", "primer2022/table9", "--ranges", "[1,2))"], "ranges are given as"),
        (["run", "primer2022/table9", "--device", "tpu"], "device must be cpu or cuda"),
        (["run", "primer2022/table9", "--backend", "magic"], "backend must be one of"),
        (["run", "primer2022/table9", "--seeds", "0"], "seeds must be at least 1 and at most 100,000, got 0"),
        (["run", "primer2022/table9", "--out", ""], "'--out': name a folder; '.' is the current one"),
        (["fit", "data.csv", "--target", "y", "--out", ""], "'--out': name a folder; '.' is the current one"),
        (["rows", "export", "a.sqlite", "--shard-size", "-1"], "must be more than 0.0005 MiB, got -1 MiB"),
        (["rows", "export", "a.sqlite", "--shard-size", "nan"], "must be more than 0.0005 MiB, got nan MiB"),
        (["report", "primer2022/table9"], "there is no results file"),
        (["show", "abc"], "there is no results file"),
        (["list", "everything"], "'numerate list' takes units, tasks or experiments"),
        (["run"], "Missing argument"),
        (["frobnicate"], "No such command"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(words, sentence, tmp_path, numerate):
    done = numerate(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


BROKEN = {"broken": "def (", "raising": "raise LookupError('no data')", "missing": "import nosuchmodule"}
BROKEN["leaving"] = "import sys\nsys.exit(0)"


@pytest.mark.parametrize(
    ("unit", "sentence"),
    [
        ("broken:Unit", "cannot import 'broken' for the unit 'broken:Unit': SyntaxError: invalid syntax"),
        ("raising:Unit", "cannot import 'raising' for the unit 'raising:Unit': LookupError: no data"),
        ("missing:Unit", "No module named 'nosuchmodule'"),
        ("leaving:Unit", "cannot import 'leaving' for the unit 'leaving:Unit': SystemExit: 0"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_sentence(unit, sentence, tmp_path, numerate, monkeypatch):
    for name, text in BROKEN.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    done = numerate("run", "primer2022/table9", "--units", unit, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_unit_is_found_in_the_current_folder(tmp_path):
    (tmp_path / "besides.py").write_text(OWN)
    script = Path(sys.executable).with_name("numerate")  # python -m would look there by itself
    words = ["run", "primer2022/table11", "--size", "smoke", "--units", "besides:Mine", "--device", "tpu"]
    done = subprocess.run([script, *words], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "device must be cpu or cuda" in done.stderr  # said after the units are found


def test_a_unit_of_another_width_is_not_scored(tmp_path, numerate, monkeypatch):
    (tmp_path / "wideunit.py").write_text(OWN.replace("ones(outputs)", "ones(outputs + 2)"))
    monkeypatch.syspath_prepend(tmp_path)
    done = numerate("run", "primer2022/table9", "--units", "wideunit:Mine", "--size", "smoke", cwd=tmp_path)
    assert done.returncode == 2
    assert "Mine makes (2, 3) of inputs of shape (2, 2), but the targets have (2, 1)" in done.stderr


INTERRUPTIBLE = """
import signal
from numerate.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
main()
"""


def test_ctrl_c_says_that_the_same_command_continues_and_exits_130(tmp_path):
    words = ["run", "primer2022/table11", "--size", "paper", "--units", "NMU", "--backend", "stacked"]
    command = [sys.executable, "-c", INTERRUPTIBLE, *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while not (tmp_path / "results" / "results.sqlite").exists():
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, told = running.communicate()
    assert running.returncode == 130
    assert told == "stopped; the same command continues where it was\n"


def test_exporting_onto_itself_or_what_is_not_there_is_refused_at_once(finished, numerate, tmp_path):
    results = finished[0] / "results"
    done = numerate("rows", "export", results / "results.sqlite", "--out", results)
    assert done.returncode == 2
    assert "is the results file itself; export to another one" in done.stderr
    done = numerate("rows", "export", tmp_path / "a.sqlite", "--experiment", "nosuch", "--out", results)
    assert done.returncode == 2
    assert "has no runs of 'nosuch'; it has primer2022/table11" in done.stderr


def test_a_wrong_backend_is_refused_also_when_all_runs_are_stored(finished, numerate):
    done = numerate("run", "primer2022/table11", *OPTIONS, "--backend", "foo", "--out", "results", cwd=finished[0])
    assert done.returncode == 2
    assert "backend must be one of" in done.stderr


def test_a_file_in_place_of_the_reports_folder_is_named(tmp_path, numerate):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "primer2022").write_text("")
    done = numerate("run", "primer2022/table9", "--size", "smoke", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot make the folder results/primer2022/table9 for the report: Not a directory" in done.stderr


def test_help_says_what_a_papers_name_runs(numerate):
    text = " ".join(numerate("run", "--help").stdout.split())
    assert "primer2022 means Tables 9 to 12" in text


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("runs", "scores = replace(scores, 'best_test', 'best_text')"),
        ("runs", "digest = CAST(x'ff41' AS TEXT)"),
        ("circumstances", "timing = '{'"),
    ],
)
def test_a_run_that_is_not_as_it_was_written_is_left_out_and_trained_again(
    table, change, finished, tmp_path, numerate, caplog
):
    shutil.copytree(finished[0] / "results", tmp_path / "results")
    path = tmp_path / "results" / "results.sqlite"
    with Store(path) as store:
        sound = store.rows()
        store._file.db.execute(f"UPDATE {table} SET {change} WHERE seed = 1")
    damaged = {row.key for row in sound if row.seed == 1}
    assert damaged
    named = r"the run \w+-1 in results/results.sqlite (is not as it was written|cannot be read)"

    done = numerate("report", "primer2022/table11", *OPTIONS, "--out", "results", cwd=tmp_path)
    assert done.returncode == 0
    assert len(re.findall(f"{named}.*: it is left out", caplog.text)) == len(damaged)
    done = numerate("rows", "export", "rest.sqlite", "--out", "results", cwd=tmp_path)
    assert done.returncode == 0
    with Store(tmp_path / "rest.sqlite") as store:
        assert store.rows() == [row for row in sound if row.key not in damaged]

    done = numerate("run", "primer2022/table11", *OPTIONS, "--out", "results", cwd=tmp_path)
    assert done.returncode == 0
    assert len(re.findall(f"{named}.*: it is removed", caplog.text)) == len(damaged)
    with Store(path) as store:
        assert store.rows() == sound


def test_a_file_that_is_no_results_file_is_named(tmp_path, numerate):
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "results.sqlite").write_text("not a database, but long enough to look like one " * 20)
    done = numerate("report", "primer2022/table9", cwd=tmp_path)
    assert done.returncode == 2
    assert "results.sqlite" in done.stderr
    assert Path(folder / "results.sqlite").read_text().startswith("not a database")


def test_units_go_by_the_names_of_their_classes_too(tmp_path, numerate):
    done = numerate("run", "primer2022/table11", *OPTIONS[:2], "--units", "NACMul,GNALU", "--seeds", "1", cwd=tmp_path)
    assert done.returncode == 0
    assert {"NAC•", "G-NALU"} <= set(done.stdout.split())


def test_seeds_of_what_is_not_trained_are_refused(tmp_path, numerate):
    done = numerate("run", "nau2020/figure2", "--seeds", "3", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "numerate: nau2020/figure2 trains nothing; leave --seeds out\n"


# Files and terminals that are not as they should be


def test_a_damaged_file_names_rescue_and_rescue_brings_its_runs_out(finished, tmp_path, numerate):
    shutil.copytree(finished[0] / "results", tmp_path / "results")
    path = tmp_path / "results" / "results.sqlite"
    data = path.read_bytes()
    path.write_bytes(b"\0" * 100 + data[100:])
    for words in (["run", "primer2022/table11", *OPTIONS], ["rows", "export", "b.sqlite"], ["rows", "list"]):
        done = numerate(*words, "--out", "results", cwd=tmp_path)
        assert done.returncode == 2
        assert "to bring its good runs out: numerate rows rescue results/results.sqlite --out DIR" in done.stderr
    done = numerate("rows", "rescue", "results/results.sqlite", "--out", "good", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "good/results.sqlite: 8 new, 0 already there\n"
    assert path.read_bytes()[100:] == data[100:]
    done = numerate("rows", "rescue", "results/results.sqlite", "--out", "results", cwd=tmp_path)
    assert done.returncode == 2
    assert "--out must be another folder: results/results.sqlite is the file to be rescued" in done.stderr
    done = numerate("rows", "rescue", "nosuch.sqlite", "--out", "none", cwd=tmp_path)
    assert done.returncode == 2
    assert not (tmp_path / "none").exists()


DELETING = """
import shutil, sys
from numerate import cli
from numerate.train import trainer
group = trainer.Group
class Deleting(group):
    def _rows(self, seconds):
        shutil.rmtree("results", ignore_errors=True)
        return super()._rows(seconds)
trainer.Group = Deleting
cli.main()
"""


def test_a_folder_deleted_during_a_run_is_exit_code_2_and_its_rows_are_kept(tmp_path):
    words = ["run", "primer2022/table11", "--size", "smoke", "--units", "NMU", "--seeds", "2", "--ranges", "[1,2)"]
    command = [sys.executable, "-c", DELETING, *words, "--backend", "stacked"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "was deleted, moved or replaced while in use" in done.stderr
    assert "Traceback" not in done.stderr
    (saved,) = tmp_path.glob("results-saved-*.sqlite")
    with Store(saved, readonly=True) as store:
        assert len(store.rows()) == 2


@pytest.fixture
def odd(finished, tmp_path):
    """The rows of a finished experiment, two of them odd but valid, and one with labels that act on a terminal."""
    with Store(finished[0] / "results" / "results.sqlite", readonly=True) as store:
        rows = store.rows()
    nmu = [row for row in rows if row.labels["unit"] == "NMU"]
    changed = {
        nmu[0].key: replace(nmu[0], scores={}, curves={}),
        nmu[1].key: replace(nmu[1], curves={name: curve[:0] for name, curve in nmu[1].curves.items()}),
        nmu[2].key: replace(nmu[2], labels={"unit": "[/b]\x1b[31m", "range": ["x", None], "operation": ("a", 1)}),
    }
    with Store(tmp_path / "results" / "results.sqlite") as store:
        store.add([changed.get(row.key, row) for row in rows])
    return tmp_path, list(changed)


def test_odd_rows_are_listed_shown_and_left_out_of_a_report(odd, numerate, caplog):
    folder, keys = odd
    done = numerate("rows", "list", "--out", "results", cwd=folder)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 8
    assert "\x1b" not in done.stdout
    assert "has no threshold" in done.stdout
    for key in keys:
        done = numerate("show", key.name, "--out", "results", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout
    done = numerate("report", "primer2022/table11", *OPTIONS, "--out", "results", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert f"the run {keys[0].name} has no steps, validation, test, sparsity, threshold" in caplog.text
    assert f"the run {keys[2].name}" not in caplog.text
    assert "NMU" in done.stdout


@pytest.mark.parametrize(
    ("encoding", "words"), [("ascii", ["report", "primer2022/table11", *OPTIONS]), ("cp1252", ["rows", "list"])]
)
def test_a_terminal_without_utf_8_gets_ascii_marks(finished, encoding, words):
    folder, _ = finished
    around = os.environ | {"PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "numerate", *words, "--out", "results"]
    done = subprocess.run(command, capture_output=True, env=around, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    assert b"[-2, -1)" in done.stdout
    assert b"Traceback" not in done.stderr


def test_a_closed_pipe_is_quiet(finished):
    command = [sys.executable, "-m", "numerate", "rows", "list", "--out", str(finished[0] / "results")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout
        assert running.stderr
        running.stdout.close()
        told = running.stderr.read()
    assert told == b""
    assert running.returncode == 1


@pytest.mark.parametrize("delay", [0.15, 0.6])
def test_ctrl_c_during_imports_is_a_clean_exit_130(tmp_path, delay):
    words = ["run", "primer2022/table11", "--size", "paper", "--units", "NMU", "--backend", "stacked"]
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from numerate.__main__ import main; print('ready', flush=True); main()"
    command = [sys.executable, "-c", code, *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout
        assert running.stdout.readline() == "ready\n"
        time.sleep(delay)
        running.send_signal(signal.SIGINT)
        _, told = running.communicate()
    assert running.returncode == 130
    assert told == "stopped; the same command continues where it was\n"
