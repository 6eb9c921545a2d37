"""What all tests share: where the shared data is, and the count of cases by area at the end."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The workers share the cores; numbers must not wait for threads that wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

PROJECT = Path(__file__).resolve().parents[1]
SHARED_DATA = Path(os.environ.get("URL2LM_DATA", PROJECT.parent / "shared" / "data"))

# A law is tried on the same examples every time, and no example fails because the machine was busy.
settings.register_profile("url2lm", deadline=None, derandomize=True)
settings.load_profile("url2lm")

KEPT_TOGETHER = ("tests/flows/test_pipeline.py", "tests/flows/test_orchestration.py", "tests/trainer/test_train.py")
"""Files whose tests share a fixture that takes long to make: each runs on one worker."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out single tests, but KEPT_TOGETHER by file. (The group marks of pytest-xdist 3.8 are lost in pytest 9.)"""
    from xdist.scheduler import LoadScopeScheduling

    class ByCost(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            name = nodeid.partition("::")[0]
            return name if name in KEPT_TOGETHER else nodeid

    return ByCost(config, log)


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
