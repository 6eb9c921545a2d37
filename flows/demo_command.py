"""`url2lm demo`: a site on this machine, a URL list with faults in it, and the whole flow over real HTTP."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from flows.config import DEFAULT_STORE, build_config, load_recipe, parse_assignment
from flows.demo_site import HOST, module_names
from flows.run_command import console, run_pipeline, start_server
from tasks.engine import die_with_parent_signal
from tasks.errors import StageError, UserError
from tasks.launch import end_group, python_module

FIRST_PORT = 8650
NUM_PORTS = 50
RECIPE = "smoke"
PACKAGES = {"stdlib": [], "stdlib+numpy": ["numpy"]}  # type: dict[str, list[str]]
# Faults that a real list has: the funnel should have something to say. Nothing but this machine is ever contacted:
# other hosts are dropped by the filter, and the dead ones are on loopback.
FAULTY_LINES = (
    "http://www.youtube.com/watch?v=blocked",
    "http://i.imgur.com/picture.png",
    "not a url at all",
    "htp:/missing.slash/and.letter",
    "http://co.uk/",
    "http://10.0.0.7/internal.html",
    "ftp://ftp.example.org/readme.txt",
    "http://example.org/archive.zip",
)


def url_lines(port: int, names: Sequence[str]) -> list[str]:
    """The URL list: a page a module, then dead, disallowed and repeated addresses, then the faulty lines."""
    site = f"http://{HOST}:{port}"
    lines = [f"{site}/{name}.html" for name in names]
    dead = [f"{site}/no_such_module_{number}.html" for number in range(3)]
    disallowed = [f"{site}/private/notes.html"]
    repeated = [f"{site}/{name}.html#functions" for name in names[:3]] + [f"HTTP://{HOST}:{port}/{names[0]}.html"]
    return [*lines, *dead, *disallowed, *repeated, *FAULTY_LINES]


def free_port() -> int:
    """The first free port from FIRST_PORT on: the same one every time, so that a second demo is a cached one."""
    for port in range(FIRST_PORT, FIRST_PORT + NUM_PORTS):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                return port
    raise StageError(f"no port between {FIRST_PORT} and {FIRST_PORT + NUM_PORTS} is free on {HOST}")


@contextlib.contextmanager
def serving(port: int, packages: Sequence[str]) -> Iterator[None]:
    """The site in a process of its own while the block runs. Raises StageError when it does not start."""
    command = python_module("flows.demo_site", "--port", str(port))
    if packages:
        command += ["--packages", *packages]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},  # sets in signatures print in one order
        start_new_session=True,
        preexec_fn=die_with_parent_signal(signal.SIGKILL),
    )
    try:
        assert child.stdout is not None
        if '"ready"' not in child.stdout.readline():
            raise StageError(f"the demo site did not start on port {port}")
        yield
    finally:
        end_group(child, grace_seconds=0.2)
        if child.stdout is not None:
            child.stdout.close()


def demo(store: str | None, modules: str, settings: Sequence[str], *, as_json: bool) -> None:
    """Everything in one command. Raises UserError for unknown choices and settings."""
    if modules not in PACKAGES:
        raise UserError("--modules", modules, "there is no such choice", f"Known: {', '.join(PACKAGES)}")
    packages = PACKAGES[modules]
    port = free_port()
    root = Path(store or DEFAULT_STORE).expanduser().resolve()
    list_path = root / ".demo" / "urls.txt"
    list_path.parent.mkdir(parents=True, exist_ok=True)
    list_path.write_text("\n".join(url_lines(port, module_names(packages))) + "\n", encoding="utf-8")
    given = [
        (["input", "urls"], [str(list_path)]),
        (["store"], str(root)),
        (["filter", "allow_private_hosts"], [f"{HOST}:{port}"]),
        (["fetch", "allow_private_hosts"], [f"{HOST}:{port}"]),
        # pydoc lays its pages out in tables, which article extractors write with bars between cells.
        (["extract", "extractor"], "resiliparse"),
    ]
    config = build_config(load_recipe(RECIPE), [*given, *map(parse_assignment, settings)])
    if not as_json:
        console.print(f"serving Python's documentation on http://{HOST}:{port}/ (list: {list_path})", highlight=False)
    server = start_server(config)  # it takes longer than the site, so it starts first
    with serving(port, packages):
        run_pipeline(config, as_json=as_json, server=server)
