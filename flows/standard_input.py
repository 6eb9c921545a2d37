"""A list that comes through the standard input (`--urls -`): kept in a file while the run that reads it lasts."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tasks.errors import UserError

STANDARD_INPUT = "-"
PIECE_BYTES = 1 << 20
# gzip (RFC 1952), xz (the .xz file format, section 2.1.1.1), zstd (RFC 8878)
_COMPRESSED = ((b"\x1f\x8b", ".gz"), (b"\xfd7zXZ\x00", ".xz"), (b"\x28\xb5\x2f\xfd", ".zst"))


@contextmanager
def standard_input_as_file(paths: Sequence[str], folder: Path) -> Iterator[tuple[str, ...]]:
    """`paths` with the name of a file in `folder` in the place of `-`; the file is gone afterwards.

    Raises UserError when `-` is given twice, or the standard input is a terminal.
    """
    if STANDARD_INPUT not in paths:
        yield tuple(paths)
        return
    if paths.count(STANDARD_INPUT) > 1:
        raise UserError("urls", STANDARD_INPUT, "the standard input can be read once", "Give - once.")
    if sys.stdin.isatty():
        raise UserError("urls", STANDARD_INPUT, "the standard input is a terminal", "Pipe a list into the command.")
    kept = _keep(sys.stdin.buffer, folder)
    try:
        yield tuple(str(kept) if path == STANDARD_INPUT else path for path in paths)
    finally:
        kept.unlink(missing_ok=True)


def _keep(stream: BinaryIO, folder: Path) -> Path:
    """The stream in a file that is named by what it holds, so that the same list is the same input."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"standard-input.{os.getpid()}.tmp"
    digest = hashlib.sha256()
    start = b""
    with temporary.open("wb") as file:
        while piece := stream.read(PIECE_BYTES):
            start = start or piece[:8]
            digest.update(piece)
            file.write(piece)
    suffix = next((suffix for magic, suffix in _COMPRESSED if start.startswith(magic)), ".txt")
    return temporary.rename(folder / f"standard-input-{digest.hexdigest()[:16]}-{os.getpid()}{suffix}")
