"""Checkpoint folders: OUTPUT_DIR/step_00000010/ with a manifest, and OUTPUT_DIR/latest.json that names one.

A folder is written under another name, its files are synced and hashed, `manifest.json` is written last, the folder is
renamed, and then the pointer moves. What has no manifest is no checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from trainer.metrics import ExitCode, TrainError

MANIFEST_NAME = "manifest.json"
LATEST_NAME = "latest.json"
FORMAT = 1


def step_folder(output_dir: Path, step: int) -> Path:
    """The folder of a step."""
    return output_dir / f"step_{step:08d}"


def complete_steps(output_dir: Path) -> list[int]:
    """Steps whose folder has a manifest, ascending."""
    found = []
    for path in output_dir.glob("step_*"):
        match = re.fullmatch(r"step_(\d{8,})", path.name)
        if match and (path / MANIFEST_NAME).is_file():
            found.append(int(match[1]))
    return sorted(found)


def publish(temporary: Path, target: Path, facts: dict[str, Any]) -> None:
    """Hash and sync the files of `temporary`, write its manifest, and rename it to `target`."""
    files = {}
    for path in sorted(temporary.iterdir()):
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            os.fsync(stream.fileno())
        files[path.name] = {"num_bytes": path.stat().st_size, "sha256": digest}
    _write_synced(temporary / MANIFEST_NAME, json.dumps({"format": FORMAT, **facts, "files": files}, indent=1))
    _sync_folder(temporary)
    if target.exists():
        shutil.rmtree(target)
    temporary.rename(target)
    _sync_folder(target.parent)


def point_at(output_dir: Path, step: int) -> None:
    """Move the pointer."""
    _write_synced(output_dir / f".{LATEST_NAME}", json.dumps({"step": step}))
    (output_dir / f".{LATEST_NAME}").replace(output_dir / LATEST_NAME)
    _sync_folder(output_dir)


def read_checkpoint_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint folder. Raises TrainError (bad checkpoint) when there is none that can be read."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST_NAME).read_bytes())
    except (OSError, ValueError) as error:
        raise _bad(f"{folder}: no readable {MANIFEST_NAME} ({error})") from error
    if manifest.get("format") != FORMAT:
        raise _bad(f"{folder}: checkpoint format {manifest.get('format')!r}, this program reads {FORMAT}")
    return manifest


def verify(folder: Path) -> dict[str, Any]:
    """Hash every file and compare with the manifest, which is returned. Raises TrainError naming the first bad file."""
    manifest = read_checkpoint_manifest(folder)
    for name, entry in manifest["files"].items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != entry["num_bytes"]:
            raise _bad(f"{path}: missing or cut short")
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != entry["sha256"]:
                raise _bad(f"{path}: the content is not what was saved")
    return manifest


def find_latest(output_dir: Path) -> tuple[int | None, str]:
    """The step to go on from, and a warning where the pointer could not be followed. None: there is no checkpoint.

    A pointer to a folder that is missing or has no manifest gives way to the newest complete one; when there is none at
    all, it is an error: never a silent start from step 0. Raises TrainError.
    """
    steps = complete_steps(output_dir)
    pointer = output_dir / LATEST_NAME
    if not pointer.exists():
        # The pointer moves after the folder has its name: a kill in between leaves a whole newest checkpoint.
        return (steps[-1], "") if steps else (None, "")
    try:
        step = int(json.loads(pointer.read_bytes())["step"])
    except (OSError, ValueError, KeyError, TypeError):
        step = -1
    if step in steps:
        return max(step, steps[-1]), ""
    if not steps:
        message = f"{pointer} names step {step}, but there is no complete checkpoint in {output_dir}"
        raise TrainError(message, "Remove the folder to start again from nothing.", ExitCode.BAD_CHECKPOINT)
    return steps[-1], f"{pointer} names no complete checkpoint; going on from step {steps[-1]}"


def keep_last(output_dir: Path, number: int, interval: int = 1) -> None:
    """Remove all but the newest `number` checkpoints, and what was left half-written.

    A checkpoint off the `interval` of saving (0: any but the last step), made because the run was told to stop, goes
    when a newer one is there: what remains at the end is the same, however often the run was stopped.
    """
    steps = complete_steps(output_dir)
    regular = [step for step in steps if step == steps[-1] or (interval and step % interval == 0)]
    for step in sorted(set(steps) - set(regular[-number:])):
        doomed = output_dir / f".doomed_{step}"
        step_folder(output_dir, step).rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    for path in [*output_dir.glob(".saving_*"), *output_dir.glob(".doomed_*")]:
        shutil.rmtree(path, ignore_errors=True)


def _bad(message: str) -> TrainError:
    remedy = "Remove the damaged step folder to go on from the one before it."
    return TrainError(message, remedy, ExitCode.BAD_CHECKPOINT)


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
