"""A private Prefect server for one command, for people who run none.

Prefect can start such a server itself, but then the flow's process imports the whole server first, waits for it
one step after the other, and leaves it running for ever when it is killed. This one starts while the flow's own
imports go on, and the kernel ends it with its parent.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tasks.engine import die_with_parent_signal
from tasks.errors import StageError

HOST = "127.0.0.1"
STARTUP_SECONDS = 120.0
POLL_SECONDS = 0.1
# Services of a standing server (schedules, late runs, automations) have nothing to do for one flow.
IDLE_SERVICES = ("SCHEDULER", "LATE_RUNS", "CANCELLATION_CLEANUP", "PAUSE_EXPIRATIONS", "FOREMAN", "TRIGGERS")


class EmbeddedServer:
    """The server's process; `wait` until it answers."""

    def __init__(self, home: Path) -> None:
        """Start it; its database lies in `home`."""
        home.mkdir(parents=True, exist_ok=True)
        self._log = home / "server.log"
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((HOST, 0))
            self.port = int(probe.getsockname()[1])
        environment = {
            **os.environ,
            "PREFECT_HOME": str(home),
            "PREFECT__SERVER_EPHEMERAL": "1",
            "PREFECT__SERVER_FINAL": "1",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
            "PREFECT_SERVER_UI_ENABLED": "false",
            **{f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false" for service in IDLE_SERVICES},
        }
        command = [sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app", "--host", HOST]
        command += ["--port", str(self.port), "--log-level", "critical", "--lifespan", "on"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=home,  # no prefect.toml of the user's folder may change it
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent_signal(signal.SIGKILL),
            )

    @property
    def api_url(self) -> str:
        """The address for PREFECT_API_URL."""
        return f"http://{HOST}:{self.port}/api"

    def wait(self) -> None:
        """Until it answers. Raises StageError, with its last lines, when it ends or takes too long."""
        end = time.monotonic() + STARTUP_SECONDS
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"{self.api_url}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                if self._process.poll() is not None:
                    break
            time.sleep(POLL_SECONDS)
        tail = self._log.read_text(errors="replace")[-2000:]
        raise StageError(f"the embedded Prefect server did not start; the end of {self._log}:\n{tail}")

    def stop(self) -> None:
        """End it: the flow's states are in its database as soon as the flow has returned."""
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start_unless_given(store_root: Path) -> EmbeddedServer | None:
    """Start a server and point PREFECT_API_URL at it; nothing when the user has set one.

    It is stopped when this process ends. Call before the first `import prefect`: exit handlers run last in, first
    out, and Prefect's own, which send what is still to be sent, need a server that answers.
    """
    if os.environ.get("PREFECT_API_URL"):
        return None
    server = EmbeddedServer(store_root / ".prefect")
    atexit.register(server.stop)
    os.environ["PREFECT_API_URL"] = server.api_url
    return server
