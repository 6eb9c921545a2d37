"""What all stage configurations share: frozen, no unknown keys, a sentence under each field."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tasks.errors import UserError


class Config(BaseModel):
    """A frozen settings model. The sentence under each field is its help text everywhere."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )


def default_workers() -> int:
    """Processes to use when the user does not say: the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


class Resources(Config):
    """How fast a stage runs, never what it makes: nothing here enters a cache key."""

    workers: int = Field(default_factory=default_workers, ge=1, le=4096)
    """Processes that work on shards at the same time. The result is the same for any number."""


class StageConfig(Config):
    """Settings of one stage. The field `resources` says how fast; every other field says what."""

    resources: Resources = Resources()
    """Workers and limits; they never change what is made."""

    def meaning(self) -> dict[str, Any]:
        """The settings that decide what is made, as plain JSON: everything but fields named `resources`.

        A path counts by the content it points at, so that the same list under another name is the same setting
        and a changed list under the same name is another. Raises UserError when nothing is there.
        """
        return {name: plain(value, name) for name, value in _fields(self)}


def _fields(model: BaseModel) -> list[tuple[str, Any]]:
    return [(name, getattr(model, name)) for name in type(model).model_fields if name != "resources"]


def plain(value: Any, field: str) -> Any:
    """`value` as JSON that tells 1 from True and 1.0, in one spelling. Raises TypeError for what has no meaning."""
    if isinstance(value, BaseModel):
        return {name: plain(item, f"{field}.{name}") for name, item in _fields(value)}
    if isinstance(value, Path):
        return {"content_sha256": content_digest(value, field)}
    if isinstance(value, dict):
        return {str(name): plain(item, f"{field}.{name}") for name, item in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{field}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item, field) for item in value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(f"{field}: {type(value).__name__} cannot be part of a cache key; use a setting or an artifact")


def content_digest(path: Path, field: str) -> str:
    """sha256 over the content of a file, or over the names and contents of a folder's files."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    if path.is_dir():
        digest = hashlib.sha256()
        for file in sorted(item for item in path.rglob("*") if item.is_file()):
            digest.update(f"{file.relative_to(path).as_posix()}\0{content_digest(file, field)}\n".encode())
        return digest.hexdigest()
    raise UserError(field, str(path), "there is no such file or folder", "Give the path of an existing one.")
