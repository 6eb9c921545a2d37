"""What a person sees while a flow runs: one line a stage with rich where there is a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

PLAIN_EVERY_SECONDS = 10.0


class Display:
    """The terminal of one command."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.fields[stage]:<11}[/]"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )

    @contextmanager
    def live(self) -> Iterator[Display]:
        """Bars are drawn while the block runs, if the console is a terminal."""
        if self.console.is_terminal:
            with self._bars:
                yield self
        else:
            yield self

    def stage(self, name: str) -> StageDisplay:
        """The line of one stage; a tasks.progress.Progress."""
        return StageDisplay(name, self.console, self._bars if self.console.is_terminal else None)


class StageDisplay:
    """One stage's line."""

    def __init__(self, name: str, console: Console, bars: Progress | None) -> None:
        self._name, self._console, self._bars = name, console, bars
        self._bar: TaskID | None = None
        self._description, self._total, self._done, self._unit = "", None, 0, ""  # type: tuple[str, int | None, int, str]
        self._said = time.monotonic()

    def start(self, description: str, total: int | None, unit: str) -> None:
        self._description, self._total, self._done, self._unit = description, total, 0, unit
        if self._bars is None:
            amount = "" if total is None else f", {total:,} {unit}"
            self._console.print(f"{self._name:<11} {description}{amount}", highlight=False)
            return
        self.close()
        self._bar = self._bars.add_task(description, total=total, stage=self._name, unit=unit)

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        if self._bars is not None and self._bar is not None:
            self._bars.advance(self._bar, amount)
            if self._total is not None and self._done >= self._total:
                self.close()
        elif time.monotonic() - self._said > PLAIN_EVERY_SECONDS:
            self._said = time.monotonic()
            of = "" if self._total is None else f" of {self._total:,}"
            self._console.print(f"{self._name:<11} {self._done:,}{of} {self._unit}", highlight=False)

    def note(self, message: str) -> None:
        self._console.print(f"[yellow]{self._name:<11}[/] {escape(message)}", highlight=False)

    def metric(self, event: dict[str, object]) -> None:
        if event.get("event") == "step" and self._bars is not None and self._bar is not None:
            loss = event.get("loss")
            if isinstance(loss, float):
                self._bars.update(self._bar, description=f"{self._description} loss {loss:.3f}")

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bars is not None and self._bar is not None:
            self._bars.remove_task(self._bar)
            self._bar = None
