"""What ``numerate doctor`` says of a machine, and what it advises."""

from pathlib import Path

import pytest

from numerate import doctor


def test_a_machine_without_a_compiler_is_told_what_to_do(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    finding = doctor.compiler()
    assert finding.state == "missing"
    assert "no-such-compiler" in finding.text
    assert "pip install 'numerate[compiler]'" in finding.advice


def test_packages_that_are_not_here_are_named_with_their_extra(monkeypatch):
    find = doctor.importlib.util.find_spec
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name == "fastapi" else find(name))
    (page,) = [finding for finding in doctor.extras() if finding.name == "page"]
    assert (page.state, page.text) == ("missing", "without fastapi")
    assert page.advice == "pip install 'numerate[page]'"


def test_a_results_file_is_counted_or_refused(tmp_path):
    assert doctor.results(tmp_path).state == "missing"
    (tmp_path / "results.sqlite").write_text("not ours")
    assert doctor.results(tmp_path).state == "wrong"


def test_a_cache_folder_that_cannot_be_used_is_wrong(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path / "file"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert doctor.cache().state == "wrong"
    assert "NUMERATE_CACHE" in doctor.cache().advice


def test_every_backend_is_tried_against_the_plain_one(monkeypatch):
    errors = {"eager": [0.5, 0.25], "stacked": [0.5001, 0.25], "emitted": [0.7, 0.25]}

    def trained(backend: str, device: str) -> list[float]:
        if backend == "compiled":
            raise RuntimeError("no space left\nmore")
        return errors[backend]

    monkeypatch.setattr(doctor, "_errors", trained)
    states = {finding.name: finding for finding in doctor.backends(full=True)}
    assert [finding.state for finding in states.values()] == ["ok", "ok", "wrong", "wrong"]
    assert "not those of the plain loop" in states["emitted on cpu"].text
    assert states["compiled on cpu"].text == "no space left"


@pytest.mark.parametrize("backend", ["eager", "stacked"])
def test_the_short_test_trains_for_real(backend):
    assert all(0 < error < 100 for error in doctor._errors(backend, "cpu"))


def test_the_report_has_a_line_for_each_and_says_whether_something_is_wrong():
    lines: list[str] = []
    findings = [doctor.Finding("one", "ok", "here"), doctor.Finding("two", "wrong", "broken", "mend it")]
    assert not doctor.report(iter(findings), lines.append)
    assert lines == ["✓ one: here", "✗ two: broken", "    → mend it"]
    assert doctor.report(iter(findings[:1]), lines.append)
    assert isinstance(doctor.results(Path("nowhere")), doctor.Finding)
