"""A real web site of Python's own documentation: pydoc pages of the standard library, rendered when asked for.

`python -m flows.demo_site --port 8650` serves them on 127.0.0.1 and prints one JSON line when it listens.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import pkgutil
import pydoc
import re
import sys
import threading
import warnings
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOST = "127.0.0.1"
# Modules that open windows, print poems, or hold no documentation of their own.
SKIPPED = frozenset(
    {"antigravity", "this", "idlelib", "turtledemo", "test", "tests", "lib2to3", "pydoc_data", "nt", "msilib"}
)
SKIPPED_PARTS = ("test", "_test", "__main__", "conftest")
ROBOTS = "User-agent: *\nDisallow: /private/\n"


def module_names(packages: Iterable[str] = ()) -> list[str]:
    """Names of the standard library's documented modules and submodules, and of the given packages', sorted.

    Found by listing files; nothing is imported.
    """
    names: list[str] = []
    for name in sorted({*sys.stdlib_module_names, *packages}):
        if name.startswith("_") or name in SKIPPED:
            continue
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
            if spec is None:
                continue
            names.append(name)
            for folder in spec.submodule_search_locations or ():
                names.extend(_submodules(name, Path(folder)))
    return sorted(set(names))


def _submodules(package: str, folder: Path) -> list[str]:
    names: list[str] = []
    for module in pkgutil.iter_modules([str(folder)]):
        if module.name.startswith("_") or any(part in module.name for part in SKIPPED_PARTS):
            continue
        full = f"{package}.{module.name}"
        names.append(full)
        if module.ispkg and module.name not in SKIPPED:
            names.extend(_submodules(full, folder / module.name))
    return names


# What differs from process to process and should not stand on a page: addresses, handles, the count of warning filters.
PASSING = re.compile(
    r"(?: |&nbsp;)at(?: |&nbsp;)0x[0-9a-fA-F]+|, handle [0-9a-f]+|<strong>__warningregistry__</strong> = \{[^\n<]*\}"
)


class Pages:
    """Rendered pages by module name, each rendered once. Imports happen one at a time."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._rendered: dict[str, bytes | None] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> bytes | None:
        """The page of a module as UTF-8 HTML, or None when there is no such page."""
        if name not in self._names:
            return None
        with self._lock:
            if name not in self._rendered:
                self._rendered[name] = self._render(name)
            return self._rendered[name]

    def _render(self, name: str) -> bytes | None:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            try:
                module = pydoc.safeimport(name)
                if module is None:
                    return None
                page = pydoc.html.page(pydoc.describe(module), pydoc.html.document(module, name))
            except (Exception, SystemExit):  # noqa: BLE001 - a module that cannot be imported here has no page
                return None
        return PASSING.sub("", page).encode("utf-8", "xmlcharrefreplace")


def make_handler(pages: Pages) -> type[BaseHTTPRequestHandler]:
    """The request handler of the site."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/robots.txt":
                self._answer(200, "text/plain; charset=utf-8", ROBOTS.encode())
                return
            page = pages.get(path.removeprefix("/").removesuffix(".html")) if path.endswith(".html") else None
            if page is None:
                self._answer(404, "text/html; charset=utf-8", b"<html><body><h1>No such page</h1></body></html>")
            else:
                self._answer(200, "text/html; charset=utf-8", page)

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the standard library's
            del format, args

    return Handler


def forget_environment() -> None:
    """Empty the environment of this process: pydoc prints it on two pages, and it is nobody's to learn.

    It also differs from run to run, and the pages should not.
    """
    os.environ.clear()
    posix = sys.modules.get("posix")
    if posix is not None:
        posix.environ.clear()  # what os.environ was made from


def main() -> None:
    """Serve until the parent ends this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--packages", nargs="*", default=[])
    arguments = parser.parse_args()
    forget_environment()
    pages = Pages(module_names(arguments.packages))
    with ThreadingHTTPServer((HOST, arguments.port), make_handler(pages)) as server:
        server.daemon_threads = True
        sys.stdout.write(json.dumps({"event": "ready", "port": server.server_port}) + "\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main()
