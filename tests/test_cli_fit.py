"""``numerate fit`` as a newcomer types it."""

import html
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import numerate.discover
from numerate.cli import main


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def fit(capfd, monkeypatch, tmp_path):
    """Call the command in this process, in an empty folder."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["numerate", "fit", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.chdir(tmp_path)
        try:
            code = main() or 0
        except SystemExit as end:
            code = int(end.code or 0)
        return Done(code, *capfd.readouterr())

    return call


def pendulum(count=100):
    rng = np.random.default_rng(0)
    length, g = rng.uniform(0.1, 3, count), rng.uniform(1, 20, count)
    return pl.DataFrame({"length": length, "g": g, "T": 2 * np.pi * np.sqrt(length / g)})


@pytest.mark.parametrize("ending", ["csv", "parquet", "xlsx", "tsv"])
def test_every_kind_of_table(fit, tmp_path, ending):
    data = pendulum(60)
    path = tmp_path / f"data.{ending}"
    if ending == "xlsx":
        data.write_excel(path)
    elif ending == "parquet":
        data.write_parquet(path)
    else:
        data.write_csv(path, separator="\t" if ending == "tsv" else ",")
    done = fit("data." + ending, "--target", "T", "--seconds", "3")
    assert done.returncode == 0, done.stderr
    assert "T = 2*pi*sqrt(length/g)" in done.stdout
    assert "an exact law" in done.stdout


def test_decimal_commas_between_semicolons(fit, tmp_path):
    lines = [";".join(f"{value:.17g}" for value in row) for row in pendulum(60).rows()]
    (tmp_path / "data.csv").write_text("\n".join(["length;g;T", *lines]).replace(".", ","))
    done = fit("data.csv", "--target", "T", "--seconds", "3")
    assert "T = 2*pi*sqrt(length/g)" in done.stdout, done.stderr


def test_the_code_on_the_page_reads_the_same_table(fit, tmp_path, monkeypatch):
    text = pendulum(60).write_csv(separator=";").replace(".", ",")
    (tmp_path / "data.csv").write_text(text)
    done = fit("data.csv", "--target", "T", "--seconds", "3", "--out", "page")
    assert done.returncode == 0, done.stderr
    page = html.unescape((tmp_path / "page" / "report.html").read_text())
    code = re.sub("<[^>]*>", "", page[page.index("from numerate import FormulaRegressor") :].partition("</pre>")[0])
    names: dict[str, Any] = {}
    exec(code, names)
    assert str(names["model"].formula_) == "2*pi*sqrt(length/g)"


def test_a_formula_that_seven_rows_agree_with_is_no_law_and_has_no_noise(fit, tmp_path):
    lines = ["1,2,2", "2,3,6", "3,4,12", "4,1,4", "5,2,10", "6,3,18", "7,2,14"]
    (tmp_path / "data.csv").write_text("\n".join(["x,y,z", *lines]))
    done = fit("data.csv", "--target", "z", "--seconds", "3")
    assert "z ≈ x*y" in done.stdout
    assert "which agrees with every row: they are too few" in done.stdout
    assert "estimated noise: none that can be seen" in done.stdout


def test_report_is_one_file_that_fetches_nothing(fit, tmp_path):
    pendulum().write_csv(tmp_path / "data.csv")
    done = fit("data.csv", "--target", "T", "--units", "m, m/s^2, s", "--out", "here", "--seconds", "3")
    assert done.stdout.splitlines()[-1] == "report: here/report.html"
    page = (tmp_path / "here" / "report.html").read_text()
    assert not re.search(r'(src|href)="(?!#)', page)
    assert not re.search(r"@import|url\((?!#)", page)
    assert page.count("<svg") == 2
    assert "<math" in page
    assert "FormulaRegressor" in page
    assert "numerate fit data.csv --target T --units 'm, m/s^2, s' --seconds 3" in page.replace("&#39;", "'")
    assert (tmp_path / "here" / "outside.png").exists()


def test_noise_is_told_and_nothing_is_called_a_law(fit, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 5, 200)
    pl.DataFrame({"x": x, "y": 2 * x + 0.1 * rng.standard_normal(200)}).write_csv(tmp_path / "data.csv")
    done = fit("data.csv", "--target", "y", "--seconds", "3")
    assert "no exact law found; best approximation" in done.stdout
    noise = re.search(r"estimated noise: ([\d.]+)", done.stdout)
    assert noise
    assert 0.08 < float(noise[1]) < 0.12
    assert "y ≈ " in done.stdout


def test_the_same_seed_gives_the_same_formula(fit, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 5, 100)
    pl.DataFrame({"x": x, "y": np.exp(-x) + 0.01 * rng.standard_normal(100)}).write_csv(tmp_path / "data.csv")
    first, again = (fit("data.csv", "--target", "y", "--seed", "3", "--seconds", "20").stdout for _ in range(2))
    assert re.sub(r"found in .*", "", first) == re.sub(r"found in .*", "", again)


def test_a_smaller_formula_on_request(fit, tmp_path):
    x = np.linspace(1, 3, 60)
    pl.DataFrame({"x": x, "y": x**2 + 0.01 * np.exp(x)}).write_csv(tmp_path / "data.csv")
    done = fit("data.csv", "--target", "y", "--size", "4", "--seconds", "2", "--functions", "none")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("y "))
    assert len(re.findall(r"[x\d.]+|\*\*|[*+/-]", line.partition("≈")[2])) <= 6


def write(path, **columns):
    pl.DataFrame(columns).write_csv(path / "bad.csv")


BAD = {
    "constant target": ({"x": [1, 2, 3, 4], "y": [5, 5, 5, 5]}, [], "'y' is 5 in every row"),
    "duplicate columns": ({"x": [1, 2, 3], "z": [1, 2, 3], "y": [5, 6, 8]}, [], "'x' and 'z' are equal"),
    "one row": ({"x": [1], "y": [2]}, [], "at least 3 different rows"),
    "text": ({"x": [1, 2, 3], "name": ["a", "b", "c"], "y": [5, 6, 8]}, [], "column 'name' holds text, such as 'a'"),
    "text as target": ({"x": [1, 2, 3], "y": ["a", "b", "c"]}, [], "column 'y' holds text"),
    "infinity": ({"x": [1.0, float("inf"), 3.0], "y": [5, 6, 8]}, [], "column 'x': row 2 is infinite"),
    "missing": ({"x": [1.0, None, 3.0], "y": [5, 6, 8]}, [], "column 'x': row 2 is missing"),
    "target among inputs": ({"x": [1, 2, 3], "y": [5, 6, 8]}, ["--inputs", "x,y"], "'y' is one of the inputs"),
    "target equals an input": ({"x": [1, 2, 4], "y": [1, 2, 4]}, [], "the target 'y' equals the input 'x'"),
    "unknown input": ({"x": [1, 2, 3], "y": [5, 6, 8]}, ["--inputs", "w"], "has no column 'w'; it has x, y"),
    "no such unit": ({"x": [1, 2, 3], "y": [5, 6, 8]}, ["--units", "m, blah"], "'blah' is no unit"),
    "too few units": ({"x": [1, 2, 3], "y": [5, 6, 8]}, ["--units", "m"], "2 units are needed, for x and then y"),
    "unknown function": ({"x": [1, 2, 3], "y": [5, 6, 8]}, ["--functions", "sine"], "'sine' is not known"),
    "no time": ({"x": [1, 2, 3], "y": [5, 6, 8]}, ["--seconds", "0"], "--seconds must be positive"),
    "relative to zero": ({"x": [1, 2, 3], "y": [0, 6, 8]}, ["--relative"], "nowhere 0"),
    "time and target": ({"x": [1, 2, 3], "y": [5, 6, 8]}, ["--time", "x"], "cannot be combined"),
    "only a target": ({"y": [5, 6, 8]}, [], "no column beside the target"),
}


@pytest.mark.parametrize("case", BAD, ids=str)
def test_bad_input_is_one_sentence(fit, tmp_path, case):
    columns, options, sentence = BAD[case]
    write(tmp_path, **columns)
    done = fit("bad.csv", "--target", "y", *options)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.startswith("numerate: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_files_that_cannot_be_read_are_one_sentence(fit, tmp_path):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "broken.parquet").write_text("no parquet")
    (tmp_path / "data.doc").write_text("x")
    (tmp_path / "names.csv").write_text("x,y\n")
    (tmp_path / "blank.csv").write_text("x,y\n\n")
    (tmp_path / "twice.csv").write_text("x, x,y\n1,2,3\n2,3,5\n3,5,8\n")
    (tmp_path / "same.csv").write_text("x,x,y\n1,2,3\n2,3,5\n3,5,8\n")
    write(tmp_path, x=[1, 2, 3], y=[5, 6, 8])
    for words, sentence in [
        (["none.csv", "--target", "y"], "none.csv: No such file"),
        (["empty.csv", "--target", "y"], "empty.csv cannot be read as a table"),
        (["broken.parquet", "--target", "y"], "broken.parquet cannot be read as a table"),
        (["data.doc", "--target", "y"], "give a file that ends in .csv"),
        (["bad.csv", "--target", "z"], "bad.csv has no column 'z'; it has x, y"),
        (["names.csv", "--target", "y"], "names.csv has column names and no rows"),
        (["blank.csv", "--target", "y"], "column 'x' holds no value"),
        (["twice.csv", "--target", "y"], "twice.csv has two columns 'x'"),
        (["same.csv", "--target", "y"], "same.csv has two columns 'x'"),
        (["bad.csv"], "name the column to explain"),
    ]:
        done = fit(*words)
        assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr


def test_a_folder_that_takes_no_report_is_refused_before_the_search(fit, tmp_path, monkeypatch):
    pendulum(60).write_csv(tmp_path / "data.csv")
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("numerate.fit.find", None)  # there is no search
    done = fit("data.csv", "--target", "T", "--out", "file/fit")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "numerate: cannot write a report to the folder file/fit: Not a directory\n"
    assert not (tmp_path / "results").exists()


def test_units_refuse_nonsense(fit, tmp_path):
    rng = np.random.default_rng(0)
    x, t = rng.uniform(1, 5, (2, 100))
    pl.DataFrame({"x": x, "t": t, "v": x + t}).write_csv(tmp_path / "data.csv")
    done = fit("data.csv", "--target", "v", "--units", "m, s, m/s", "--seconds", "2")
    assert "v = t + x" not in done.stdout
    assert "an exact law" not in done.stdout


def force(tmp_path, noise=0.0):
    rng = np.random.default_rng(0)
    m, v, d = rng.uniform(1, 5, (3, 300))
    y = m * v**2 / (2 * d)
    y = y + noise * np.sqrt(np.mean(y**2)) * rng.standard_normal(300)
    pl.DataFrame({"m": m, "v": v, "d": d, "F": y}).write_csv(tmp_path / "data.csv")


def test_noise_is_seen_where_units_leave_one_form_only(fit, tmp_path):
    force(tmp_path, noise=0.05)
    done = fit("data.csv", "--target", "F", "--units", "kg, m/s, m, N", "--seconds", "2")
    assert "F ≈ m*v**2/(2*d)" in done.stdout
    assert "which leaves no more than the noise" in done.stdout
    assert "estimated noise: not known" not in done.stdout


def test_units_that_stand_against_the_data_get_a_hint(fit, tmp_path):
    force(tmp_path)
    done = fit("data.csv", "--target", "F", "--units", "kg, m/s, m, kg", "--seconds", "2")
    assert "noise:" in done.stdout
    assert "no more than the noise" not in done.stdout
    assert "check the units" in done.stdout
    right = fit("data.csv", "--target", "F", "--units", "kg, m/s, m, N", "--seconds", "2")
    assert "F = m*v**2/(2*d)" in right.stdout
    assert "hint" not in right.stdout


def test_an_exact_factor_that_must_carry_a_unit_is_shown_with_it(fit, tmp_path):
    force(tmp_path)
    done = fit("data.csv", "--target", "F", "--units", "kg, m/s, m, K", "--seconds", "2")
    assert "constant 0.5 K kg^-1 m^-1 s^2" in done.stdout


def test_equations_from_a_file_of_two_trajectories(fit, tmp_path):
    from scipy.integrate import solve_ivp

    t = np.linspace(0, 8, 120)
    parts = []
    for run, start in enumerate([(1.0, 0.0), (0.5, 1.5)]):
        x = solve_ivp(lambda _, x: [x[1], -2 * x[0]], (0, 8), start, t_eval=t, rtol=1e-9, atol=1e-10).y
        parts.append(pl.DataFrame({"run": [run] * 120, "t": t, "x": x[0], "v": x[1]}))
    pl.concat(parts).write_csv(tmp_path / "traj.csv")
    done = fit("traj.csv", "--time", "t", "--trajectory", "run", "--seconds", "3")
    assert done.returncode == 0, done.stderr
    assert "dx/dt ≈ v" in done.stdout
    assert re.search(r"dv/dt ≈ -2(\.0+)?\*x", done.stdout)
    page = (tmp_path / "results" / "fit" / "traj" / "report.html").read_text()
    assert "integrated from the first point" in page
    unsorted = fit("traj.csv", "--time", "t")
    assert unsorted.returncode == 2
    assert "--trajectory COLUMN" in unsorted.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_interrupted_it_gives_the_best_so_far(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.5, 3, (400, 5))
    y = np.sin(X[:, 0] * X[:, 1]) + np.exp(-X[:, 2]) * np.cos(X[:, 3] + X[:, 4] ** 2) + 0.3 * rng.standard_normal(400)
    pl.DataFrame({**{f"x{i}": X[:, i] for i in range(5)}, "y": y}).write_csv(tmp_path / "hard.csv")
    command = [sys.executable, "-m", "numerate", "fit", "hard.csv", "--target", "y", "--seconds", "300"]
    around = os.environ | {"COLUMNS": "120", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=around, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert "400 rows" in process.stdout.readline()
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "stopped early; this is the best so far" in err
    assert "y ≈ " in out
    assert (tmp_path / "results" / "fit" / "hard" / "report.html").exists()


def test_laws_that_come_with_the_package(capfd, tmp_path):
    from numerate.cli import laws

    laws(tmp_path)
    out = capfd.readouterr().out
    assert re.search(r"P ≈ (0\.999\d*|1\.000\d*)\*a\*\*\(3/2\)", out)
    assert "2*pi/(sqrt(G)*sqrt(M_sun))" in out
    assert re.search(r"M ≈ 15\.5\d* - 2\.0\d*\*logP", out)
    assert re.search(r"v ≈ 475\.\d+\*D", out)
    assert {path.parent.name for path in tmp_path.glob("laws/*/report.html")} == {"kepler", "leavitt", "hubble"}


PLANETS = {"a": [0.389, 0.724, 1.0, 1.524, 5.2, 9.51], "P": [87.77, 224.7, 365.25, 686.95, 4332.62, 10759.2]}


def test_kepler_s_own_numbers_give_his_law(fit, tmp_path):
    """Errors count relative to the period without being asked to; a year is 365.25 days."""
    write(tmp_path, **PLANETS)
    done = fit("bad.csv", "--target", "P")
    assert re.search(r"^P ≈ 36[45]\S*\*a\*\*\(3/2\)$", done.stdout, re.M), done.stdout
    assert "row by row" in done.stdout


def test_the_luminosity_of_a_galaxy_goes_with_the_width_of_its_line(fit):
    """Tully and Fisher's relation."""
    path = Path(numerate.discover.__file__).parent / "data" / "tully.csv"
    done = fit(path, "--target", "L", "--inputs", "DV", "--relative")
    assert re.search(r"^L ≈ 21\.\d+\*DV\*\*\(5/2\)$", done.stdout, re.M), done.stdout
    assert "no exact law found" in done.stdout


def test_rows_far_off_and_wide_targets_get_a_hint(fit, tmp_path):
    x = np.linspace(1, 30, 80)
    y = x**2 + np.random.default_rng(0).normal(size=80) / 4
    y[[11, 24, 41, 50, 63, 75]] += [300, 250, -90, 280, 310, -270]
    write(tmp_path, x=x.tolist(), y=y.tolist())
    done = fit("bad.csv", "--target", "y", "--absolute", "--seconds", "2")
    assert "hint: 6 rows lie more than 6 standard deviations off; --robust" in done.stdout
    assert "--relative weighs" in done.stdout
    assert "hint" not in fit("bad.csv", "--target", "y", "--robust", "--relative", "--seconds", "2").stdout


@pytest.mark.parametrize("words", [["demo"], ["fit", "table.csv", "--target", "y"]], ids=lambda words: words[0])
def test_a_missing_package_is_told_before_anything_is_done(words, tmp_path, monkeypatch, capfd):
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "threadpoolctl" else there(name))
    (tmp_path / "table.csv").write_text("x,y\n1,1\n2,4\n3,9\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["numerate", *words, "--out", "out"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "formulas from data need threadpoolctl: pip install 'numerate[formula]'" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()
