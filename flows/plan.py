"""What a run would do: the flow's own order of stages, walked with a look into the store in the place of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

from flows import pipeline
from flows.config import PipelineConfig, StageName
from flows.registry import STAGES
from flows.steps import Reached, Steps
from tasks.artifacts import Artifact
from tasks.configuration import StageConfig
from tasks.progress import Progress
from tasks.stages import Stage
from tasks.store import ArtifactStore
from tasks.tokenize.stage import LOAD_VOCABULARY

A = TypeVar("A", bound=Artifact)
Outlook = Literal["cached", "would run", "depends on what comes before"]


class LookingStore(ArtifactStore):
    """A store that makes nothing."""

    def run(
        self,
        stage: Stage[A],
        config: StageConfig,
        inputs: Sequence[Artifact],
        progress: Progress | None = None,
        *,
        refresh: bool = False,
    ) -> A:
        """The artifact when it is there. Raises Reached when it is not."""
        found = None if refresh else self.lookup(stage, stage.key(config, inputs), progress)
        if found is None:
            raise Reached
        return found


class LookingSteps(Steps):
    """Says of each stage whether it would run."""

    def __init__(self, config: PipelineConfig) -> None:
        super().__init__(config)
        self.store = LookingStore(config.store_path)
        self.outlook: dict[StageName, Outlook] = {}

    def run(self, name: StageName, task: Callable[..., Any], config: StageConfig, *inputs: Artifact) -> Any:
        """The artifact of a cached stage. Raises Reached at the first that would run: the rest depends on it."""
        if self.is_past_the_end(name):
            raise Reached
        found = self.store.lookup(STAGES[name], STAGES[name].key(config, inputs))
        if found is None or self.is_wanted_again(name):
            self.outlook[name] = "would run"
            raise Reached
        self.outlook[name] = "cached"
        return found


def plan(config: PipelineConfig) -> dict[StageName, Outlook]:
    """For each stage of the run, in order, what would become of it. Nothing is made and nothing is fetched.

    Raises UserError for inputs that are not there.
    """
    first, last = config.stages.index(config.input.first_stage), config.stages.index(config.only or config.until)
    wanted = config.stages[first : last + 1]
    outlook: dict[StageName, Outlook] = {}
    if config.store_path.is_dir():
        steps = LookingSteps(config)
        with suppress(Reached):
            if config.input.corpus:
                tokenizer = steps.store.run(LOAD_VOCABULARY, config.vocabulary, ())
                tokens = pipeline.given_corpus(config, steps.store, tokenizer)
            else:
                tokens, tokenizer = pipeline.corpus_steps(config, steps)
            pipeline.model_steps(config, steps, tokens, tokenizer)
        outlook = steps.outlook
    rest: Outlook = "depends on what comes before" if outlook else "would run"
    for name in wanted:
        outlook.setdefault(name, rest)
    if config.only:
        return {config.only: "would run"}
    return {name: outlook[name] for name in wanted}
