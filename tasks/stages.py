"""A stage: a pure function from artifacts to an artifact, with a name, a version and a settings model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tasks.artifacts import Artifact
from tasks.configuration import StageConfig
from tasks.errors import UserError

A = TypeVar("A", bound=Artifact)


@dataclass(frozen=True)
class Stage(Generic[A]):
    """What the flow, the cache and the command line need to know about one step."""

    name: str
    """Folder in the store, name in commands and in the user interface."""
    version: int
    """Bumped by hand when the meaning of the stage changes: old results then no longer count."""
    config: type[StageConfig]
    inputs: tuple[type[Artifact], ...]
    """The kinds of artifacts it takes, in order."""
    output: type[A]
    run: Callable[..., A]
    """`run(build, config, *inputs)`; see tasks.store.StageBuild for what `build` offers."""
    description: str
    """One plain sentence for people."""

    def key(self, config: StageConfig, inputs: Sequence[Artifact]) -> str:
        """What would make this result: sha256 over stage, version, settings and input fingerprints (64 hex digits).

        Raises UserError when an input is not of the kind this stage takes.
        """
        self.check_inputs(inputs)
        body = {
            "stage": self.name,
            "version": self.version,
            "config": config.meaning(),
            "inputs": [artifact.fingerprint for artifact in inputs],
        }
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def check_inputs(self, inputs: Sequence[Artifact]) -> None:
        """Raises UserError unless `inputs` are of the kinds in `self.inputs`, in that order."""
        found = [type(artifact).kind for artifact in inputs]
        wanted = [kind.kind for kind in self.inputs]
        if found != wanted:
            rule = f"the stage {self.name} takes {', '.join(wanted)}"
            raise UserError(
                f"{self.name} inputs", ", ".join(found), rule, "Give artifacts of these kinds, in this order."
            )
