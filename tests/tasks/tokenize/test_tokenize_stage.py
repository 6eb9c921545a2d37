"""Documents to .bin/.idx: order, counts, sources, resume, the same bytes for any number of workers."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.adopt import adopt_documents
from tasks.artifacts import DocumentShards, TokenizedCorpus, Tokenizer
from tasks.errors import CorruptInputError, StageError
from tasks.gpt2_vocabulary import EOD_TOKEN, gpt2_tokenizer
from tasks.progress import SilentProgress, StageReport
from tasks.records import read_lines
from tasks.store import ArtifactStore
from tasks.tokenize import encode, engines, pieces
from tasks.tokenize.config import TokenizeConfig, TokenizeResources, VocabularyConfig
from tasks.tokenize.encode import EncodeJob, append_eod, encode_piece
from tasks.tokenize.pieces import Piece, PieceFiles, join_pieces, plan_pieces
from tasks.tokenize.stage import LOAD_VOCABULARY, TOKENIZE
from trainer.data.indexed_dataset import IndexedDataset

MakeDocuments = Callable[..., DocumentShards]
MakeStore = Callable[[str], ArtifactStore]
WORDS = "the harbour master opened the gate and a small boat came in with the tide caf\u00e9 \u65e5\u672c".split()


def texts(count: int, seed: int = 1, words: int = 30) -> list[str]:
    chance = random.Random(seed)
    return [f"{index} " + " ".join(chance.choices(WORDS, k=chance.randrange(words))) for index in range(count)]


def run(
    store: ArtifactStore, documents: DocumentShards, tokenizer: Tokenizer, workers: int = 1, **settings: Any
) -> TokenizedCorpus:
    resources = TokenizeResources(workers=workers)
    return store.run(TOKENIZE, TokenizeConfig(resources=resources, **settings), [documents, tokenizer])


def documents_of(store: ArtifactStore, artifact: TokenizedCorpus) -> list[list[int]]:
    corpus = IndexedDataset(store.path_of(artifact) / "corpus")
    borders = corpus.document_indices.tolist()
    return [
        [token for sequence in corpus[start:stop] for token in sequence.tolist()]
        for start, stop in itertools.pairwise(borders)
    ]


def rows_of(store: ArtifactStore, artifact: TokenizedCorpus) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in read_lines(store.path_of(artifact) / "documents.jsonl.zst")]


def report_of(store: ArtifactStore, artifact: TokenizedCorpus) -> StageReport:
    report = store.manifest_of(artifact).report
    assert report is not None
    return report


def test_documents_come_in_order_each_with_its_end(
    store: ArtifactStore, make_documents: MakeDocuments, gpt2: Tokenizer
) -> None:
    shards = [texts(5), [], ["", "last one", ""]]
    artifact = run(store, make_documents(*shards), gpt2)
    every = [text for shard in shards for text in shard]
    wanted = [[*gpt2_tokenizer().encode(text).ids, 50256] if text else [] for text in every]
    assert documents_of(store, artifact) == wanted
    assert (artifact.num_documents, artifact.num_tokens) == (8, sum(map(len, wanted)))
    assert artifact.tokenizer_fingerprint == gpt2.fingerprint and artifact.eod_token_id == 50256
    report = report_of(store, artifact)
    assert report.num_in == report.num_out == 8
    num_text_tokens = artifact.num_tokens - 6
    assert report.counts == {
        "empty_documents": 2,
        "encoded_by_tokenizers": 8,
        "text_bytes": sum(len(text.encode()) for text in every),
        "text_tokens": num_text_tokens,
    }
    assert report.numbers["bytes_per_token"] == report.counts["text_bytes"] / num_text_tokens
    rows = rows_of(store, artifact)
    assert rows[6] == {"id": "d6", "url": "http://example.com/6", "shard": "documents-00002.jsonl.zst", "row": 2}
    assert [row["id"] for row in rows] == [f"d{number}" for number in range(8)]


def test_the_bytes_are_megatrons(store: ArtifactStore, make_documents: MakeDocuments, gpt2: Tokenizer) -> None:
    # What Megatron-LM core_v0.12 writes for these texts. Whoever has to change this changes TOKENIZE.version too.
    assert TOKENIZE.version == 1
    artifact = run(store, make_documents(["Hello world", "", "a b c"]), gpt2)
    folder = store.path_of(artifact)
    assert (folder / "corpus.bin").read_bytes() == np.array([15496, 995, 50256, 64, 275, 269, 50256], "<u2").tobytes()
    assert (folder / "corpus.idx").read_bytes() == WORKED_EXAMPLE


WORKED_EXAMPLE = bytes.fromhex(
    "4d4d49444944580000" "0100000000000000" "08" "0200000000000000" "0400000000000000"
    "0300000004000000" "0000000000000000" "0600000000000000"
    "0000000000000000" "0100000000000000" "0100000000000000" "0200000000000000"
)  # fmt: skip


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_and_pieces_do_not_change_a_byte(
    make_store: MakeStore, make_documents: MakeDocuments, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = [texts(120), texts(7, seed=2), texts(60, seed=3)]
    found = []
    for count, split_above in ((1, 1 << 20), (workers, 1500)):
        monkeypatch.setattr(pieces, "SPLIT_ABOVE_BYTES", split_above)
        store = make_store(f"store-{count}")
        documents = make_documents(*shards, into=store)
        artifact = run(store, documents, store.run(LOAD_VOCABULARY, VocabularyConfig(), ()), workers=count)
        folder = store.path_of(artifact)
        found.append([(folder / name).read_bytes() for name in ("corpus.bin", "corpus.idx")])
        found[-1].append(orjson.dumps(rows_of(store, artifact)))
        if count > 1:
            assert len(plan_pieces(sorted(store.path_of(documents).glob("*.zst")))) > len(shards)
    assert found[0] == found[1]


DECODER = gpt2_tokenizer()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=8))
def test_every_text_comes_back(gpt2_folder: Path, tmp_path_factory: pytest.TempPathFactory, given: list[str]) -> None:
    folder = tmp_path_factory.mktemp("piece")
    (folder / ".scratch").mkdir()
    lines = "".join(json.dumps({"text": text, "id": str(index)}) + "\n" for index, text in enumerate(given))
    (folder / "documents-0.jsonl").write_text(lines)
    job = EncodeJob(
        Piece("p", folder / "documents-0.jsonl", 0, None), gpt2_folder / "tokenizer.json",
        "tokenizers", "text", 50256, "<u2", 0.0,
    )  # fmt: skip
    encode_piece(job, folder)
    num_documents, _ = join_pieces(folder, [PieceFiles.of("p")], "<u2")
    corpus = IndexedDataset(folder / "corpus")
    found = [DECODER.decode(corpus[index][:-1].tolist(), skip_special_tokens=False) for index in range(num_documents)]
    assert found == given
    assert all(corpus[index].tolist().count(50256) == 1 for index in range(num_documents))


@pytest.mark.parametrize("split_above", [60, 200, 700, 5000])
def test_pieces_cover_every_line_once(tmp_path: Path, split_above: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "SPLIT_ABOVE_BYTES", split_above)
    shards = []
    for number, (count, end) in enumerate(((40, "\n"), (1, ""), (0, ""), (17, ""))):
        path = tmp_path / f"documents-{number}.jsonl"
        path.write_text("\n".join(f'{{"text": "{number} {line}"}}' for line in range(count)) + end)
        shards.append(path)
    found = [
        document.text
        for piece in plan_pieces(shards)
        for _, document in encode.piece_documents(piece, StageReport(unit="documents"))
    ]
    wanted = [f"{number} {line}" for number, count in ((0, 40), (1, 1), (3, 17)) for line in range(count)]
    assert found == wanted


def test_lines_that_are_no_documents_are_counted_and_the_map_still_points_right(
    store: ArtifactStore, tmp_path: Path, gpt2: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = tmp_path / "documents-00000.jsonl"
    shard.write_text(
        '{"text": "one", "id": "a"}\n\n{"text": 5}\n{"txt": "x"}\nnonsense\n[1]\n{"text": "two", "id": "b"}\n'
    )
    (tmp_path / ".scratch").mkdir()
    job = EncodeJob(
        Piece("p", shard, 0, None), store.path_of(gpt2) / "tokenizer.json", "tokenizers", "text", 50256, "<u2", 0.0
    )
    _, report = encode_piece(job, tmp_path)
    report.check_balance()
    assert (report.num_in, report.num_out) == (7, 2)
    assert report.dropped == {
        "blank_line": 1, "text_not_string": 1, "missing_text": 1, "invalid_json": 1, "not_an_object": 1,
    }  # fmt: skip
    join_pieces(tmp_path, [PieceFiles.of("p")], "<u2")
    rows = [orjson.loads(line) for line in read_lines(tmp_path / "documents.jsonl.zst")]
    assert [(row["id"], row["row"]) for row in rows] == [("a", 1), ("b", 7)]


def test_half_surrogates_are_replaced_and_counted(store: ArtifactStore, tmp_path: Path, gpt2: Tokenizer) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a \\ud800 b"}\n{"text": "\\ud83d\\ude00"}\n')
    artifact = run(store, adopt_documents(store, [tmp_path / "in.jsonl"]), gpt2)
    wanted = [[*gpt2_tokenizer().encode(text).ids, 50256] for text in ("a \ufffd b", "\U0001f600")]
    assert documents_of(store, artifact) == wanted
    # A shard of somebody else's making may still hold one.
    (tmp_path / ".scratch").mkdir()
    job = EncodeJob(
        Piece("p", tmp_path / "in.jsonl", 0, None), store.path_of(gpt2) / "tokenizer.json",
        "tokenizers", "text", 50256, "<u2", 0.0,
    )  # fmt: skip
    _, report = encode_piece(job, tmp_path)
    assert report.counts["lines_repaired"] == 1


@pytest.mark.parametrize(("special_tokens", "num_ends"), [("text", 2), ("parse", 4)])
def test_a_marker_in_the_text(
    store: ArtifactStore, make_documents: MakeDocuments, gpt2: Tokenizer, special_tokens: str, num_ends: int
) -> None:
    artifact = run(
        store, make_documents([f"a {EOD_TOKEN} b {EOD_TOKEN}", "plain"]), gpt2, special_tokens=special_tokens
    )
    found = [token for document in documents_of(store, artifact) for token in document]
    assert found.count(50256) == num_ends and artifact.num_documents == 2


def test_ends_may_be_left_out(store: ArtifactStore, make_documents: MakeDocuments, gpt2: Tokenizer) -> None:
    artifact = run(store, make_documents(["Hello world", ""]), gpt2, append_eod=False)
    assert documents_of(store, artifact) == [[15496, 995], []]


@given(st.lists(st.lists(st.integers(0, 40000), max_size=5), max_size=12))
def test_ends_follow_every_text_that_has_tokens(given: list[list[int]]) -> None:
    ids = np.array([token for text in given for token in text], dtype=np.uint32)
    lengths = np.array([len(text) for text in given], dtype=np.int64)
    wanted = [token for text in given for token in ([*text, 50256] if text else [])]
    found = append_eod(ids, lengths, 50256, "<u2")
    assert found.tolist() == wanted and found.dtype == np.uint16


def test_a_large_vocabulary_is_stored_wide(tmp_path: Path, make_documents: MakeDocuments, store: ArtifactStore) -> None:
    vocabulary = {f"w{number}": number for number in range(70_000)} | {"</s>": 70_000}
    wide = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w0"))
    wide.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    wide.save(str(tmp_path / "tokenizer.json"))
    tokenizer = store.run(LOAD_VOCABULARY, VocabularyConfig(name="huggingface", path=tmp_path, eod_token="</s>"), ())
    artifact = run(store, make_documents(["w1 w69999 w65536"]), tokenizer)
    assert documents_of(store, artifact) == [[1, 69999, 65536, 70000]]
    assert IndexedDataset(store.path_of(artifact) / "corpus").dtype == np.int32


def test_nothing_to_publish(store: ArtifactStore, make_documents: MakeDocuments, gpt2: Tokenizer) -> None:
    with pytest.raises(StageError, match="there are no documents"):
        run(store, make_documents([]), gpt2)
    with pytest.raises(StageError, match="no document has a token"):
        run(store, make_documents(["", ""]), gpt2)


def test_finished_pieces_are_kept_over_a_crash(
    store: ArtifactStore,
    make_store: MakeStore,
    make_documents: MakeDocuments,
    gpt2: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents = make_documents(*[texts(20, seed=seed) for seed in range(4)])
    undisturbed = make_store("other")
    wanted = run(
        undisturbed,
        make_documents(*[texts(20, seed=seed) for seed in range(4)], into=undisturbed),
        undisturbed.run(LOAD_VOCABULARY, VocabularyConfig(), ()),
    )

    class PowerCut(BaseException):
        pass

    class CutAfterTwo(SilentProgress):
        done = 0

        def advance(self, amount: int = 1) -> None:
            self.done += amount
            if self.done == 2:
                raise PowerCut

    config = TokenizeConfig(resources=TokenizeResources(workers=1))
    with pytest.raises(PowerCut):
        store.run(TOKENIZE, config, [documents, gpt2], CutAfterTwo())
    (work,) = (store.root / ".work").glob("tokenize-*")
    before = {path.name: path.stat().st_mtime_ns for path in work.glob(".scratch/piece-*")}
    assert len(before) == 6 and not (work / "corpus.idx").exists()
    # Half a piece of the third shard, as a kill in its middle leaves it.
    (work / ".scratch" / "piece-000002-000.bin").write_bytes(b"half")
    worked_on: list[str] = []
    original = encode.piece_documents

    def watching(piece: Piece, report: StageReport) -> Any:
        worked_on.append(piece.name)
        return original(piece, report)

    monkeypatch.setattr(encode, "piece_documents", watching)
    artifact = store.run(TOKENIZE, config, [documents, gpt2])
    assert worked_on == ["piece-000002-000", "piece-000003-000"]
    assert artifact.fingerprint == wanted.fingerprint
    assert not work.exists() and not list(store.path_of(artifact).glob(".s*"))


def test_a_shard_cut_short_stops_the_stage(
    store: ArtifactStore, make_documents: MakeDocuments, gpt2: Tokenizer, tmp_path: Path
) -> None:
    documents = make_documents(texts(200))
    shard = store.path_of(documents) / "documents-00000.jsonl.zst"
    cut = tmp_path / "documents-00000.jsonl.zst"
    cut.write_bytes(shard.read_bytes()[:-50])
    (tmp_path / ".scratch").mkdir()
    job = EncodeJob(
        Piece("p", cut, 0, None), store.path_of(gpt2) / "tokenizer.json", "tokenizers", "text", 50256, "<u2", 0.0
    )
    with pytest.raises(CorruptInputError, match="documents-00000.jsonl.zst: the compressed file is damaged"):
        encode_piece(job, tmp_path)


def test_another_engine_is_checked_while_it_works(
    store: ArtifactStore,
    make_documents: MakeDocuments,
    gpt2: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    path = store.path_of(gpt2) / "tokenizer.json"
    right = engines._open_tokenizers(path, "text")

    def wrong(given: Any) -> Any:
        ids, lengths = right(given)
        ids = ids.copy()
        ids[-1] += 1
        return ids, lengths

    documents = make_documents(texts(50))
    (tmp_path / ".scratch").mkdir()
    for engine, fails in ((right, False), (wrong, True)):
        monkeypatch.setattr(engines, "_open_fastokens", lambda *args, engine=engine: engine)
        engines._open.cache_clear()
        shard = store.path_of(documents) / "documents-00000.jsonl.zst"
        job = EncodeJob(Piece("p", shard, 0, None), path, "fastokens", "text", 50256, "<u2", 1.0)
        if not fails:
            assert encode_piece(job, tmp_path)[1].counts["checked_by_reference"] == 50
            continue
        with pytest.raises(StageError, match="fastokens gives other tokens than tokenizers for document d49"):
            encode_piece(job, tmp_path)
        saved = orjson.loads((tmp_path / ".scratch" / "difference-p.json").read_bytes())
        assert saved["document"]["id"] == "d49" and saved["found"] != saved["wanted"]
    engines._open.cache_clear()


def test_a_long_document_is_encoded_whole(gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(texts(50))
    (tmp_path / "documents-0.jsonl").write_text(json.dumps({"text": text}) + "\n")
    (tmp_path / ".scratch").mkdir()
    monkeypatch.setattr(encode, "BATCH_CHARACTERS", 100)
    job = EncodeJob(
        Piece("p", tmp_path / "documents-0.jsonl", 0, None), gpt2_folder / "tokenizer.json",
        "tokenizers", "text", None, "<u2", 0.0,
    )  # fmt: skip
    encode_piece(job, tmp_path)
    found = np.fromfile(tmp_path / PieceFiles.of("p").tokens, "<u2").tolist()
    assert found == gpt2_tokenizer().encode(text).ids
