from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tasks import adopt
from tasks.artifacts import DocumentShards
from tasks.records import Document, read_rows
from tasks.store import ArtifactStore

Corpus = Callable[..., DocumentShards]


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "store")


@pytest.fixture
def corpus(store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """A function that makes an artifact of rows (or of texts, whose ids and URLs are their places)."""

    def make(rows: Iterable[str | dict[str, Any]], documents_per_shard: int = 1000) -> DocumentShards:
        monkeypatch.setattr(adopt, "DOCUMENTS_PER_SHARD", documents_per_shard)
        full = [
            {"id": str(place), "url": f"http://example.com/{place}", "text": row} if isinstance(row, str) else row
            for place, row in enumerate(rows)
        ]
        path = tmp_path / f"rows-{len(list(tmp_path.iterdir()))}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in full), encoding="utf-8")
        return adopt.adopt_documents(store, [path])

    return make


@pytest.fixture
def read(store: ArtifactStore) -> Callable[[DocumentShards], list[Document]]:
    """A function that reads all documents of an artifact in order."""

    def documents(artifact: DocumentShards) -> list[Document]:
        shards = sorted(store.path_of(artifact).glob("*.zst"))
        return [row.document for shard in shards for row in read_rows(shard) if row.document is not None]

    return documents
