"""ArtifactStore: where artifacts live. Key, work directory, publish by rename, lookup, adopt, lineage.

STORE/artifacts/STAGE/KEY-FINGERPRINT/   published: files and manifest.json (short forms of both digests)
STORE/.work/STAGE-KEY/                   being made; a rerun goes on where it stopped
STORE/.locks/STAGE-KEY.lock              flock: one process makes one key at a time
STORE/.records/                          cache records of the flow engine; they only point at manifests
"""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from tasks import manifest as manifests
from tasks.artifacts import Artifact
from tasks.configuration import StageConfig
from tasks.errors import CorruptArtifactError, StageError, UserError
from tasks.locks import exclusive
from tasks.manifest import MANIFEST_NAME, Manifest
from tasks.progress import Progress, SilentProgress, StageReport
from tasks.stages import Stage

A = TypeVar("A", bound=Artifact)

KEY_DIGITS = 20
FINGERPRINT_DIGITS = 12
SCRATCH_NAMES = (".shards", ".scratch")


@dataclass
class StageBuild:
    """What a stage function works with: its directory, its way to report, and `publish` at the end."""

    store: ArtifactStore
    stage_name: str
    stage_version: int
    key: str
    config: Mapping[str, Any]
    inputs: Sequence[Artifact]
    directory: Path
    """Files written here are published, but for hidden ones and *.tmp. What an earlier attempt left is still there."""
    progress: Progress
    started: float

    @property
    def scratch(self) -> Path:
        """A folder for intermediate files: kept over reruns, never published, removed when the stage is done."""
        path = self.directory / ".scratch"
        path.mkdir(exist_ok=True)
        return path

    def path_of(self, artifact: Artifact) -> Path:
        """The absolute directory of an input artifact."""
        return self.store.path_of(artifact)

    def publish(self, kind: type[A], report: StageReport | None, **fields: Any) -> A:
        """Make the directory an artifact of `kind` with its own `fields` (counts, sizes) and return it.

        Checks the balance of the report, hashes and syncs the files, writes the manifest last, renames. Raises
        StageError when the report does not balance.
        """
        if report is not None:
            report.check_balance()
        files = manifests.hash_files(self.directory)
        digest = manifests.fingerprint(kind.kind, files)
        name = f"{self.key[:KEY_DIGITS]}-{digest[:FINGERPRINT_DIGITS]}"
        artifact = kind(
            stage=self.stage_name,
            key=self.key,
            fingerprint=digest,
            path=f"artifacts/{self.stage_name}/{name}",
            files=files,
            inputs=tuple(item.fingerprint for item in self.inputs),
            **fields,
        )
        record = Manifest(
            kind=kind.kind,
            artifact=artifact.model_dump(mode="json"),
            report=report,
            stage_version=self.stage_version,
            config=dict(self.config),
            input_paths=[item.path for item in self.inputs],
            versions=manifests.package_versions(),
            seconds=round(time.monotonic() - self.started, 3),
            published_at=datetime.now(UTC).isoformat(timespec="microseconds"),
        )
        self._write_manifest(record)
        for scratch in SCRATCH_NAMES:
            shutil.rmtree(self.directory / scratch, ignore_errors=True)
        for leftover in self.directory.rglob("*.tmp"):
            leftover.unlink(missing_ok=True)
        self.store.move_in(self.directory, artifact)
        return artifact

    def _write_manifest(self, record: Manifest) -> None:
        temporary = self.directory / f"{MANIFEST_NAME}.tmp"
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(record.model_dump_json(indent=1))
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(self.directory / MANIFEST_NAME)
        _sync_directory(self.directory)


@dataclass(frozen=True)
class Outcome:
    """What came of asking for an artifact."""

    artifact: Artifact
    cached: bool
    """True when it was there already and nothing was done."""


class ArtifactStore:
    """A folder of artifacts. Any number of processes may use one store at the same time."""

    def __init__(self, root: Path) -> None:
        """`root` is made when the first artifact is. A relative path means: from the current folder, now."""
        self.root = root.expanduser().resolve()

    def path_of(self, artifact: Artifact) -> Path:
        """The absolute directory of an artifact."""
        return self.root / artifact.path

    def manifest_of(self, artifact: Artifact) -> Manifest:
        """Raises CorruptArtifactError when the manifest is gone."""
        return manifests.read_manifest(self.path_of(artifact))

    def run(
        self,
        stage: Stage[A],
        config: StageConfig,
        inputs: Sequence[Artifact],
        progress: Progress | None = None,
        *,
        refresh: bool = False,
    ) -> A:
        """Make the artifact of `stage`, or return the one that is there. See `produce`."""
        return self.produce(stage, config, inputs, progress, refresh=refresh)[0]

    def produce(
        self,
        stage: Stage[A],
        config: StageConfig,
        inputs: Sequence[Artifact],
        progress: Progress | None = None,
        *,
        refresh: bool = False,
    ) -> tuple[A, bool]:
        """Make the artifact of `stage`, or find it. Returns it and whether it was there already.

        One process works on a key at a time; another waits and then finds the result. `refresh` makes it again
        even when it is there. Raises what the stage raises, CorruptArtifactError when an input is damaged.
        """
        progress = progress or SilentProgress()
        key = stage.key(config, inputs)
        with exclusive(self.root / ".locks" / f"{stage.name}-{key[:KEY_DIGITS]}.lock", progress, stage.name) as waited:
            if (not refresh or waited) and (found := self.lookup(stage, key, progress)) is not None:
                return found, True
            for artifact in inputs:
                self.check(artifact)
            work = self.work_directory(stage.name, key)
            if refresh:
                shutil.rmtree(work, ignore_errors=True)
            try:
                work.mkdir(parents=True, exist_ok=True)
                (work / MANIFEST_NAME).unlink(missing_ok=True)
                meaning = config.model_dump(mode="json")
                build = StageBuild(
                    self, stage.name, stage.version, key, meaning, list(inputs), work, progress, time.monotonic()
                )
                return stage.run(build, config, *inputs), False
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise StageError(
                        f"the disk that holds {self.root} is full while {stage.name} runs. Finished shards are kept: "
                        "make room, then run the same command again."
                    ) from error
                raise

    def work_directory(self, stage_name: str, key: str) -> Path:
        """Where the artifact of that key is made. The same for every attempt, so that a rerun can go on."""
        return self.root / ".work" / f"{stage_name}-{key[:KEY_DIGITS]}"

    def lookup(self, stage: Stage[A], key: str, progress: Progress | None = None) -> A | None:
        """The newest sound artifact of that key, or None. A damaged one is noted and never counts."""
        newest: tuple[str, A] | None = None
        for directory in sorted((self.root / "artifacts" / stage.name).glob(f"{key[:KEY_DIGITS]}-*")):
            try:
                record = manifests.read_manifest(directory)
                artifact = record.load()
            except (CorruptArtifactError, ValueError, UserError) as error:
                _note(progress, f"{stage.name}: {error}; it does not count")
                continue
            if artifact.key != key or not isinstance(artifact, stage.output):
                continue
            if wrong := manifests.problems(directory, artifact.files, thorough=False):
                _note(progress, f"{stage.name}: {wrong[0]}; the stage runs again")
                continue
            if newest is None or record.published_at > newest[0]:
                newest = (record.published_at, artifact)
        return newest[1] if newest else None

    def check(self, artifact: Artifact, *, thorough: bool = False) -> None:
        """Raises CorruptArtifactError, naming the first file, when the files are not those that were published."""
        directory = self.path_of(artifact)
        manifests.read_manifest(directory)
        if wrong := manifests.problems(directory, artifact.files, thorough=thorough):
            raise CorruptArtifactError(wrong[0])

    def move_in(self, directory: Path, artifact: Artifact) -> None:
        """Rename a finished directory to its place. A damaged copy of the same artifact makes way."""
        target = self.path_of(artifact)
        target.parent.mkdir(parents=True, exist_ok=True)
        stamps = {
            entry.name: [entry.num_bytes, (directory / entry.name).stat().st_mtime_ns] for entry in artifact.files
        }
        manifests.write_verified(directory, stamps)
        if target.exists():
            # A refresh that made the same bytes, or a repair: the new copy was verified this minute, so it wins.
            aside = self.root / ".work" / f"replaced-{uuid.uuid4().hex}"
            aside.parent.mkdir(parents=True, exist_ok=True)
            target.rename(aside)
            directory.rename(target)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            directory.rename(target)
        _sync_directory(target.parent)

    def load(self, path: Path) -> Artifact:
        """The artifact in that directory of this store. Raises CorruptArtifactError when there is none."""
        return manifests.read_manifest(path).load()

    def artifacts(self) -> Iterator[tuple[Artifact, Manifest]]:
        """Every published artifact that can be read, by stage and name."""
        for path in sorted((self.root / "artifacts").glob(f"*/*/{MANIFEST_NAME}")):
            try:
                record = manifests.read_manifest(path.parent)
                yield record.load(), record
            except (CorruptArtifactError, ValueError, UserError):
                continue

    def find(self, fingerprint: str) -> tuple[Artifact, Manifest] | None:
        """The artifact with that fingerprint, if the store has it."""
        return next((pair for pair in self.artifacts() if pair[0].fingerprint == fingerprint), None)


def _note(progress: Progress | None, message: str) -> None:
    if progress is not None:
        progress.note(message)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
