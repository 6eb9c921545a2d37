"""`url2lm run`: build the configuration, run the flow, say what came of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows import summary
from flows.config import STAGE_ORDER, PipelineConfig, build_config, load_recipe, parse_assignment
from flows.embedded_server import EmbeddedServer, start_unless_given
from flows.prefect_settings import prepare
from flows.standard_input import standard_input_as_file
from flows.steps import describe
from tasks.artifacts import Artifact
from tasks.errors import UserError
from tasks.store import ArtifactStore

console = Console(soft_wrap=False)


def run(
    recipe: str, settings: Sequence[str], given: Sequence[tuple[list[str], Any]], *, dry_run: bool, as_json: bool
) -> None:
    """Everything that can be wrong is refused here, before any work: recipe, settings, inputs."""
    config = build_config(load_recipe(recipe), [*map(parse_assignment, settings), *given])
    first = config.input.first_stage
    for wanted, field in ((config.only, "only"), (config.until, "until")):
        if wanted is not None and STAGE_ORDER.index(wanted) < STAGE_ORDER.index(first):
            rule = f"the flow starts at {first}"
            remedy = f"Name one of: {', '.join(config.stages[config.stages.index(first) :])}."
            raise UserError(field, wanted, rule, remedy)
    with standard_input_as_file(config.input.urls, config.store_path / ".work") as urls:
        config = config.model_copy(update={"input": config.input.model_copy(update={"urls": urls})})
        if dry_run:
            _print_plan(config, as_json)
            return
        run_pipeline(config, as_json=as_json)


def _take_inputs(config: PipelineConfig) -> list[Artifact]:
    # Adopting again is cheap (a hash), so a wrong path or an empty list is said before a server is started.
    from tasks import adopt

    store, given = ArtifactStore(config.store_path), config.input
    if given.urls:
        return [adopt.adopt_urls(store, given.urls)]
    if given.pages:
        return [adopt.adopt_pages(store, given.pages)]
    if given.documents:
        return [adopt.adopt_documents(store, given.documents, text_field=given.text_field)]
    from tasks.tokenize.stage import LOAD_VOCABULARY

    adopt.corpus_paths(given.corpus)
    return [store.run(LOAD_VOCABULARY, config.vocabulary, ())]


def run_pipeline(config: PipelineConfig, *, as_json: bool, server: EmbeddedServer | None = None) -> dict[str, Artifact]:
    """Run the flow with this terminal attached, and print its summary. `server`: one that was started before."""
    started = time.monotonic()
    terminal = Console(stderr=True) if as_json else console
    store = ArtifactStore(config.store_path)
    for taken in _take_inputs(config):
        if summary.dropped(store, taken):
            terminal.print(f"taken over: {describe(store, taken)}", highlight=False, markup=False)
    produced = _run_flow(config, terminal, server)
    facts = summary.facts(store, produced, seconds=time.monotonic() - started)
    if as_json:
        console.print_json(orjson.dumps(facts).decode())
    else:
        summary.print_summary(console, store, produced, facts)
    return produced


def start_server(config: PipelineConfig) -> EmbeddedServer | None:
    """The private Prefect server of a run, not waited for; none where the user names one."""
    prepare(config.store_path)
    return start_unless_given(config.store_path)


def _run_flow(config: PipelineConfig, terminal: Console, server: EmbeddedServer | None) -> dict[str, Artifact]:
    server = server or start_server(config)
    from flows.display import Display
    from flows.pipeline import pipeline
    from flows.states import StateWatch
    from tasks.orchestration import attach_display

    if server is not None:
        with terminal.status("waiting for Prefect's embedded server (PREFECT_API_URL names another one)"):
            server.wait()
    display = Display(terminal)
    attach_display(display.stage)
    try:
        with display.live(), StateWatch(terminal):
            produced: Mapping[str, Artifact] = pipeline(config)
    finally:
        attach_display(None)
    return dict(produced)


def _print_plan(config: PipelineConfig, as_json: bool) -> None:
    from flows.plan import plan
    from tasks import adopt

    if config.input.urls:
        adopt.expand_paths("urls", config.input.urls)
    rows = [{"stage": name, "outlook": outlook} for name, outlook in plan(config).items()]
    if as_json:
        console.print_json(orjson.dumps({"store": str(config.store_path), "stages": rows}).decode())
        return
    table = Table(title=escape(f"What would run (store: {config.store_path})"), title_justify="left")
    table.add_column("stage")
    table.add_column("outlook")
    for row in rows:
        table.add_row(*row.values(), style="cyan" if row["outlook"] == "cached" else None)
    console.print(table)
