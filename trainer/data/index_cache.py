"""Arrays kept between runs, named by what they are made from: built once, read by mapping, never half-written.

CACHE/KIND-KEY/NAME.npy and description.json; KEY is the sha256 of everything the arrays depend on, contents of the
data included, so that another corpus under the same path has another name. A folder is written aside and renamed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LAYOUT_VERSION = 1
KEY_DIGITS = 32
DESCRIPTION = "description.json"

Arrays = dict[str, NDArray[Any]]
logger = logging.getLogger(__name__)


def content_sha256(array: NDArray[Any]) -> str:
    """sha256 over dtype and bytes of an array."""
    digest = hashlib.sha256(array.dtype.str.encode())
    digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()


def cached_arrays(
    cache_dir: Path | None, kind: str, meaning: Mapping[str, object], build: Callable[[], Arrays]
) -> Arrays:
    """The arrays that `build` makes, from `cache_dir` when they are there, else built and put there.

    `meaning` is everything they depend on, as plain values. Any number of processes may ask at once: one of them
    builds and the others wait. A folder that is damaged is built again. Where the folder cannot be written the
    arrays stay in memory, which a warning says. None as `cache_dir` means memory only. Arrays are never empty.
    """
    if cache_dir is None:
        return build()
    text = json.dumps({"layout": LAYOUT_VERSION, "kind": kind, **meaning}, sort_keys=True, indent=1)
    name = f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]}"
    folder = cache_dir / name
    if (found := _load(folder, text)) is not None:
        return found
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _lock(cache_dir / f"{name}.lock") as held:
            if held and (found := _load(folder, text)) is not None:
                return found
            return _build_into(folder, text, build, remove_leftovers=held)
    except OSError as error:
        logger.warning("%s cannot be written (%s); the indices are kept in memory", cache_dir, error)
        return build()


def _load(folder: Path, text: str) -> Arrays | None:
    """The arrays of a folder, mapped; None when it is not there, damaged, or holds something else."""
    try:
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        if description["meaning"] != text:
            return None
        arrays: Arrays = {}
        for name, (dtype, shape) in description["arrays"].items():
            # A plain view of the mapping: np.memmap's own indexing is slower.
            arrays[name] = np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))
            if arrays[name].dtype.str != dtype or list(arrays[name].shape) != shape:
                return None
    except (OSError, ValueError, KeyError, TypeError, EOFError):
        return None
    return arrays


def _build_into(folder: Path, text: str, build: Callable[[], Arrays], *, remove_leftovers: bool) -> Arrays:
    # Leftovers of this machine only: a lock may not reach to other machines.
    prefix = f".{folder.name}.{socket.gethostname()}."
    if remove_leftovers:
        for leftover in folder.parent.glob(f"{prefix}*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)
    arrays = build()
    temporary = folder.parent / f"{prefix}{uuid.uuid4().hex}.tmp"
    try:
        temporary.mkdir()
        for name, array in arrays.items():
            with (temporary / f"{name}.npy").open("wb") as stream:
                np.save(stream, array, allow_pickle=False)
                _sync(stream.fileno())
        shapes = {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()}
        with (temporary / DESCRIPTION).open("w", encoding="utf-8") as description:
            json.dump({"meaning": text, "arrays": shapes}, description, indent=1)
            _sync(description.fileno(), description.flush)
        if folder.exists() and _load(folder, text) is None:
            shutil.rmtree(folder, ignore_errors=True)
        # Fails when another machine was first; its arrays are the same.
        with contextlib.suppress(FileExistsError, OSError):
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return _load(folder, text) or arrays


def _sync(descriptor: int, flush: Callable[[], object] = lambda: None) -> None:
    flush()
    os.fsync(descriptor)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Hold an exclusive lock, which dies with its holder. Yields False where the file system has no locks."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        held = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            held = False
        yield held
    finally:
        os.close(descriptor)
