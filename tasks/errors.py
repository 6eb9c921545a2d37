"""Every exception this project raises on purpose.

    Url2lmError
    |-- UserError               the user asked for something wrong: refused before work starts (exit code 2)
    |-- CorruptInputError       a file ends too early or is not what it says; names the file (exit code 1)
    |-- CorruptArtifactError    a published artifact is missing files or has changed
    |-- StageError              a stage cannot publish: report out of balance, nothing left, child failed
    |   `-- ChildFailedError    a child process ended badly; carries its last lines and exit code
    `-- TransientError          the world broke and may heal: the only class a task retries

A bad record is no exception: it is counted under a reason in the stage's report.
"""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable


class Url2lmError(Exception):
    """Root of the tree."""


class UserError(Url2lmError):
    """What the user asked for cannot be done. The text says field, value, rule and remedy."""

    def __init__(self, field: str, value: object, rule: str, remedy: str) -> None:
        self.field, self.value, self.rule, self.remedy = field, value, rule, remedy
        super().__init__(f"{field} = {value!r}: {rule}. {remedy}")

    def __reduce__(self) -> tuple[type[UserError], tuple[str, object, str, str]]:
        return type(self), (self.field, self.value, self.rule, self.remedy)


class CorruptInputError(Url2lmError):
    """An input file is damaged (a compressed shard cut short, a bad header); no part of it is used."""


class CorruptArtifactError(Url2lmError):
    """A published artifact no longer is what its manifest says."""


class StageError(Url2lmError):
    """A stage ended without an artifact."""


class ChildFailedError(StageError):
    """A child process ended badly."""

    def __init__(self, command: str, exit_code: int, last_lines: Iterable[str]) -> None:
        self.command, self.exit_code, self.last_lines = command, exit_code, list(last_lines)
        tail = "\n".join(f"    {line}" for line in self.last_lines)
        said = f"its last lines:\n{tail}" if self.last_lines else "it said nothing"
        super().__init__(f"{command} {_ending(exit_code)}; {said}")

    def __reduce__(self) -> tuple[type[ChildFailedError], tuple[str, int, list[str]]]:
        return type(self), (self.command, self.exit_code, self.last_lines)


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    name = signal.Signals(-exit_code).name if -exit_code in set(signal.Signals) else str(-exit_code)
    guess = " (by the system when memory ran out, perhaps)" if name == "SIGKILL" else ""
    return f"was ended by the signal {name}{guess}"


class TransientError(Url2lmError):
    """A failure of the world (network, disk, database) that may heal; the task is tried again."""


def nearest(name: str, choices: Iterable[str]) -> str:
    """A remedy for an unknown name: the right names, and the one closest to what was typed."""
    known = sorted(choices)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {', '.join(known)}"
