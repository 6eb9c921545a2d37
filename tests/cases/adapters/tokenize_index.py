"""Cases of tokens, index files and samples. An expectation that no line here looks at fails the case."""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from tasks.adopt import adopt_documents
from tasks.artifacts import DocumentShards, TokenizedCorpus, Tokenizer
from tasks.configuration import StageConfig
from tasks.errors import StageError, Url2lmError
from tasks.progress import SilentProgress, StageReport
from tasks.records import Document, DocumentWriter
from tasks.stages import Stage
from tasks.store import ArtifactStore, StageBuild
from tasks.tokenize import encode as encoding
from tasks.tokenize.config import TokenizeConfig, TokenizeResources, VocabularyConfig
from tasks.tokenize.engines import open_engine
from tasks.tokenize.pieces import Piece, PieceFiles
from tasks.tokenize.stage import LOAD_VOCABULARY, TOKENIZE
from trainer.data.gpt_dataset import GPTDataset, read_sample
from trainer.data.indexed_dataset import (
    CorpusError,
    IndexedDataset,
    IndexedDatasetBuilder,
    best_dtype,
    sequence_pointers,
    write_index,
)
from trainer.data.sample_indices import SampleIndices, build_sample_index
from trainer.data.splits import SPLIT_NAMES, split_bounds

Case = dict[str, Any]
# Worker processes inherit this path; with the folder tests/ on it, tests/tasks would pass for the package tasks.
ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))
NO_DOCUMENTS = "stage fails: no documents"
WORDS = "the harbour master opened the gate and a small boat came in with the tide from 12 miles out".split()


def looked_at(expect: dict[str, Any], *names: str) -> None:
    unknown = set(expect) - set(names)
    assert not unknown, f"no check for {sorted(unknown)}"


# ---------------------------------------------------------------------------------------- documents and stages


class GivenConfig(StageConfig):
    """Texts of the case, in so many shards."""

    texts: tuple[str, ...]
    """One document each."""
    num_shards: int = 1
    """Files to spread them over."""
    cut_last_shard: bool = False
    """Leave out the end of the last file, as a full disk would."""


def write_given(build: StageBuild, config: GivenConfig) -> DocumentShards:
    per_shard = -(-len(config.texts) // config.num_shards) or 1
    for number in range(config.num_shards):
        path = build.directory / f"documents-{number:05d}.jsonl.zst"
        first = number * per_shard
        with DocumentWriter(path) as writer:
            for index, text in enumerate(config.texts[first : first + per_shard], start=first):
                writer.write(Document(id=f"d{index}", url=f"http://example.com/{index}", text=text))
        if config.cut_last_shard and number == config.num_shards - 1:
            os.truncate(path, path.stat().st_size // 2)
    report = StageReport(unit="documents", num_in=len(config.texts), num_out=len(config.texts))
    num_bytes = sum(len(text.encode()) for text in config.texts)
    return build.publish(DocumentShards, report, num_documents=len(config.texts), num_text_bytes=num_bytes)


GIVEN = Stage("given", 1, GivenConfig, (), DocumentShards, write_given, "Documents of a case")


def gpt2(store: ArtifactStore) -> Tokenizer:
    return store.run(LOAD_VOCABULARY, VocabularyConfig(name="gpt2"), ())


def adopt_texts(store: ArtifactStore, folder: Path, texts: Sequence[str]) -> DocumentShards:
    path = folder / "documents.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return adopt_documents(store, [path])


def tokenize(store: ArtifactStore, documents: DocumentShards, workers: int = 1, **settings: Any) -> TokenizedCorpus:
    config = TokenizeConfig(resources=TokenizeResources(workers=workers), **settings)
    return store.run(TOKENIZE, config, [documents, gpt2(store)])


def opened(store: ArtifactStore, corpus: TokenizedCorpus) -> IndexedDataset:
    return IndexedDataset(store.path_of(corpus) / "corpus")


def document_tokens(corpus: IndexedDataset) -> list[list[int]]:
    borders = corpus.document_indices.tolist()
    return [
        [token for sequence in corpus[first:last] for token in sequence.tolist()]
        for first, last in itertools.pairwise(borders)
    ]


def generated_texts(description: str) -> list[str]:
    """ "500 documents, lengths 1 to 2000 words" as texts."""
    numbers = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", description)]
    count, low, high = (*numbers, 1, 40)[:3] if len(numbers) < 3 else numbers[:3]
    chance = random.Random(count)
    return [f"{index} " + " ".join(chance.choices(WORDS, k=chance.randint(low, high))) for index in range(count)]


# ------------------------------------------------------------------------------------------------------ adapters


def adapter_encode(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "ids", "decode_equals_input")
    store = ArtifactStore(tmp_path)
    path = store.path_of(gpt2(store)) / "tokenizer.json"
    ids, lengths = open_engine("tokenizers", path, given.get("special_tokens", "text"))(given["texts"])
    found = [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]
    if "ids" in expect:
        assert found == expect["ids"]
    if "decode_equals_input" in expect:
        decoder = tokenizers.Tokenizer.from_file(str(path))
        texts = [decoder.decode(tokens, skip_special_tokens=False) for tokens in found]
        assert (texts == given["texts"]) == expect["decode_equals_input"]


def adapter_build_bin(case: Case, tmp_path: Path) -> None:
    given = case["input"]
    if "kill" in given:
        _killed(given, case["expect"], tmp_path)
    elif "workers" in given:
        _any_workers(given, case["expect"], tmp_path)
    elif "token_documents" in given:
        _from_tokens(given, case["expect"], tmp_path)
    else:
        _from_texts(given, case["expect"], tmp_path)


def _from_tokens(given: Case, expect: Case, tmp_path: Path) -> None:
    looked_at(expect, "bin_hex", "idx_hex", "idx_bytes")
    dtype = np.dtype(given["dtype"]) if "dtype" in given else best_dtype(given.get("vocab_size"))
    with IndexedDatasetBuilder(tmp_path / "corpus", dtype) as builder:
        builder.add_documents(given["token_documents"])
    index = (tmp_path / "corpus.idx").read_bytes()
    assert (tmp_path / "corpus.bin").read_bytes().hex() == expect.get(
        "bin_hex", (tmp_path / "corpus.bin").read_bytes().hex()
    )
    assert index.hex() == expect.get("idx_hex", index.hex())
    assert len(index) == expect.get("idx_bytes", len(index))
    assert document_tokens(IndexedDataset(tmp_path / "corpus")) == given["token_documents"]


def _from_texts(given: Case, expect: Case, tmp_path: Path) -> None:
    looked_at(expect, "tokens", "eod_count", "one_of", "trainer", "documents")
    store = ArtifactStore(tmp_path)
    if not given["texts"]:
        _without_documents(store, expect, tmp_path)
        return
    settings = {name: given[name] for name in ("append_eod", "special_tokens") if name in given}
    artifact = tokenize(store, adopt_texts(store, tmp_path, given["texts"]), **settings)
    corpus = opened(store, artifact)
    tokens = [token for document in document_tokens(corpus) for token in document]
    assert tokens == expect.get("tokens", tokens)
    if "eod_count" in expect:
        assert tokens.count(artifact.eod_token_id) == expect["eod_count"]
    assert len(corpus.document_indices) - 1 == expect.get("documents", len(given["texts"]))


def _without_documents(store: ArtifactStore, expect: Case, tmp_path: Path) -> None:
    documents = store.run(GIVEN, GivenConfig(texts=()), ())
    try:
        tokenize(store, documents)
    except StageError as error:
        assert "no documents" in str(error)
        outcome = NO_DOCUMENTS
    else:
        raise AssertionError("a corpus without documents was published")
    assert outcome in expect["one_of"]
    # Somebody else's empty pair: valid files, which the trainer has no use for.
    with IndexedDatasetBuilder(tmp_path / "empty", np.uint16):
        pass
    empty = IndexedDataset(tmp_path / "empty")
    assert len(empty) == 0 and (tmp_path / "empty.idx").stat().st_size == 42
    try:
        GPTDataset(empty, split="train", split_weights="1", seq_length=4, num_samples=8, seed=1)
    except CorpusError as error:
        assert "no tokens" in str(error) and str(tmp_path / "empty") in str(error)
    else:
        raise AssertionError("the trainer took an empty corpus")


RUN_TOKENIZE = """
import sys
from pathlib import Path
from tasks.store import ArtifactStore
from tasks.tokenize.config import TokenizeConfig, TokenizeResources
from tasks.tokenize.stage import TOKENIZE
store = ArtifactStore(Path(sys.argv[1]))
inputs = [store.load(Path(path)) for path in sys.argv[2:]]
store.run(TOKENIZE, TokenizeConfig(resources=TokenizeResources(workers=1)), inputs)
"""


def _killed(given: Case, expect: Case, tmp_path: Path) -> None:
    looked_at(expect, "open_after_kill", "after_rerun", "no_leftover_temporary_files")
    num_documents = int(re.findall(r"\d[\d,]*", given["kill"])[-1].replace(",", ""))
    number = getattr(signal, re.findall(r"SIG[A-Z]+", given["kill"])[0])
    texts = tuple(generated_texts(f"{num_documents} documents, lengths 1 to 40 words"))
    num_shards = 10
    whole = ArtifactStore(tmp_path / "whole")
    wanted = tokenize(whole, whole.run(GIVEN, GivenConfig(texts=texts, num_shards=num_shards), ()))

    store = ArtifactStore(tmp_path / "killed")
    documents = store.run(GIVEN, GivenConfig(texts=texts, num_shards=num_shards), ())
    inputs = [str(store.path_of(artifact)) for artifact in (documents, gpt2(store))]
    command = [sys.executable, "-c", RUN_TOKENIZE, str(store.root), *inputs]
    child = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)
    try:
        markers: list[Path] = []
        limit = time.monotonic() + 60
        while len(markers) < num_shards // 2:
            assert child.poll() is None and time.monotonic() < limit, "it was over before half of it was done"
            markers = list((store.root / ".work").glob("tokenize-*/.shards/*.json"))
            time.sleep(0.002)
    finally:
        child.send_signal(number)
        child.wait()
    assert not list((store.root / "artifacts").glob("tokenize/*"))
    work = markers[0].parents[1]
    if "open_after_kill" in expect:
        try:
            IndexedDataset(work / "corpus")
        except CorpusError as error:
            assert "no such file" in str(error)
        else:
            raise AssertionError("half a corpus could be opened")
    before = {path.name: path.stat().st_mtime_ns for path in markers}
    config = TokenizeConfig(resources=TokenizeResources(workers=1))
    stamps: dict[str, int] = {}

    class Watching(SilentProgress):
        def advance(self, amount: int = 1) -> None:
            stamps.update({path.name: path.stat().st_mtime_ns for path in work.glob(".shards/*.json")})

    artifact = store.run(TOKENIZE, config, [documents, gpt2(store)], Watching())
    assert before.items() <= stamps.items(), "a finished shard was worked on again"
    assert artifact.fingerprint == wanted.fingerprint
    left = [path for path in store.root.rglob("*") if path.suffix == ".tmp" or path.name in (".scratch", ".shards")]
    assert not left and not list((store.root / ".work").iterdir())


def _any_workers(given: Case, expect: Case, tmp_path: Path) -> None:
    looked_at(expect, "bin_and_idx_identical", "document_order", "documents", "a_worker_error_fails_the_stage")
    texts = tuple(generated_texts(given["generate"]))
    prints = set()
    for workers in given["workers"]:
        store = ArtifactStore(tmp_path / str(workers))
        artifact = tokenize(store, store.run(GIVEN, GivenConfig(texts=texts, num_shards=4), ()), workers)
        prints.add(artifact.fingerprint)
        assert artifact.num_documents == expect.get("documents", len(texts))
    assert (len(prints) == 1) == expect.get("bin_and_idx_identical", True)
    if "document_order" in expect:
        path = store.path_of(gpt2(store)) / "tokenizer.json"
        decoder = tokenizers.Tokenizer.from_file(str(path))
        found = [decoder.decode(tokens[:-1]) for tokens in document_tokens(opened(store, artifact))]
        assert found == list(texts)
    if expect.get("a_worker_error_fails_the_stage"):
        store = ArtifactStore(tmp_path / "cut")
        documents = store.run(GIVEN, GivenConfig(texts=texts[:40], num_shards=4, cut_last_shard=True), ())
        try:
            tokenize(store, documents, workers=2)
        except Url2lmError as error:
            assert "documents-00003" in str(error)
        else:
            raise AssertionError("a shard cut short was taken for a whole one")
        assert not list((store.root / "artifacts").glob("tokenize/*"))


def adapter_offsets(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "pointers")
    sizes = np.array(given["sizes"], dtype=np.int32)
    assert sequence_pointers(sizes, given["item_bytes"]).tolist() == expect["pointers"]
    dtype = {1: np.uint8, 2: np.uint16, 4: np.int32, 8: np.int64}[given["item_bytes"]]
    write_index(tmp_path / "corpus.idx", sizes, None, dtype)
    stored = np.frombuffer((tmp_path / "corpus.idx").read_bytes(), "<i8", len(sizes), 34 + 4 * len(sizes))
    assert stored.tolist() == expect["pointers"]


def adapter_index_sizes(case: Case, tmp_path: Path) -> None:
    expect = case["expect"]
    looked_at(expect, "one_of", "never", "sizes")
    sizes = case["input"]["sizes"]
    path = tmp_path / "corpus.idx"
    try:
        write_index(path, np.array(sizes, dtype=np.int64), None, np.uint16)
    except CorpusError as error:
        bad = next(index for index, size in enumerate(sizes) if not 0 <= size < 2**31)
        assert f"document {bad} " in str(error) and f"{sizes[bad]:,}" in str(error)
        outcome = "clear error that names the document"
        assert not path.exists()
    else:
        stored = np.frombuffer(path.read_bytes(), "<i4", len(sizes), 34)
        assert stored.tolist() == sizes, "negative length"
        outcome = "accepted"
    assert outcome in expect.get("one_of", ["accepted"])


def adapter_sample_index(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "sample_count", "samples", "index")
    assert not given.get("shuffle", False), "only the order of the file is checked here"
    with IndexedDatasetBuilder(tmp_path / "corpus", np.int32) as builder:
        builder.add_documents(given["token_documents"])
    corpus = IndexedDataset(tmp_path / "corpus")
    length, num_epochs = given["sequence_length"], given.get("epochs", 1)
    documents = np.tile(np.arange(len(corpus), dtype=np.int32), num_epochs)
    count = max(0, (num_epochs * corpus.num_tokens - 1) // length)
    index = build_sample_index(corpus.sequence_lengths, documents, length, count)
    indices = SampleIndices(documents, index, np.arange(count, dtype=np.uint32))
    samples = [read_sample(corpus, indices, row, length).tolist() for row in range(count)]
    if num_epochs == 1:
        dataset = GPTDataset(
            corpus, split="train", split_weights="1", seq_length=length, num_samples=None, seed=1, shuffle=False
        )
        assert [dataset[row].tolist() for row in range(len(dataset))] == samples
    assert count == expect.get("sample_count", count)
    assert samples == expect.get("samples", samples)
    assert index.tolist() == expect.get("index", index.tolist())


def adapter_split(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "ranges", "empty_split")
    for asked, ranges in zip(given["cases"], expect["ranges"], strict=True):
        bounds = split_bounds(asked["split"], asked["documents"])
        assert [list(bounds[name]) for name in SPLIT_NAMES] == ranges, asked
    if "empty_split" in expect:
        with IndexedDatasetBuilder(tmp_path / "corpus", np.uint16) as builder:
            builder.add_document(np.arange(100))
        corpus = IndexedDataset(tmp_path / "corpus")
        messages: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("trainer.data").addHandler(handler)
        try:
            lengths = [
                len(GPTDataset(corpus, split=name, split_weights="969,30,1", seq_length=9, num_samples=20, seed=1))
                for name in SPLIT_NAMES
            ]
        finally:
            logging.getLogger("trainer.data").removeHandler(handler)
        assert lengths[0] >= 20 and lengths[1:] == [0, 0]
        assert len(messages) == 2 and "'valid'" in messages[0] and "'test'" in messages[1]


BUILD_INDEX = """
import hashlib, sys
from pathlib import Path
from trainer.data.gpt_dataset import GPTDataset
from trainer.data.indexed_dataset import IndexedDataset
corpus = IndexedDataset(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
dataset = GPTDataset(corpus, split="train", split_weights="1", seq_length=16, num_samples=200_000, seed=1,
                     cache_dir=Path(sys.argv[2]))
arrays = (dataset.indices.document_index, dataset.indices.sample_index, dataset.indices.shuffle_index)
print(hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest())
"""


def adapter_rebuild_index(case: Case, tmp_path: Path) -> None:
    expect = case["expect"]
    looked_at(expect, "uses_data", "concurrent_build")
    cache = tmp_path / "cache"
    chance = np.random.default_rng(5)

    def build(lengths: Sequence[int]) -> IndexedDataset:
        with IndexedDatasetBuilder(tmp_path / "corpus", np.uint16) as builder:
            builder.add_documents([chance.integers(0, 50000, length) for length in lengths])
        return IndexedDataset(tmp_path / "corpus")

    def samples(corpus: IndexedDataset, cache_dir: Path | None) -> list[list[int]]:
        dataset = GPTDataset(
            corpus, split="train", split_weights="1", seq_length=16, num_samples=300, seed=1, cache_dir=cache_dir
        )
        return [dataset[index].tolist() for index in range(len(dataset))]

    first = [30, 50, 20, 40] * 20
    samples(build(first), cache)
    # The same lengths with other tokens, then as many documents and tokens with other lengths: no file size changes.
    for lengths in (first, first[::-1], [35] * 80):
        sizes = [(tmp_path / f"corpus.{suffix}").stat().st_size for suffix in ("bin", "idx")]
        corpus = build(lengths)
        assert sizes == [(tmp_path / f"corpus.{suffix}").stat().st_size for suffix in ("bin", "idx")]
        assert samples(corpus, cache) == samples(corpus, None), "the order of other data was used"
    if "concurrent_build" in expect:
        build(first)
        command = [sys.executable, "-c", BUILD_INDEX, str(tmp_path / "corpus"), str(tmp_path / "together")]
        children = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
            for _ in range(2)
        ]
        for child in children:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        found = [child.communicate()[0].strip() for child in children]
        assert [child.returncode for child in children] == [0, 0]
        assert found[0] and found[0] == found[1]
        assert not list((tmp_path / "together").glob("**/*.tmp"))


def adapter_encode_chunked(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "equals_encoding_of_whole_text")
    text, border = given["text"], given["chunk_border_after"]
    assert text.startswith(border)
    store = ArtifactStore(tmp_path)
    path = store.path_of(gpt2(store)) / "tokenizer.json"
    encode = open_engine("tokenizers", path, "text")
    whole = encode([text])[0].tolist()
    documents = store.run(GIVEN, GivenConfig(texts=(text,)), ())
    shard = store.path_of(documents) / "documents-00000.jsonl.zst"
    job = encoding.EncodeJob(
        piece=Piece("piece", shard, 0, None),
        tokenizer_path=path,
        engine="tokenizers",
        special_tokens="text",
        eod_token_id=None,
        dtype="<u2",
        checked_fraction=0.0,
    )
    (tmp_path / "work" / ".scratch").mkdir(parents=True)
    batch_characters = encoding.BATCH_CHARACTERS
    encoding.BATCH_CHARACTERS = len(border)  # whoever cuts texts at the size of a batch cuts here
    try:
        encoding.encode_piece(job, tmp_path / "work")
    finally:
        encoding.BATCH_CHARACTERS = batch_characters
    tokens = np.fromfile(tmp_path / "work" / PieceFiles.of("piece").tokens, "<u2").tolist()
    assert (tokens == whole) == expect["equals_encoding_of_whole_text"]
    pieces = encode([border, text[len(border) :]])[0].tolist()
    assert encode([text + text])[0].tolist() != pieces, "the check can tell"


ADAPTERS = {
    "encode": adapter_encode,
    "build_bin": adapter_build_bin,
    "offsets": adapter_offsets,
    "index_sizes": adapter_index_sizes,
    "sample_index": adapter_sample_index,
    "split": adapter_split,
    "rebuild_index": adapter_rebuild_index,
    "encode_chunked": adapter_encode_chunked,
}
