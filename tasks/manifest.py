"""The manifest: written last, it makes a directory an artifact. It is the one truth about what was published."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from tasks.artifacts import Artifact, FileEntry, artifact_kind
from tasks.errors import CorruptArtifactError
from tasks.progress import StageReport

MANIFEST_NAME = "manifest.json"
VERIFIED_NAME = ".verified.json"
REPORTED_PACKAGES = (
    "url2lm",
    "prefect",
    "trafilatura",
    "ftfy",
    "langdetect",
    "pycld2",
    "tokenizers",
    "torch",
    "transformers",
)


class Manifest(BaseModel):
    """Everything that is known about a published artifact."""

    model_config = ConfigDict(extra="forbid")

    format: int = 1
    kind: str
    artifact: dict[str, Any]
    report: StageReport | None
    stage_version: int
    config: dict[str, Any]
    input_paths: list[str]
    """Store paths of the inputs, in order: the lineage upwards."""
    versions: dict[str, str]
    seconds: float
    published_at: str
    """RFC 3339, UTC."""

    def load(self) -> Artifact:
        """The typed artifact this manifest describes."""
        return artifact_kind(self.kind).model_validate(self.artifact)


def read_manifest(directory: Path) -> Manifest:
    """Raises CorruptArtifactError when there is none, or none that can be understood."""
    try:
        return Manifest.model_validate_json((directory / MANIFEST_NAME).read_bytes())
    except FileNotFoundError:
        raise CorruptArtifactError(f"{directory}: no {MANIFEST_NAME}, so this is no published artifact") from None
    except (OSError, ValueError) as error:
        raise CorruptArtifactError(f"{directory / MANIFEST_NAME}: {error}") from error


def hash_files(directory: Path) -> tuple[FileEntry, ...]:
    """Size and sha256 of every file that is to be published.

    Hidden and unfinished (.tmp) files are not, and neither is the folder `logs`: it travels with the artifact, but
    timings and log text are no part of what the artifact is.
    """
    entries = []
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        if name.parts[0] == "logs":
            continue
        hidden = any(part.startswith(".") and part != ".metadata" for part in name.parts)
        if not path.is_file() or hidden or path.suffix == ".tmp" or str(name) == MANIFEST_NAME:
            continue
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            os.fsync(stream.fileno())
        entries.append(FileEntry(name=name.as_posix(), num_bytes=path.stat().st_size, sha256=digest))
    return tuple(entries)


def fingerprint(kind: str, entries: Iterable[FileEntry]) -> str:
    """Digest over kind, names and contents: what an artifact is, whoever made it."""
    digest = hashlib.sha256(f"{kind}\n".encode())
    for entry in entries:
        digest.update(f"{entry.name}\0{entry.sha256}\n".encode())
    return digest.hexdigest()


def problems(directory: Path, files: Iterable[FileEntry], *, thorough: bool) -> list[str]:
    """What is wrong with the files of an artifact: missing, other size, other content. Empty means sound.

    Contents are hashed when `thorough`, and otherwise only where size and modification time are not those of
    the last time the content was seen to be right, so that a change in place is noticed and a hit stays cheap.
    """
    seen = _read_verified(directory)
    found: list[str] = []
    now: dict[str, list[int]] = {}
    for entry in files:
        path = directory / entry.name
        try:
            status = path.stat()
        except OSError:
            found.append(f"{path}: missing")
            continue
        stamp = [status.st_size, status.st_mtime_ns]
        if status.st_size != entry.num_bytes:
            found.append(f"{path}: {status.st_size} bytes, published with {entry.num_bytes}")
            continue
        if thorough or seen.get(entry.name) != stamp:
            with path.open("rb") as stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() != entry.sha256:
                    found.append(f"{path}: the content has changed since it was published")
                    continue
        now[entry.name] = stamp
    if not found and now != seen:
        write_verified(directory, now)
    return found


def _read_verified(directory: Path) -> dict[str, list[int]]:
    import json

    try:
        value = json.loads((directory / VERIFIED_NAME).read_bytes())
        return value if isinstance(value, dict) else {}
    except (OSError, ValueError):
        return {}


def write_verified(directory: Path, stamps: dict[str, list[int]]) -> None:
    """Remember sizes and modification times of files whose content was just seen to be right. Best effort."""
    import json

    temporary = directory / f"{VERIFIED_NAME}.{os.getpid()}"
    try:
        temporary.write_text(json.dumps(stamps))
        temporary.replace(directory / VERIFIED_NAME)
    except OSError:  # a read-only store still can be read
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what stages make."""
    versions = {"python": platform.python_version()}
    for package in REPORTED_PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
