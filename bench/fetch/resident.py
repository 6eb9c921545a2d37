"""The resident memory of a process while it works."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

POLL_SECONDS = 0.2


def megabytes(process: int) -> float:
    """The resident memory of a process now."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


def watched(process: subprocess.Popen[bytes]) -> list[float]:
    """Megabytes at every look, until the process has ended."""
    seen: list[float] = []
    while process.poll() is None:
        seen.append(megabytes(process.pid))
        time.sleep(POLL_SECONDS)
    return seen


def print_steps(seen: list[float]) -> list[float]:
    """Print, and return, what was seen at ten moments evenly apart."""
    steps = [seen[len(seen) * step // 11] for step in range(1, 11)]
    print("RSS over time (MB): " + " ".join(f"{size:.0f}" for size in steps))
    return steps
