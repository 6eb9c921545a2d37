"""A store with documents and GPT-2's tokenizer in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tasks.artifacts import DocumentShards, Tokenizer
from tasks.configuration import StageConfig
from tasks.progress import StageReport
from tasks.records import Document, DocumentWriter
from tasks.stages import Stage
from tasks.store import ArtifactStore, StageBuild
from tasks.tokenize.config import VocabularyConfig
from tasks.tokenize.stage import LOAD_VOCABULARY

MakeDocuments = Callable[..., DocumentShards]


class GivenConfig(StageConfig):
    """Texts, in shards."""

    shards: tuple[tuple[str, ...], ...]
    """The texts of each shard."""


def write_given(build: StageBuild, config: GivenConfig) -> DocumentShards:
    number = 0
    for shard, texts in enumerate(config.shards):
        with DocumentWriter(build.directory / f"documents-{shard:05d}.jsonl.zst") as writer:
            for text in texts:
                writer.write(Document(id=f"d{number}", url=f"http://example.com/{number}", text=text))
                number += 1
    num_bytes = sum(len(text.encode()) for texts in config.shards for text in texts)
    report = StageReport(unit="documents", num_in=number, num_out=number)
    return build.publish(DocumentShards, report, num_documents=number, num_text_bytes=num_bytes)


GIVEN = Stage("given", 1, GivenConfig, (), DocumentShards, write_given, "Documents of a test")


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "store")


@pytest.fixture
def make_documents(store: ArtifactStore) -> MakeDocuments:
    def make(*shards: Sequence[str], into: ArtifactStore | None = None) -> DocumentShards:
        return (into or store).run(GIVEN, GivenConfig(shards=tuple(map(tuple, shards))), ())

    return make


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with GPT-2's tokenizer as the stage writes it."""
    store = ArtifactStore(tmp_path_factory.mktemp("gpt2"))
    return store.path_of(store.run(LOAD_VOCABULARY, VocabularyConfig(name="gpt2"), ()))


@pytest.fixture
def gpt2(store: ArtifactStore) -> Tokenizer:
    return store.run(LOAD_VOCABULARY, VocabularyConfig(name="gpt2"), ())
