"""A store with documents and GPT-2's tokenizer in it."""

from __future__ import annotations

import shutil
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
MakeStore = Callable[[str], ArtifactStore]


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


@pytest.fixture(scope="session")
def store_with_gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("gpt2") / "store"
    ArtifactStore(root).run(LOAD_VOCABULARY, VocabularyConfig(name="gpt2"), ())
    return root


@pytest.fixture
def make_store(store_with_gpt2: Path, tmp_path: Path) -> MakeStore:
    """Stores of their own by name; GPT-2's tokenizer lies in each already, because it takes a second to make."""

    def make(name: str) -> ArtifactStore:
        shutil.copytree(store_with_gpt2, tmp_path / name)
        return ArtifactStore(tmp_path / name)

    return make


@pytest.fixture
def store(make_store: MakeStore) -> ArtifactStore:
    return make_store("store")


@pytest.fixture
def make_documents(store: ArtifactStore) -> MakeDocuments:
    def make(*shards: Sequence[str], into: ArtifactStore | None = None) -> DocumentShards:
        return (into or store).run(GIVEN, GivenConfig(shards=tuple(map(tuple, shards))), ())

    return make


@pytest.fixture(scope="session")
def gpt2_folder(store_with_gpt2: Path) -> Path:
    """A folder with GPT-2's tokenizer as the stage writes it."""
    store = ArtifactStore(store_with_gpt2)
    return store.path_of(take_gpt2(store))


@pytest.fixture
def gpt2(store: ArtifactStore) -> Tokenizer:
    return take_gpt2(store)


def take_gpt2(store: ArtifactStore) -> Tokenizer:
    return store.run(LOAD_VOCABULARY, VocabularyConfig(name="gpt2"), ())
