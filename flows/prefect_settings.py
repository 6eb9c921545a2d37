"""Prefect's settings for this project, put in place before Prefect is first imported.

Whatever the user has set in the environment wins. Without PREFECT_API_URL the flow talks to a private server
that lives as long as the flow, on SQLite under the store; nothing is sent anywhere.
"""

from __future__ import annotations

import os
from pathlib import Path

EMBEDDED_LOG_LEVEL = "CRITICAL"


def prepare(store_root: Path) -> None:
    """Set defaults for telemetry, start-up time and noise. Call before the first `import prefect`."""
    default = os.environ.setdefault
    default("DO_NOT_TRACK", "1")
    default("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    default("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    default("PREFECT_RESULTS_DEFAULT_SERIALIZER", "json")
    default("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")
    default("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
    if "PREFECT_API_URL" in os.environ:
        return
    # Embedded: the database lies beside the artifacts, the server's farewell noise stays out of the terminal, and
    # services that serve a standing server (schedules, late runs, automations) are not started.
    home = store_root.expanduser().resolve() / ".prefect"
    home.mkdir(parents=True, exist_ok=True)
    default("PREFECT_HOME", str(home))
    default("PREFECT_SERVER_LOGGING_LEVEL", EMBEDDED_LOG_LEVEL)
    default("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", EMBEDDED_LOG_LEVEL)
    default("PREFECT_SERVER_UI_ENABLED", "false")
    for service in ("SCHEDULER", "LATE_RUNS", "CANCELLATION_CLEANUP", "PAUSE_EXPIRATIONS", "FOREMAN", "TRIGGERS"):
        default(f"PREFECT_SERVER_SERVICES_{service}_ENABLED", "false")
