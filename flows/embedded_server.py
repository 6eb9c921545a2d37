"""A private Prefect server for one command, for people who run none.

Prefect can start such a server itself, but then the flow's process imports the whole server first, waits for it
one step after the other, and leaves it running for ever when it is killed. This one starts while the flow's own
imports go on, and the kernel ends it with its parent.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tasks.engine import die_with_parent_signal
from tasks.errors import StageError, UserError

HOST = "127.0.0.1"
STARTUP_SECONDS = 120.0
FREE_BYTES_NEEDED = 4 << 20
POLL_SECONDS = 0.1
HEALTH_SECONDS = 15.0
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
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while time.monotonic() < end:
            try:
                with direct.open(f"{self.api_url}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                if self._process.poll() is not None:
                    break
            time.sleep(POLL_SECONDS)
        tail = self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""
        if shutil.disk_usage(self._log.parent).free < FREE_BYTES_NEEDED:
            raise StageError(f"the embedded Prefect server did not start: the disk of {self._log.parent} is full")
        said = f"the end of {self._log}:\n{tail}" if tail.strip() else f"{self._log} is empty"
        raise StageError(f"the embedded Prefect server did not start; {said}")

    def stop(self) -> None:
        """End it: the flow's states are in its database as soon as the flow has returned."""
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    return path if path.exists() else _existing(path.parent)


def start_unless_given(store_root: Path) -> EmbeddedServer | None:
    """Start a server and point PREFECT_API_URL at it; when the user has set one, see that it answers.

    Raises UserError when it does not, or when the disk is full.

    It is stopped when this process ends. Call before the first `import prefect`: exit handlers run last in, first
    out, and Prefect's own, which send what is still to be sent, need a server that answers.
    """
    if given := os.environ.get("PREFECT_API_URL"):
        _check(given)
        return None
    if shutil.disk_usage(_existing(store_root)).free < FREE_BYTES_NEEDED:
        rule = f"less than {FREE_BYTES_NEEDED >> 20} MB are free on its disk"
        raise UserError("store", str(store_root), rule, "Make room, or name a folder on another disk.")
    # A proxy of the user's is for the world outside; Prefect's own client obeys these two names.
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), HOST, "localhost")))
    server = EmbeddedServer(store_root / ".prefect")
    atexit.register(server.stop)
    os.environ["PREFECT_API_URL"] = server.api_url
    return server


def _check(api_url: str) -> None:
    try:
        with urllib.request.urlopen(f"{api_url.rstrip('/')}/health", timeout=HEALTH_SECONDS):
            return
    except urllib.error.HTTPError as error:
        if error.code < 500:  # it asks who is there: Prefect's client brings the key
            return
        reason: object = error
    except (OSError, ValueError) as error:
        reason = error
    remedy = "Start that server, or unset PREFECT_API_URL: a private one is then started for the run."
    raise UserError("PREFECT_API_URL", api_url, f"no Prefect server answers there ({reason})", remedy)
