"""The command behind ``numerate page``."""

import logging
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from numerate import terminal
from numerate.page.server import HOST, Server
from numerate.results import Store

PORT = 8127
"""Tried first, so that an address stays the same from day to day."""

log = logging.getLogger("numerate")


def serve(folders: Sequence[Path], port: int | None = None, browser: bool = False) -> None:
    """Serve the folders until Ctrl-C. Raises StoreError for a results file that is none, or damaged."""
    if port is not None and not 0 <= port < 2**16:
        raise ValueError(f"a port is a number from 0 to 65535, got {port}")
    for folder in folders:
        if (path := folder / "results.sqlite").exists():
            Store(path, readonly=True).close()
        else:
            log.warning("there is no results file %s yet: the page waits for one", path)
    server = _server(folders, port)
    with server:
        terminal.echo(f"{server.address}  (Ctrl-C ends it; it answers {HOST} alone)")
        if browser:
            webbrowser.open(server.address)
        server.wait()


def _server(folders: Sequence[Path], port: int | None) -> Server:
    if port is not None:
        return Server(folders, port)
    try:
        return Server(folders, PORT)
    except ValueError:  # another page is there
        return Server(folders)
