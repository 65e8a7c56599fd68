"""One server and one browser for all tests of the page."""

import os
import shutil
import time
from dataclasses import replace

import page_samples as samples
import pytest

pytest.importorskip("fastapi", reason="the page needs its extra packages: pip install 'numerate[page]'")

PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 2 1"/>'
"""In place of what takes seconds to draw; test_server asks for a real one."""
SETUP = "NUMERATE_BROWSER_SETUP"
"""Variable that names a process which installs Chromium meanwhile."""


def chromium() -> str | None:
    """The browser of this machine; waits for one that is being installed."""
    end = time.monotonic() + 400
    while True:
        found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
        if not under_way(os.environ.get(SETUP)) or time.monotonic() > end:
            return found
        time.sleep(1)


def under_way(process: str | None) -> bool:
    try:
        os.kill(int(process or 0) or 2**22 + 1, 0)
    except (OSError, ValueError):
        return False
    return True


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Ours with units of the user's own, and another folder in which NALU always fails, by another version."""
    first = samples.folder(tmp_path_factory.mktemp("first"), [*samples.table(), *samples.own(), *samples.strange()])
    failed = [
        replace(row, scores={**row.scores, "best_test": 1.0}) if row.labels["unit"] == "NMU" else row
        for row in samples.table(seed=1)
    ]
    return [first, samples.folder(tmp_path_factory.mktemp("second"), failed)]


@pytest.fixture(scope="session")
def server(folders):
    from numerate.page.server import Server

    with Server(folders) as server:
        yield server


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    if not (path := chromium()):
        pytest.skip("no Chromium on this machine: install it, or name it in the variable CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, server):
    """Open an address of the page; whatever the browser complains about fails the test."""
    complaints, contexts = [], []

    def visit(path: str, address: str | None = None, **options):
        context = browser.new_context(viewport=options.pop("viewport", {"width": 1280, "height": 800}), **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.route("**/picture?*", lambda route: route.fulfill(content_type="image/svg+xml", body=PICTURE))
        page.goto((address or server.address.rstrip("/")) + path)
        page.wait_for_selector("h1")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []
