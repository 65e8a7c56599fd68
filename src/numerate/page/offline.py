"""A view as one HTML file that needs nobody: style, script and data inside, nothing fetched."""

import base64
import hashlib
import html
import json
from importlib.resources import files

from numerate.page.cells import Data

ASSETS = {"app.js": "text/javascript; charset=utf-8", "app.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}
"""The files of the built page, and their types."""


def asset(name: str) -> str:
    """A file of the built page. Raises FileNotFoundError where it was never built."""
    return (files("numerate.page") / "bundle" / name).read_text(encoding="utf-8")


def json_text(data: Data) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def single_file(data: Data) -> str:
    """The page with ``data`` in it; only the script whose digest it names is run."""
    script, style = asset("app.js").replace("</script", "<\\/script"), asset("app.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(str(data["title"]))}</title>
<style>{style}</style>
</head>
<body>
<div id="app"></div>
<script type="application/json" id="data">{json_text(data)}</script>
<script type="module">{script}</script>
</body>
</html>
"""
