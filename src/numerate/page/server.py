"""The server of the page: for this machine alone, and only for reading."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

try:
    import uvicorn
    from fastapi import FastAPI, Request, Response
except ModuleNotFoundError:
    raise RuntimeError("the page needs its extra packages: pip install 'numerate[page]'") from None

from numerate.experiments.pages import PicturePage
from numerate.labels import file_names
from numerate.page.cells import Data
from numerate.page.compare import compare
from numerate.page.experiment import experiment, pictures_of
from numerate.page.leaderboard import leaderboard
from numerate.page.offline import ASSETS, asset, json_text, single_file
from numerate.page.run import run
from numerate.page.runs import runs
from numerate.page.site import NotFound, Query, Site
from numerate.page.spreadsheet import csv_text
from numerate.page.start import start
from numerate.results import StoreError

HOST = "127.0.0.1"
VIEWS: dict[str, Callable[[Site, Query, bool], Data]] = {
    "start": start, "experiment": experiment, "runs": runs, "run": run, "leaderboard": leaderboard, "compare": compare,
}  # fmt: skip
"""Name in the address -> what it shows. ``/experiment?id=x`` is the page, ``/api/...`` its data, ``/csv/...`` and
``/save/...`` the same as files."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"

SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>numerate</title>
<link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/app.css">
</head>
<body>
<div id="app"></div>
<script type="module" src="/app.js"></script>
<noscript>This page needs JavaScript; the reports in the results folder do not.</noscript>
</body>
</html>
"""


def application(folders: Sequence[Path], port: int) -> Any:
    """The application; ``port``: the one that it may be asked by."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.site = Site.of(folders)  # in the thread that answers: an SQLite connection belongs to one
        start(app.state.site, Query())  # the comparisons begin before the first reader comes
        yield
        app.state.site.close()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(NotFound)
    async def not_found(_: Request, error: NotFound) -> Response:
        return _json({"error": str(error)}, 404)

    @app.exception_handler(StoreError)
    async def unreadable(_: Request, error: StoreError) -> Response:
        return _json({"error": str(error)}, 500)

    @app.get("/api/version")
    async def version(request: Request) -> Response:
        return _json({"version": request.app.state.site.refresh()})

    @app.get("/api/{name}")
    async def data(request: Request, name: str) -> Response:
        return _json(_view(request, name))

    @app.get("/csv/{name}")
    async def as_csv(request: Request, name: str) -> Response:
        return _download(csv_text(name, _view(request, name, wait=True)), "text/csv", _title(request, name), "csv")

    @app.get("/save/{name}")
    async def as_file(request: Request, name: str) -> Response:
        page = single_file(_view(request, name, wait=True) | {"saved": True})
        return _download(page, "text/html", _title(request, name), "html")

    @app.get("/picture")
    async def picture(request: Request) -> Response:
        site, query = request.app.state.site, Query.parse(request.url.query)
        id = query.get("experiment")
        size = site.size(site.source(query).index, id, query.get("size"))
        if (id, size) not in site.sizes.works or not isinstance(site.sizes.experiments[id].show, PicturePage):
            raise NotFound(f"{id} has no picture")
        while (found := pictures_of(site, query, id, size)) is None:  # it is being drawn
            await asyncio.sleep(0.1)
        if not found.value or not found.value["pictures"]:
            raise NotFound(f"{id} has no picture: {found.error or 'there is nothing to draw'}")
        svg = found.value["pictures"][0]["svg"]
        return Response(svg, media_type="image/svg+xml", headers={"Content-Security-Policy": PICTURE_POLICY})

    @app.get("/{name}")
    async def page(name: str) -> Response:
        if name in ASSETS:
            return Response(asset(name), media_type=ASSETS[name])
        if name not in VIEWS:
            raise NotFound(f"there is no page {name!r}")
        return Response(SHELL, media_type="text/html")

    @app.get("/")
    async def root() -> Response:
        return Response(SHELL, media_type="text/html")

    return Guard(app, port)


def _view(request: Request, name: str, wait: bool = False) -> Data:
    if name not in VIEWS:
        raise NotFound(f"there is no view {name!r}")
    site: Site = request.app.state.site
    version, query = site.refresh(), Query.parse(request.url.query)
    data = VIEWS[name](site, query, wait)
    return data | {
        "view": name,
        "query": str(query),
        "version": version,
        "sources": [str(source.folder) for source in site.sources],
    }


def _json(data: Data, status: int = 200) -> Response:
    return Response(json_text(data), status, media_type="application/json")


def _title(request: Request, name: str) -> str:
    words = [name, Query.parse(request.url.query).get("experiment")]
    return file_names([" ".join(filter(None, words))]).popitem()[1].encode("ascii", "ignore").decode() or name


def _download(text: str, kind: str, name: str, ending: str) -> Response:
    disposition = f'attachment; filename="numerate-{name}.{ending}"'
    return Response(text, media_type=f"{kind}; charset=utf-8", headers={"Content-Disposition": disposition})


class Guard:
    """Around the application: only reading, only under a name of this machine, and the headers of every answer.

    A page of somebody else whose name suddenly leads to 127.0.0.1 has another Host header: it is refused.
    """

    def __init__(self, app: Any, port: int) -> None:
        self.app = app
        self.hosts = {f"{name}:{port}".encode() for name in (HOST, "localhost")}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            await _refuse(send, 421, b"this page answers under 127.0.0.1 and localhost alone\n")
        elif scope["method"] not in ("GET", "HEAD"):
            await _refuse(send, 405, b"this page can only be read\n")
        else:
            await self.app(scope, receive, _with_headers(send))


def _with_headers(send: Any) -> Any:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message["headers"]}
            extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
            message["headers"] = [*message["headers"], *(pair for pair in extra if pair[0] not in given)]
        await send(message)

    return sending


async def _refuse(send: Any, status: int, text: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": text})


class Server:
    """A page that is served, in a thread of its own, inside a ``with`` block.

    Args:
        folders: results folders; the first is the one that is shown.
        port: 0 takes a free one.
    """

    def __init__(self, folders: Sequence[Path], port: int = 0) -> None:
        import socket

        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((HOST, port))
        except OSError as error:
            self.socket.close()
            raise ValueError(f"port {port} cannot be used: {error.strerror}; choose another with --port") from None
        self.port = self.socket.getsockname()[1]
        config = uvicorn.Config(application(folders, self.port), log_level="warning", access_log=False, ws="none")
        self.uvicorn = uvicorn.Server(config)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def run(self) -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-4)  # SQLite lets go of the interpreter at every record: a view waits for each of them
        try:
            self.uvicorn.run([self.socket])
        finally:
            sys.setswitchinterval(before)

    def __enter__(self) -> "Server":
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()
        while not self.uvicorn.started:
            if not self._thread.is_alive():
                raise RuntimeError("the page could not be started")
            self._thread.join(0.02)
        return self

    def wait(self) -> None:
        """Until the server ends, which Ctrl-C asks for."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def __exit__(self, *_: object) -> None:
        self.uvicorn.should_exit = True
        self._thread.join(10)
