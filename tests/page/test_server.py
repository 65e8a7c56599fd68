"""The server answers this machine alone, only reads, and never leaves its folder."""

import hashlib
import json
import socket
import sqlite3
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import page_samples as samples
import pytest

from numerate.page.offline import asset, json_text
from numerate.page.server import VIEWS, Server
from numerate.results import StoreError


def ask(server, path, method="GET", **headers):
    connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body.decode()


def data(server, view, **query) -> Any:
    answer, body = ask(server, f"/api/{view}?{urlencode(query)}")
    return json.loads(body) if answer.status == 200 else (answer.status, json.loads(body)["error"])


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "127.0.0.1.nip.io:{port}"]
)
def test_another_host_is_refused(server, host):
    assert ask(server, "/api/start", Host=host.format(port=server.port))[0].status == 421


def test_both_names_of_this_machine_are_answered(server):
    for name in ("127.0.0.1", "localhost"):
        assert ask(server, "/api/version", Host=f"{name}:{server.port}")[0].status == 200


def test_it_listens_on_the_loopback_alone(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading(server, method):
    assert ask(server, "/api/start", method)[0].status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/..%2f..%2fetc%2fpasswd",
        "/results.sqlite",
        "/app.js/../index.py",
        "/%2e%2e/x",
        "/bundle/app.js",
    ],
)
def test_no_path_leads_elsewhere(server, path):
    answer, body = ask(server, path)
    assert answer.status == 404
    assert "root:" not in body


@pytest.mark.parametrize("path", ["/", "/experiment", "/api/version", "/app.js", "/nowhere"])
def test_every_answer_has_the_strict_headers(server, path):
    answer, _ = ask(server, path)
    policy = answer.getheader("Content-Security-Policy") or ""
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert answer.getheader("X-Content-Type-Options") == "nosniff"


def test_the_folder_is_as_it_was(server, folders):
    def digest():
        return hashlib.sha256((folders[0] / "results.sqlite").read_bytes()).hexdigest()

    before = digest()
    for view in VIEWS:
        ask(server, f"/api/{view}?experiment=primer2022%2Ftable11")
    assert digest() == before
    assert {path.name.removesuffix("-wal").removesuffix("-shm") for path in folders[0].iterdir()} == {"results.sqlite"}


def test_what_is_not_there_is_said_in_a_sentence(server):
    assert data(server, "experiment", experiment="nothing")[0] == 404
    assert data(server, "run", key="ffffffff-0")[1].startswith("no runs are named ffffffff-0")
    assert data(server, "run", key="../../etc")[1].startswith("a run is named by digits")
    assert data(server, "compare", a="7")[0] == 404
    assert data(server, "nowhere") == (404, "there is no view 'nowhere'")
    assert data(server, "start", source="9")[0] == 404


def test_the_numbers_are_those_of_the_report(server, folders, tmp_path):
    from numerate.experiments import Options, select
    from numerate.report import records
    from numerate.results import Store

    (experiment,) = select(["primer2022/table11"])
    work = experiment.work(Options(size="quick"))
    with Store(folders[1] / "results.sqlite", readonly=True) as store:
        rows = work.rows_of(store.rows(keys=work.keys))
    reported = records(experiment.show.compare(rows, work.options))  # type: ignore[attr-defined]
    answer, text = ask(server, "/save/experiment?experiment=primer2022%2Ftable11&size=quick&source=1")
    assert answer.status == 200
    page = json.loads(text.split('id="data">')[1].split("</script>")[0])
    shown = {(c["panel"], c["series"], c["x"].replace("−", "-")): c for c in page["cells"]}
    assert len(shown) == len(reported) == 63
    for record in reported:
        cell = shown[record["panel"], record["series"], record["x"]]
        assert (cell["runs"], cell["solved"], cell["verdict"]) == (record["runs"], record["solved"], record["verdict"])
        ours = cell["values"]["success_rate"]["ours"]
        assert [ours["value"], ours["low"]] == [record["success_rate"], record["success_rate_low"]]
        assert cell["values"]["success_rate"]["published"]["value"] == record["published_success_rate"]
    assert any(cell["verdict"] == "differs" for cell in page["cells"])  # NMU fails there


def test_the_command_of_a_run_trains_that_run(server, folders):
    runs = data(
        server, "runs", experiment="primer2022/table11", size="quick", **{"is.unit": "NMU", "is.range": "[-2,2]"}
    )
    run = data(server, "run", key=runs["runs"][3]["key"])
    command = run["commands"][0]["command"]
    seed = runs["runs"][3]["seed"]
    asked = f"--size quick --seeds {seed + 1} --units NMU --ranges '[-2,2)'"
    assert command == f"numerate run primer2022/table11 {asked} --out {folders[0]}-again"
    assert f"this trains seeds 0 to {seed}" in run["commands"][0]["text"]


def test_the_command_of_a_report_reads_the_folder_that_is_shown(server, folders):
    shown = data(server, "experiment", experiment="primer2022/table11", size="quick")
    assert shown["command"] == f"numerate report primer2022/table11 --size quick --out {folders[0]}"
    other = data(server, "start")["others"][0]
    assert other["command"] == f"numerate run {other['id']} --out {folders[0]}"


def test_a_folder_is_not_compared_with_itself(server):
    shown = data(server, "compare", experiment="primer2022/table11", size="quick", a="0", b="0")
    assert (shown["cells"], shown["counts"]) == ([], {})


def test_csv_runs_no_formula_in_a_spreadsheet(server):
    answer, text = ask(server, f"/csv/experiment?{urlencode({'experiment': samples.HOSTILE})}")
    assert answer.getheader("Content-Disposition", "").startswith('attachment; filename="numerate-')
    assert "'=1+1" in text
    key = data(server, "runs", experiment="primer2022/table11")["runs"][0]["key"]
    for view in VIEWS:
        answer, text = ask(server, f"/csv/{view}?experiment=primer2022%2Ftable11&key={key}")
        assert answer.status == 200
        assert len(text.splitlines()) > 1


def test_a_picture_follows_the_theme_and_may_run_nothing(server):
    answer, svg = ask(server, "/picture?experiment=primer2022%2Ffigure10")
    assert (answer.status, answer.getheader("Content-Type")) == (200, "image/svg+xml")
    assert "sandbox" in (answer.getheader("Content-Security-Policy") or "")
    assert svg.startswith("<svg")
    assert "prefers-color-scheme: dark" in svg


@pytest.mark.parametrize("query", ["ur2020/table2&size=paper", "primer2022/table11&size=quick", "nothing", ""])
def test_what_has_no_picture_is_said_at_once(server, query):
    """An experiment without runs, one that is a comparison, and none."""
    assert ask(server, f"/picture?experiment={query}")[0].status == 404


def test_the_build_that_ships_is_of_this_source():
    web = Path(__file__).parents[2] / "web"
    names = [*(f"src/{path.name}" for path in sorted((web / "src").iterdir())), "package-lock.json"]
    digest = hashlib.sha256(b"".join(f"{name}\0".encode() + (web / name).read_bytes() for name in names)).hexdigest()
    assert asset("source.sha256").strip() == digest, "run: make page"


def test_data_inside_a_script_element_cannot_end_it():
    assert "<" not in json_text({"title": "</script><script>"})
    assert json.loads(json_text({"title": "</script>\u2028"})) == {"title": "</script>\u2028"}


def test_a_damaged_run_is_told_and_not_shown(tmp_path):
    rows = list(samples.table("primer2022/table9", "smoke"))
    samples.folder(tmp_path, rows)
    db = sqlite3.connect(tmp_path / "results.sqlite")
    db.execute("UPDATE runs SET scores = replace(scores, '5', '6') WHERE seed = 0")
    db.commit()
    db.close()
    with Server([tmp_path]) as server:
        assert "is not as it was written" in data(server, "run", key=f"{rows[0].key.config}-0")[1]
        start = data(server, "start")
        for _ in range(200):  # every run is looked at once the page is there
            if start["refused"]:
                break
            time.sleep(0.05)
            start = data(server, "start")
        assert (start["runs"], start["refused"]) == (10, 10)


def test_a_port_that_is_taken_is_said_in_a_sentence(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ValueError, match="cannot be used"):
            Server([tmp_path], taken.getsockname()[1])


def test_a_file_of_somebody_else_is_refused(tmp_path):
    from numerate.page.serving import serve

    (tmp_path / "results.sqlite").write_text("nothing of ours")
    with pytest.raises(StoreError, match="not a results file"):
        serve([tmp_path])


def test_without_its_packages_the_command_says_so_in_a_sentence():
    code = "import sys; sys.modules['fastapi'] = None; sys.argv = ['numerate', 'page']\n"
    code += "from numerate.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "numerate: the page needs its extra packages: pip install 'numerate[page]'\n"
