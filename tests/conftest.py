"""What all tests share: where the shared data is, and the count of cases by area at the end."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
SHARED_DATA = Path(os.environ.get("URL2LM_DATA", PROJECT.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real pages, lists and texts; a test that needs it is skipped where it is not."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no shared data at {SHARED_DATA} (set URL2LM_DATA)")
    return SHARED_DATA


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed", "skipped", "error"):
        for report in terminalreporter.getreports(outcome):
            if "test_cases.py" not in report.nodeid or (report.when != "call" and outcome == "passed"):
                continue
            area = dict(report.user_properties).get("area")
            if area is None:
                continue
            pending = outcome == "skipped" and "pending" in str(report.longrepr)
            counts.setdefault(area, Counter())["pending" if pending else outcome] += 1
    if counts:
        terminalreporter.section("cases by area")
    for area, found in sorted(counts.items()):
        line = ", ".join(f"{found[name]} {name}" for name in ("passed", "failed", "pending", "skipped", "error"))
        terminalreporter.write_line(f"{area:<16} {line}")
