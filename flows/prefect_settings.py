"""Prefect's settings for this project, put in place before Prefect is first imported.

Whatever the user has set in the environment wins. Nothing is sent anywhere.
"""

from __future__ import annotations

import os
from pathlib import Path


def prepare(store_root: Path) -> None:
    """Set defaults for telemetry, results and noise. Call before the first `import prefect`."""
    default = os.environ.setdefault
    default("DO_NOT_TRACK", "1")
    default("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    default("PREFECT_RESULTS_DEFAULT_SERIALIZER", "json")
    default("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")
    default("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
    # What a person should see is printed by this command itself; Prefect's log lines go to the server.
    default("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    if "PREFECT_API_URL" not in os.environ:
        home = store_root / ".prefect"
        home.mkdir(parents=True, exist_ok=True)
        default("PREFECT_HOME", str(home))
