from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.errors import ChildFailedError, UserError
from tasks.launch import parse_event, run_child


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie has ended; its parent has not looked yet.
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def wait_until(condition, seconds: float = 10.0) -> bool:  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_events_come_as_they_are_printed_and_the_rest_is_log(tmp_path: Path) -> None:
    script = "import json\nprint('hello')\nprint(json.dumps({'event': 'step', 'loss': 2.5}))\nprint('{not json')"
    events: list[dict[str, object]] = []
    result = run_child([sys.executable, "-c", script], name="x", log_path=tmp_path / "log", on_event=events.append)
    assert result.exit_code == 0 and events == [{"event": "step", "loss": 2.5}]
    assert (tmp_path / "log").read_text().splitlines()[0] == "hello"


def test_a_failed_child_says_its_last_lines(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('reason: no room'); raise SystemExit(7)"]
    with pytest.raises(ChildFailedError, match="trainer ended with exit code 7(.|\n)*reason: no room"):
        run_child(command, name="trainer", log_path=tmp_path / "log")


def test_an_accepted_exit_code_is_an_answer(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    assert run_child(command, name="x", log_path=tmp_path / "log", accepted_exit_codes=(0, 3)).exit_code == 3


def test_a_time_limit_ends_the_child_and_what_it_started(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)\n"
    )
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="longer than 1"):
        run_child(
            [sys.executable, "-c", script], name="x", log_path=tmp_path / "log", timeout_seconds=1.5, grace_seconds=1
        )
    assert time.monotonic() - started < 10
    assert wait_until(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_a_killed_parent_leaves_no_orphan(tmp_path: Path) -> None:
    inner = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    script = (
        "import sys\nfrom pathlib import Path\nfrom tasks.launch import run_child\n"
        f"run_child([sys.executable, '-c', {inner!r}], name='x', log_path=Path({str(tmp_path / 'log')!r}))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
    assert wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert wait_until(lambda: not alive(pid))


@pytest.mark.parametrize("line", ["", "text", "{", "[1]", '{"a": 1}', '{"event": 3}'])
def test_only_objects_with_an_event_are_events(line: str) -> None:
    assert parse_event(line) is None


def test_errors_travel_between_processes_and_say_what_ended_a_child() -> None:
    for error in (UserError("a.b", 3, "it is odd", "Give 4."), ChildFailedError("train", -9, ["one", "two"])):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error) and str(copy) == str(error) and copy.__dict__ == error.__dict__
    assert "SIGKILL" in str(ChildFailedError("train", -9, [])) and "said nothing" in str(ChildFailedError("x", 3, []))
