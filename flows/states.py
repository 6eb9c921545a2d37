"""One line for every stage as it ends: Completed or Cached, how long, what came out."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape

from flows.steps import StageEnd, on_stage_end


class StateWatch:
    """While it is entered, the end of every stage is printed."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        on_stage_end(self._print)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        on_stage_end(None)

    def _print(self, end: StageEnd) -> None:
        style = "cyan" if end.state_name == "Cached" else "green"
        self._console.print(
            f"[{style}]{end.stage:<11} {end.state_name:<9}[/] {end.seconds:6.1f} s  {escape(end.what)}", highlight=False
        )
