"""The numbers of judged documents, kept beside the documents: measured/NAME.jsonl.zst, one row a measured document.

A row is {"line", "id", "kept", "numbers"}, in input order; a number without meaning is null. dropped/NAME.jsonl.zst has
the documents that a rule of quality dropped, when they are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from tasks.records import Document, DocumentWriter, read_lines

NUMBERS_FOLDER = "measured"
DROPPED_FOLDER = "dropped"


class NumbersWriter:
    """Writes the numbers of one shard, and of what a rule dropped the documents too when these are wanted."""

    def __init__(self, directory: Path, name: str, keep_dropped: bool) -> None:
        """`name` is the name of the shard of documents."""
        (directory / NUMBERS_FOLDER).mkdir(exist_ok=True)
        self.files = [f"{NUMBERS_FOLDER}/{name}"]
        self._numbers = DocumentWriter(directory / self.files[0])
        self._dropped: DocumentWriter | None = None
        if keep_dropped:
            (directory / DROPPED_FOLDER).mkdir(exist_ok=True)
            self.files.append(f"{DROPPED_FOLDER}/{name}")
            self._dropped = DocumentWriter(directory / self.files[1])

    def write(self, line: int, document: Document, kept: bool, numbers: Mapping[str, float]) -> None:
        """Add one measured document."""
        plain = {name: None if math.isnan(number) else number for name, number in numbers.items()}
        row: dict[str, Any] = {"line": line, "kept": kept, "numbers": plain}
        self._numbers.write(Document(document.id, document.url, "", row))
        if not kept and self._dropped is not None:
            self._dropped.write(document)

    def __enter__(self) -> NumbersWriter:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._numbers.__exit__(*raised)
        if self._dropped is not None:
            self._dropped.__exit__(*raised)


def read_numbers(path: Path) -> Iterator[tuple[int, bool, dict[str, float]]]:
    """Line in the first input, whether the document was kept, and its numbers, row by row."""
    for line in read_lines(path):
        row = orjson.loads(line)
        yield (
            row["line"],
            row["kept"],
            {name: math.nan if number is None else number for name, number in row["numbers"].items()},
        )
