from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tasks import adopt
from tasks.errors import CorruptInputError, UserError
from tasks.records import read_rows
from tasks.store import ArtifactStore
from trainer.data.indexed_builder import IndexedDatasetBuilder


def test_urls_count_by_content_not_by_name_or_date(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    one, two = tmp_path / "one.txt", tmp_path / "sub" / "two.txt"
    two.parent.mkdir()
    for path in (one, two):
        path.write_text("http://example.com/a\n\nhttp://example.com/b")
    first = adopt.adopt_urls(store, [one])
    assert first.num_urls == 2 and adopt.adopt_urls(store, [str(tmp_path / "sub")]) == first
    stamp = one.stat()
    one.write_text("http://example.com/c\n\nhttp://example.com/b")
    os.utime(one, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert adopt.adopt_urls(store, [one]).fingerprint != first.fingerprint


@pytest.mark.parametrize("content", [b"", b"\n\n  \r\n", b"\xef\xbb\xbf"])
def test_an_empty_list_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "urls.txt").write_bytes(content)
    with pytest.raises(UserError, match=r"urls = 'urls.txt': the list is empty"):
        adopt.adopt_urls(ArtifactStore(tmp_path / "store"), [tmp_path / "urls.txt"])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        adopt.adopt_urls(ArtifactStore(tmp_path), [str(tmp_path / "*.txt")])


def test_documents_are_cut_into_shards_and_bad_rows_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopt, "DOCUMENTS_PER_SHARD", 2)
    lines = [json.dumps({"body": f"text {number}", "score": number}) for number in range(5)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, "{", ""]) + "\n")
    store = ArtifactStore(tmp_path / "store")
    documents = adopt.adopt_documents(store, [tmp_path / "a.jsonl"], text_field="body")
    shards = sorted(store.path_of(documents).glob("*.zst"))
    rows = [row.document for shard in shards for row in read_rows(shard)]
    assert len(shards) == 3 and [row.extra["score"] for row in rows if row] == [0, 1, 2, 3, 4]
    report = store.manifest_of(documents).report
    assert report is not None and report.dropped == {"invalid_json": 1, "blank_line": 1}


def test_no_document_at_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"tex": "a"}\n')
    with pytest.raises(UserError, match="no line holds a document with the text field 'text'"):
        adopt.adopt_documents(ArtifactStore(tmp_path / "store"), [tmp_path / "a.jsonl"])


def test_a_cut_shard_publishes_nothing(tmp_path: Path) -> None:
    import gzip

    content = gzip.compress(b"".join(b'{"text":"%d"}\n' % number for number in range(1000)))
    (tmp_path / "cut.jsonl.gz").write_bytes(content[:-12])
    store = ArtifactStore(tmp_path / "store")
    with pytest.raises(CorruptInputError, match="cut.jsonl.gz"):
        adopt.adopt_documents(store, [tmp_path / "cut.jsonl.gz"])
    assert list(store.artifacts()) == []


def write_corpus(prefix: Path, tokens: list[int]) -> None:
    with IndexedDatasetBuilder(prefix, np.dtype("<u2")) as builder:
        builder.add_document(np.array(tokens), [len(tokens)])


def test_a_corpus_must_be_whole_and_of_its_tokenizer(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    write_corpus(tmp_path / "corpus", [5, 17, 99])
    assert adopt.adopt_corpus(store, tmp_path / "corpus.bin", 100, 99).num_tokens == 3
    with pytest.raises(UserError, match="holds the token id 99, and the tokenizer knows 0 to 98"):
        adopt.adopt_corpus(store, tmp_path / "corpus", 99, 98)
    index = tmp_path / "corpus.idx"
    index.write_bytes(index.read_bytes()[:-3])
    with pytest.raises(CorruptInputError, match="bytes"):
        adopt.adopt_corpus(store, tmp_path / "corpus", 100, 99)
