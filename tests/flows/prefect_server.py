"""One real Prefect server for the whole test run, started when first asked for."""

from __future__ import annotations

import atexit
import functools
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

STARTUP_SECONDS = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@functools.cache
def api_url() -> str:
    """The address of the server's API; it ends with this process."""
    port, home = free_port(), tempfile.mkdtemp(prefix="url2lm-prefect-")
    environment = {
        **os.environ,
        "PREFECT_HOME": home,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_UI_ENABLED": "false",
    }
    environment.pop("PREFECT_API_URL", None)
    command = [sys.executable, "-m", "uvicorn", "--app-dir", home, "--factory", "prefect.server.api.server:create_app"]
    server = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port), "--log-level", "critical"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def stop() -> None:
        server.kill()
        server.wait()

    atexit.register(stop)
    address = f"http://127.0.0.1:{port}/api"
    end = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2) as answer:
                if answer.status == 200:
                    return address
        except (urllib.error.URLError, OSError):
            assert server.poll() is None, "the Prefect server ended"
            time.sleep(0.2)
    raise AssertionError("the Prefect server did not start")
