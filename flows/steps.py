"""How a flow calls its stages: until which one, which alone, which again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from flows.config import STAGE_ORDER, PipelineConfig, StageName
from flows.registry import STAGES
from tasks.artifacts import Artifact
from tasks.configuration import StageConfig
from tasks.errors import UserError
from tasks.store import ArtifactStore

A = TypeVar("A", bound=Artifact)


class Reached(Exception):
    """The last wanted stage is done. Caught by the flow that raised it."""


@dataclass(frozen=True)
class StageEnd:
    """A stage has ended well."""

    stage: StageName
    state_name: str
    """`Completed`, or `Cached` when nothing had to be done."""
    seconds: float
    what: str
    """What it made, in a few words."""


_on_end: Callable[[StageEnd], None] | None = None


def on_stage_end(listener: Callable[[StageEnd], None] | None) -> None:
    """Tell `listener` (a terminal) of every stage that ends well in this process, or nobody."""
    global _on_end
    _on_end = listener


class Steps:
    """Runs stages in order and remembers what they made."""

    def __init__(self, config: PipelineConfig) -> None:
        self.store = ArtifactStore(config.store_path)
        self.produced: dict[str, Artifact] = {}
        self._last: StageName = config.only or config.until
        self._only, self._refresh = config.only, config.refresh

    def run(self, name: StageName, task: Callable[..., tuple[A, bool]], config: StageConfig, *inputs: Artifact) -> A:
        """One stage. Raises Reached before the first unwanted one, UserError for `only` without its inputs."""
        if self.is_past_the_end(name):
            raise Reached
        if self._only is not None and name != self._only and self._missing(name, config, inputs):
            raise UserError(
                "only",
                self._only,
                f"it needs the result of {name}, which is not in the store {self.store.root}",
                f"Run the flow with --until {name} first.",
            )
        started = time.monotonic()
        artifact, cached = task(self.store, config, list(inputs), self.is_wanted_again(name))
        self.produced[name] = artifact
        if _on_end is not None:
            state_name = "Cached" if cached else "Completed"
            _on_end(StageEnd(name, state_name, time.monotonic() - started, describe(self.store, artifact)))
        return artifact

    def is_past_the_end(self, name: StageName) -> bool:
        """Whether the run ends before this stage."""
        return STAGE_ORDER.index(name) > STAGE_ORDER.index(self._last)

    def is_wanted_again(self, name: StageName) -> bool:
        """Whether the stage runs although its result is there."""
        return name in self._refresh or name == self._only

    def _missing(self, name: StageName, config: StageConfig, inputs: tuple[Any, ...]) -> bool:
        stage = STAGES[name]
        return self.store.lookup(stage, stage.key(config, inputs)) is None


def describe(store: ArtifactStore, artifact: Artifact) -> str:
    """What an artifact is, in a few words: its counts, and what was dropped on the way."""
    hidden = set(Artifact.model_fields) | {"tokenizer_fingerprint", "eod_token_id"}
    parts = []
    for field in type(artifact).model_fields:
        value = getattr(artifact, field)
        if field not in hidden and value is not None:
            name = field.removeprefix("num_").replace("_", " ")
            parts.append(f"{value:,} {name}" if field.startswith("num_") else f"{name} {_number(value)}")
    report = store.manifest_of(artifact).report
    if report is not None and report.dropped:
        parts.append(f"{sum(report.dropped.values()):,} dropped")
    return ", ".join(parts)


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"
