"""Documents from and to Parquet, with FineWeb's columns (text, id, dump, url, date, file_path, language,
language_score, token_count) and any others.

Needs the package pyarrow (the extra `parquet`; 180 MB installed, so that it is no dependency of everyone).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from tasks.errors import CorruptInputError, UserError
from tasks.records import BadRow, Document, Row, read_rows, row_of

PARQUET_SUFFIX = ".parquet"
ROWS_AT_A_TIME = 1024
ROWS_PER_GROUP = 10_000
# Types of FineWeb's columns; other columns get the type of their values, or text (JSON) where these differ.
FINEWEB_TYPES = {
    "text": "string", "id": "string", "dump": "string", "url": "string", "date": "string", "file_path": "string",
    "language": "string", "language_score": "float64", "token_count": "int64",
}  # fmt: skip


def require_pyarrow(field: str) -> None:
    """Raises UserError, naming the setting, when pyarrow is not installed."""
    if find_spec("pyarrow") is None:
        raise UserError(
            field, "parquet", "Parquet files need the package pyarrow, which is not installed",
            "Run: pip install 'url2lm[parquet]' (or pip install 'pyarrow>=17').",
        )  # fmt: skip


def read_parquet_rows(path: Path, text_field: str = "text") -> Iterator[Row]:
    """Every row of a Parquet file as a Row, numbered from 1; unknown columns travel in `extra`, nulls do not.

    Memory is that of ROWS_AT_A_TIME rows. Raises UserError without pyarrow or without the text column, and
    CorruptInputError for a damaged file.
    """
    require_pyarrow("documents")
    import pyarrow
    import pyarrow.parquet

    source = path.name.split(".", 1)[0]
    line_number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if text_field not in names:
                raise UserError(
                    "text_field", text_field, f"{path.name} has no such column", f"Its columns: {', '.join(names)}"
                )
            for batch in file.iter_batches(batch_size=ROWS_AT_A_TIME):
                for value in _values(batch):
                    line_number += 1
                    if value is None:
                        yield Row(line_number, None, BadRow.INVALID_UTF8)
                    else:
                        yield _row(value, line_number, source, text_field)
    except (pyarrow.ArrowException, OSError) as error:
        raise CorruptInputError(f"{path}: no readable Parquet file, or damaged ({error})") from error


def _values(batch: Any) -> Iterator[dict[str, Any] | None]:
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        # Parquet promises UTF-8 and does not check it: take the rows one by one.
        for place in range(batch.num_rows):
            try:
                yield batch.slice(place, 1).to_pylist()[0]
            except UnicodeDecodeError:
                yield None


def _row(value: dict[str, Any], line_number: int, source: str, text_field: str) -> Row:
    plain = {name: _plain(item) for name, item in value.items() if item is not None or name == text_field}
    return row_of(plain, line_number, source, text_field)


def _plain(value: Any) -> Any:
    """A value as JSON has it: times in RFC 3339, bytes as text, no NaN."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)  # decimals, durations


def export_parquet(shards: Sequence[Path], directory: Path) -> list[Path]:
    """Write each shard of documents as a Parquet file of the same name into `directory`; returns their paths.

    All files have the same columns: text, id and url, then FineWeb's that occur, then all others by name; a first pass
    over the rows finds them. What FineWeb's type does not fit, and what has more than one type, is JSON text. A file
    appears whole or not at all. Raises UserError without pyarrow.
    """
    require_pyarrow("export")
    import pyarrow
    import pyarrow.parquet

    kinds: dict[str, set[str]] = {}
    for shard in shards:
        for document in _documents(shard):
            for name, value in document.extra.items():
                kinds.setdefault(name, set()).add(_kind(value))
    kinds |= {"text": {"string"}, "id": {"string"}, "url": {"string"}}
    order = [name for name in FINEWEB_TYPES if name in kinds]
    order += sorted(set(kinds) - set(order))
    types = {name: _type_of(name, kinds[name]) for name in order}
    schema = pyarrow.schema([(name, getattr(pyarrow, types[name])()) for name in order])
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for shard in shards:
        target = directory / (shard.name.split(".", 1)[0] + PARQUET_SUFFIX)
        temporary = target.with_name(target.name + ".tmp")
        with pyarrow.parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
            rows: list[dict[str, Any]] = []
            for document in _documents(shard):
                rows.append(_typed(document, types))
                if len(rows) == ROWS_PER_GROUP:
                    writer.write_table(pyarrow.Table.from_pylist(rows, schema))
                    rows = []
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(target)
        made.append(target)
    return made


def _documents(shard: Path) -> Iterator[Document]:
    return (row.document for row in read_rows(shard) if row.document is not None)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool_"
    if isinstance(value, int):
        return "int64" if value < 2**63 else "float64"
    return "float64" if isinstance(value, float) else "string" if isinstance(value, str) else "json"


def _type_of(name: str, kinds: set[str]) -> str:
    found = kinds - {"null"}
    if found == {"int64", "float64"}:
        found = {"float64"}
    wanted = FINEWEB_TYPES.get(name)
    if wanted == "float64" and found == {"int64"}:
        return wanted
    if len(found) != 1 or found == {"json"}:
        return "string"
    return found.pop()


def _typed(document: Document, types: dict[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {"text": document.text, "id": document.id, "url": document.url}
    for name, value in document.extra.items():
        if name in row:
            continue
        if value is not None and types[name] == "string" and not isinstance(value, str):
            value = orjson.dumps(value).decode()
        elif types[name] == "float64" and isinstance(value, int):
            value = float(value)
        row[name] = value
    return row
