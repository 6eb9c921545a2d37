from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from flows import embedded_server
from flows.embedded_server import EmbeddedServer, start_unless_given
from tasks.errors import StageError, UserError

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys, time
from pathlib import Path
from flows.embedded_server import start_unless_given
server = start_unless_given(Path(sys.argv[1]))
server.wait()
print(server.api_url, flush=True)
time.sleep(60)
"""


def answers(api_url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{api_url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def test_a_killed_command_takes_its_server_with_it(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    environment["http_proxy"] = "http://127.0.0.1:9"  # nobody is there, and nobody may be asked
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    address = child.stdout.readline().strip()
    assert answers(address)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    end = time.monotonic() + 10
    while answers(address) and time.monotonic() < end:
        time.sleep(0.1)
    assert not answers(address)


def test_a_given_server_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_api: str) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    assert start_unless_given(tmp_path) is None
    assert os.environ["PREFECT_API_URL"] == prefect_api and not list(tmp_path.iterdir())


def test_a_full_disk_is_said_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(embedded_server, "FREE_BYTES_NEEDED", 1 << 60)
    with pytest.raises(UserError, match="free on its disk"):
        start_unless_given(tmp_path / "not" / "yet" / "there")


def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_DATABASE_CONNECTION_URL", "nonsense")
    monkeypatch.setattr(embedded_server, "STARTUP_SECONDS", 60.0)
    server = EmbeddedServer(tmp_path)
    try:
        with pytest.raises(StageError, match="did not start"):
            server.wait()
    finally:
        server.stop()
