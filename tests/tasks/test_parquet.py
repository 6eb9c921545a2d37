from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tasks import adopt
from tasks.errors import CorruptInputError, UserError
from tasks.parquet import export_parquet, read_parquet_rows
from tasks.records import BadRow, Document, DocumentWriter, read_rows
from tasks.store import ArtifactStore

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (the extra parquet)")
parquet = pytest.importorskip("pyarrow.parquet")

FINEWEB = {
    "text": "A text.", "id": "<urn:uuid:1>", "dump": "CC-MAIN-2024-10", "url": "http://example.com/",
    "date": "2024-02-21T03:44:25Z", "file_path": "s3://x", "language": "en", "language_score": 0.98, "token_count": 3,
}  # fmt: skip


def write_shard(path: Path, documents: list[Document]) -> Path:
    with DocumentWriter(path) as writer:
        for document in documents:
            writer.write(document)
    return path


def table(path: Path, rows: list[dict[str, Any]], schema: Any = None) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema), path)
    return path


def test_finewebs_columns_and_unknown_ones_travel(tmp_path: Path) -> None:
    when = datetime(2024, 2, 21, 3, 44, tzinfo=UTC)
    more = {"tags": ["a", "b"], "meta": {"n": 1}, "when": when, "blob": b"x", "none": None, "nan": float("nan")}
    path = table(tmp_path / "a.parquet", [FINEWEB | more])
    store = ArtifactStore(tmp_path / "store")
    adopted = adopt.adopt_documents(store, [tmp_path])
    ((document,),) = ([row.document for row in read_rows(shard)] for shard in store.path_of(adopted).glob("*.zst"))
    assert document is not None
    fields = {"text": document.text, "id": document.id, "url": document.url, **document.extra}
    assert fields == FINEWEB | {
        "tags": ["a", "b"], "meta": {"n": 1}, "when": "2024-02-21T03:44:00Z", "blob": "x", "nan": None,
    }  # fmt: skip
    assert path.is_file()


def test_bad_rows_have_a_reason_and_a_number(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", [{"text": "one"}, {"text": None}, {"text": "three"}])
    rows = list(read_parquet_rows(path))
    assert [(row.line_number, row.reason) for row in rows] == [(1, ""), (2, BadRow.MISSING_TEXT), (3, "")]
    assert rows[2].document is not None and rows[2].document.id == "a:3"
    numbers = table(tmp_path / "b.parquet", [{"text": 1}])
    assert [row.reason for row in read_parquet_rows(numbers)] == [BadRow.TEXT_NOT_STRING]
    store = ArtifactStore(tmp_path / "store")
    report = store.manifest_of(adopt.adopt_documents(store, [path, numbers])).report
    assert report is not None
    assert report.dropped == {"missing_text": 1, "text_not_string": 1}
    assert report.examples["missing_text"][0].startswith("a.parquet:2")


def test_bytes_that_are_no_utf_8_are_one_bad_row(tmp_path: Path) -> None:
    good, bad = pyarrow.array([b"good", b"\xff\xfe", b"fine"]), None
    del bad
    texts = pyarrow.Array.from_buffers(pyarrow.string(), 3, good.buffers())
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet")
    rows = list(read_parquet_rows(tmp_path / "a.parquet"))
    assert [row.reason for row in rows] == ["", BadRow.INVALID_UTF8, ""]
    assert [row.line_number for row in rows] == [1, 2, 3]


def test_out_and_in_again_changes_nothing(tmp_path: Path) -> None:
    documents = [
        Document(
            "1", "http://example.com/", "One \u2028 text", {"language": "en", "language_score": 1, "n": 1, "x": "s"}
        ),
        Document("2", "", "Zwei", {"language": "de", "language_score": 0.5, "n": 2.5, "ok": True, "z": None}),
        Document("3", "u", "Trois", {"title": "T", "x": 5, "list": [1, {"a": None}], "large": 2**63}),
    ]
    first = write_shard(tmp_path / "documents-00000.jsonl.zst", documents[:2])
    second = write_shard(tmp_path / "documents-00001.jsonl.zst", documents[2:])
    made = export_parquet([first, second], tmp_path / "out")
    assert [path.name for path in made] == ["documents-00000.parquet", "documents-00001.parquet"]
    schemas = [parquet.read_schema(path) for path in made]
    assert schemas[0] == schemas[1]
    assert schemas[0].names[:5] == ["text", "id", "url", "language", "language_score"]
    assert not list((tmp_path / "out").glob("*.tmp"))
    read = [row.document for path in made for row in read_parquet_rows(path)]
    assert [document.text for document in read if document] == ["One \u2028 text", "Zwei", "Trois"]
    assert [document.extra for document in read if document] == [
        {"language": "en", "language_score": 1.0, "n": 1.0, "x": "s"},
        {"language": "de", "language_score": 0.5, "n": 2.5, "ok": True},
        {"title": "T", "x": "5", "list": '[1,{"a":null}]', "large": float(2**63)},
    ]


def test_what_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path / "a.parquet", [{"body": "one"}])
    with pytest.raises(UserError, match=r"text_field = 'text': a.parquet has no such column.*Its columns: body"):
        list(read_parquet_rows(path))
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptInputError, match=r"cut.parquet: no readable Parquet file"):
        list(read_parquet_rows(cut))
    find: Callable[[str], object] = lambda name: None  # noqa: E731
    monkeypatch.setattr("tasks.parquet.find_spec", find)
    with pytest.raises(UserError, match=r"pip install 'url2lm\[parquet\]'"):
        adopt.adopt_documents(ArtifactStore(tmp_path / "store"), [path])
