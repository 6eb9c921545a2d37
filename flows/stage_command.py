"""`url2lm stage`: one stage on a user's own files, without flow and server."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from flows.config import DEFAULT_STORE, as_user_error, copied, load_recipe, parse_assignment
from flows.display import Display
from flows.registry import STAGES
from flows.standard_input import standard_input_as_file
from flows.steps import describe
from tasks import adopt
from tasks.artifacts import Artifact, DocumentShards, HFModel, PageShards, TokenizedCorpus, UrlList
from tasks.configuration import StageConfig
from tasks.errors import UserError, nearest
from tasks.manifest import MANIFEST_NAME, problems, read_manifest
from tasks.progress import Progress
from tasks.stages import Stage
from tasks.store import ArtifactStore

console = Console(stderr=True)


def run_stage(
    name: str, inputs: Sequence[str], out: Path, recipe: str | None, settings: Sequence[str], store_root: str | None
) -> None:
    """Adopt the inputs, run the stage, put its files and manifest into `out`. Raises UserError before any work."""
    if name not in STAGES:
        raise UserError("stage", name, "there is no such stage", nearest(name, STAGES))
    stage = STAGES[name]
    out = out.expanduser().resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError("--out", str(out), "it exists and is not empty", "Name a folder that does not exist yet.")
    config = _config(stage, recipe, settings)
    store = ArtifactStore(Path(store_root or DEFAULT_STORE))
    display = Display(console)
    with display.live(), standard_input_as_file(inputs, store.root / ".work") as paths:
        artifacts = adopt_inputs(store, stage, paths, display.stage("adopt"))
        artifact, cached = store.produce(stage, config, artifacts, display.stage(name))
    _copy_out(store, artifact, out)
    state = "Cached" if cached else "Completed"
    adopted = [describe(store, item) for item in artifacts if item.stage.startswith("adopt-")]
    lines = [*(f"adopted: {text}" for text in adopted), f"{name} {state}: {describe(store, artifact)}", str(out)]
    Console().print(*lines, sep="\n", highlight=False, markup=False, soft_wrap=True)


def _config(stage: Stage[Any], recipe: str | None, settings: Sequence[str]) -> StageConfig:
    given = load_recipe(recipe).get(stage.name, {}) if recipe else {}
    if not isinstance(given, Mapping):
        raise UserError(stage.name, given, "it is a plain value, not a group", "Mend the recipe.")
    values: dict[str, Any] = copied(given)
    for path, value in map(parse_assignment, settings):
        names = path[1:] if path[0] == stage.name and len(path) > 1 else path
        place = values
        for part in names[:-1]:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise UserError(".".join(path), value, f"{part} is a plain value, not a group", "Give the group.")
        place[names[-1]] = value
    try:
        return stage.config.model_validate(values)
    except ValidationError as error:
        raise as_user_error(error, stage.config) from error


def adopt_inputs(store: ArtifactStore, stage: Stage[Any], inputs: Sequence[str], progress: Progress) -> list[Artifact]:
    """The inputs of a stage, in its order: artifact folders as they are, a user's own files adopted."""
    found = [taken for path in inputs if (taken := _artifact_at(store, Path(path).expanduser())) is not None]
    loose = [path for path in inputs if not (Path(path).expanduser() / MANIFEST_NAME).is_file()]
    artifacts: list[Artifact] = []
    for kind in stage.inputs:
        match = next((artifact for artifact in found if isinstance(artifact, kind)), None)
        if match is not None:
            found.remove(match)
        else:
            if not loose:
                wanted = ", ".join(item.kind for item in stage.inputs)
                rule = f"the stage {stage.name} takes {wanted}, and no {kind.kind} is given"
                raise UserError("--in", ", ".join(inputs), rule, "Give files or artifact folders for all of them.")
            match = _adopters(kind)(store, loose, progress)
            loose = []
        artifacts.append(match)
    if found or loose:
        left = [type(artifact).kind for artifact in found] + loose
        raise UserError("--in", ", ".join(left), f"the stage {stage.name} has no use for it", "Leave it out.")
    return artifacts


def _adopters(kind: type[Artifact]) -> Callable[[ArtifactStore, Sequence[str], Progress], Artifact]:
    adopters: dict[type[Artifact], Callable[[ArtifactStore, Sequence[str], Progress], Artifact]] = {
        UrlList: adopt.adopt_urls,
        PageShards: adopt.adopt_pages,
        DocumentShards: adopt.adopt_documents,
        TokenizedCorpus: lambda store, paths, progress: adopt.adopt_corpus(store, paths[0], 50257, 50256, progress),
        HFModel: lambda store, paths, progress: adopt.adopt_hf_model(store, paths[0], progress),
    }
    if kind not in adopters:
        raise UserError("--in", kind.kind, "it can only be an artifact folder", f"Give the folder of a {kind.kind}.")
    return adopters[kind]


def _artifact_at(store: ArtifactStore, path: Path) -> Artifact | None:
    """The artifact in a folder with a manifest, copied into the store when it lies elsewhere."""
    if not (path / MANIFEST_NAME).is_file():
        return None
    artifact = read_manifest(path).load()
    if wrong := problems(path, artifact.files, thorough=True):
        raise UserError("--in", str(path), wrong[0], "The artifact is damaged; make it again.")
    target = store.path_of(artifact)
    if not (target / MANIFEST_NAME).is_file():
        work = store.root / ".work" / f"taken-{uuid.uuid4().hex}"
        shutil.copytree(path, work)
        store.move_in(work, artifact)
    return artifact


def _copy_out(store: ArtifactStore, artifact: Artifact, out: Path) -> None:
    temporary = out.with_name(f".{out.name}.{uuid.uuid4().hex}")
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(store.path_of(artifact), temporary)
    if out.exists():
        out.rmdir()
    temporary.rename(out)
