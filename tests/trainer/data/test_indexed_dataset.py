"""The .bin/.idx pair: bytes, round trips, damage."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainer.data import index_format
from trainer.data.indexed_dataset import (
    CorpusError,
    IndexedDataset,
    IndexedDatasetBuilder,
    best_dtype,
    merge_corpora,
    sequence_pointers,
    write_index,
)

DOCUMENTS = [[15496, 995, 50256], [], [64, 275, 269, 50256]]
quick = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def build(prefix: Path, documents: list[list[int]], dtype: object = "u2") -> IndexedDataset:
    with IndexedDatasetBuilder(prefix, np.dtype(dtype)) as builder:  # type: ignore[call-overload]
        builder.add_documents(documents)
    return IndexedDataset(prefix)


def documents_of(corpus: IndexedDataset) -> list[list[int]]:
    borders = corpus.document_indices.tolist()
    return [
        [token for sequence in corpus[borders[k] : borders[k + 1]] for token in sequence.tolist()]
        for k in range(len(borders) - 1)
    ]


def test_the_worked_example_byte_for_byte(tmp_path: Path) -> None:
    # "Hello world", "", "a b c" with end-of-document tokens, as Megatron-LM core_v0.12 writes them: 90 bytes of index.
    corpus = build(tmp_path / "c", DOCUMENTS)
    index = (tmp_path / "c.idx").read_bytes()
    assert len(index) == 90
    assert index[:34].hex() == "4d4d494449445800000100000000000000080200000000000000" + "0400000000000000"
    assert corpus.sequence_lengths.tolist() == [3, 4]
    assert corpus.sequence_pointers.tolist() == [0, 6]
    assert corpus.document_indices.tolist() == [0, 1, 1, 2]
    assert (tmp_path / "c.bin").read_bytes() == np.array([*DOCUMENTS[0], *DOCUMENTS[2]], "<u2").tobytes()


@quick
@given(
    documents=st.lists(st.lists(st.integers(0, 65535), max_size=20), max_size=30),
    dtype=st.sampled_from(["u2", "i4", "i8"]),
)
def test_what_is_written_is_read(tmp_path: Path, documents: list[list[int]], dtype: str) -> None:
    corpus = build(tmp_path / "c", documents, dtype)
    assert documents_of(corpus) == documents
    assert corpus.num_tokens == sum(map(len, documents))
    assert corpus.dtype == np.dtype(dtype)


@quick
@given(
    parts=st.lists(st.lists(st.lists(st.integers(0, 65535), max_size=5), max_size=6), min_size=1, max_size=4),
)
def test_merging_is_concatenating(tmp_path: Path, parts: list[list[list[int]]]) -> None:
    for number, documents in enumerate(parts):
        build(tmp_path / str(number), documents)
    merge_corpora([tmp_path / str(number) for number in range(len(parts))], tmp_path / "merged")
    whole = build(tmp_path / "whole", [document for documents in parts for document in documents])
    for suffix in ("bin", "idx"):
        assert (tmp_path / f"merged.{suffix}").read_bytes() == (tmp_path / f"whole.{suffix}").read_bytes()
    assert documents_of(whole) == [document for documents in parts for document in documents]


def test_an_index_written_in_chunks_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, borders = [3, 0, 5, 7, 2], [0, 0, 2, 3, 5]
    write_index(tmp_path / "a.idx", sizes, borders, "u2")
    monkeypatch.setattr(index_format, "CHUNK_ITEMS", 2)
    write_index(tmp_path / "b.idx", sizes, borders, "u2")
    assert (tmp_path / "a.idx").read_bytes() == (tmp_path / "b.idx").read_bytes()
    (tmp_path / "b.bin").write_bytes(bytes(2 * sum(sizes)))
    assert IndexedDataset(tmp_path / "b").sequence_pointers.tolist() == [0, 6, 6, 16, 30]


def test_access_is_by_sequence_slice_and_part(tmp_path: Path) -> None:
    corpus = build(tmp_path / "c", DOCUMENTS)
    assert len(corpus) == 2
    assert corpus[-1].tolist() == DOCUMENTS[2]
    assert [part.tolist() for part in corpus[0:2]] == [DOCUMENTS[0], DOCUMENTS[2]]
    assert corpus.get(1, 1, 2).tolist() == [275, 269]
    assert corpus.get(1, 2).tolist() == [269, 50256]
    assert corpus.get(1, 4).tolist() == []
    assert not corpus[0].flags.writeable and corpus[0].base is not None
    with pytest.raises(IndexError, match="sequence 2 of 2"):
        corpus[2]
    with pytest.raises(IndexError, match=r"tokens \[1, 5\) of sequence 1, which has 4 tokens"):
        corpus.get(1, 1, 4)
    with pytest.raises(ValueError, match="step 1, not 2"):
        corpus[0:2:2]


def test_a_dataset_pickles_as_its_prefix(tmp_path: Path) -> None:
    corpus = build(tmp_path / "c", DOCUMENTS)
    again = pickle.loads(pickle.dumps(corpus))
    assert again.prefix == corpus.prefix and documents_of(again) == DOCUMENTS
    assert len(pickle.dumps(corpus)) < 500


def test_offsets_are_64_bit(tmp_path: Path) -> None:
    sizes = np.array([2**30, 2**30, 2**30, 5], dtype=np.int32)
    assert sequence_pointers(sizes, 2).tolist() == [0, 2**31, 2**32, 3 * 2**31]
    # A sparse file of 6 GiB: no block of it is ever written but the last.
    write_index(tmp_path / "c.idx", sizes, None, "u2")
    with (tmp_path / "c.bin").open("wb") as stream:
        stream.seek(3 * 2**31)
        stream.write(np.arange(1, 6, dtype="<u2").tobytes())
    corpus = IndexedDataset(tmp_path / "c")
    assert corpus[3].tolist() == [1, 2, 3, 4, 5]
    assert corpus.get(2, 2**30 - 1, 1).tolist() == [0]
    assert corpus.num_tokens == 3 * 2**30 + 5


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(50257, "u2"), (65499, "u2"), (65500, "i4"), (70000, "i4"), (None, "i4")]
)
def test_the_dtype_of_a_vocabulary(vocab_size: int | None, dtype: str) -> None:
    assert best_dtype(vocab_size) == np.dtype(dtype)


@pytest.mark.parametrize("token", [65536, 70000, -1])
def test_a_token_is_never_wrapped(tmp_path: Path, token: int) -> None:
    with pytest.raises(CorpusError, match=rf"document 1 has tokens from .*{token}"):
        build(tmp_path / "c", [[1, 2], [3, token]])
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_whole_number_is_no_token(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="float64"):
        build(tmp_path / "c", [[0.5, 1.0]])  # type: ignore[list-item]
    with pytest.raises(CorpusError, match="dtype float32 cannot hold tokens"):
        IndexedDatasetBuilder(tmp_path / "c", np.float32)


def test_lengths_beyond_int32_are_refused_by_document(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"document 1 \(sequence 2\) has 2,147,483,648 tokens"):
        write_index(tmp_path / "c.idx", [1, 1, 2**31], [0, 2, 3], "u2")
    with pytest.raises(CorpusError, match="document borders must run from 0 to 2, found 0 to 1"):
        write_index(tmp_path / "c.idx", [1, 1], [0, 1], "u2")
    with pytest.raises(CorpusError, match="must never fall"):
        write_index(tmp_path / "c.idx", [1, 1], [0, 2, 1, 2], "u2")
    assert list(tmp_path.iterdir()) == []


def test_sequences_of_a_document_add_up(tmp_path: Path) -> None:
    with IndexedDatasetBuilder(tmp_path / "c", np.uint16) as builder:
        builder.add_document([1, 2, 3, 4, 5], lengths=[2, 3])
        with pytest.raises(CorpusError, match="lengths add up to 2, the document has 3 tokens"):
            builder.add_document([1, 2, 3], lengths=[2])
    corpus = IndexedDataset(tmp_path / "c")
    assert corpus.sequence_lengths.tolist() == [2, 3] and corpus.document_indices.tolist() == [0, 2]


def test_a_builder_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    build(tmp_path / "c", DOCUMENTS)
    with pytest.raises(RuntimeError), IndexedDatasetBuilder(tmp_path / "c", np.uint16) as builder:
        builder.add_document([1])
        raise RuntimeError
    assert documents_of(IndexedDataset(tmp_path / "c")) == DOCUMENTS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.bin", "c.idx"]


def damaged(tmp_path: Path, name: str) -> None:
    index = bytearray((tmp_path / "c.idx").read_bytes())
    match name:
        case "magic":
            index[0] = 0
        case "legacy":
            index[:8] = b"TNTIDX\x00\x00"
        case "version":
            index[9] = 2
        case "dtype":
            index[17] = 9
        case "float":
            index[17] = 7
        case "cut":
            del index[-3:]
        case "long":
            index += b"x"
        case "multimodal":
            index += bytes(2)
        case "short":
            del index[20:]
        case "negative":
            index[34:38] = (-3).to_bytes(4, "little", signed=True)
        case "pointer":
            index[50] = 8
        case "first border":
            index[58] = 1
        case "falling border":
            index[66] = 3
        case "last border":
            index[82] = 1
    (tmp_path / "c.idx").write_bytes(index)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("magic", "byte 0: starts with"),
        ("legacy", "byte 0: a legacy"),
        ("version", "byte 9: version 2"),
        ("dtype", "byte 17: dtype code 9"),
        ("float", "byte 17: dtype code 7"),
        ("cut", "byte 87: the file has 87 bytes; 2 sequences and 4 document borders take 90"),
        ("long", "byte 90: the file has 91 bytes"),
        ("multimodal", "multimodal"),
        ("short", "byte 20: the file ends inside its header"),
        ("negative", "byte 34: sequence 0 has length -3"),
        ("pointer", "byte 50: sequence 1 points at byte 8"),
        ("first border", "byte 58: the first document border is 1"),
        ("falling border", "byte 74: document border 2 is lower"),
        ("last border", "byte 82: the last document border is 1"),
    ],
)
def test_a_damaged_index_is_refused_by_file_and_byte(tmp_path: Path, name: str, message: str) -> None:
    build(tmp_path / "c", DOCUMENTS)
    damaged(tmp_path, name)
    with pytest.raises(CorpusError, match=message) as caught:
        IndexedDataset(tmp_path / "c")
    assert str(tmp_path / "c.idx") in str(caught.value)


@pytest.mark.parametrize("change", [-1, 2])
def test_a_bin_of_another_size_is_refused(tmp_path: Path, change: int) -> None:
    build(tmp_path / "c", DOCUMENTS)
    tokens = (tmp_path / "c.bin").read_bytes()
    (tmp_path / "c.bin").write_bytes(tokens[:change] if change < 0 else tokens + bytes(change))
    with pytest.raises(CorpusError, match=rf"c.bin: byte 1.: the file has {14 + change} bytes; 7 tokens of uint16"):
        IndexedDataset(tmp_path / "c")


def test_a_pair_needs_both(tmp_path: Path) -> None:
    build(tmp_path / "c", DOCUMENTS)
    for suffix in ("bin", "idx"):
        shutil.copy(tmp_path / f"c.{suffix}", tmp_path / f"only-{suffix}.{suffix}")
        with pytest.raises(CorpusError, match="there is no such file"):
            IndexedDataset(tmp_path / f"only-{suffix}")


def test_merging_refuses_other_dtypes_and_nothing(tmp_path: Path) -> None:
    build(tmp_path / "a", DOCUMENTS)
    build(tmp_path / "b", DOCUMENTS, "i4")
    with pytest.raises(CorpusError, match="b: tokens are int32, not uint16"):
        merge_corpora([tmp_path / "a", tmp_path / "b"], tmp_path / "m")
    with pytest.raises(CorpusError, match="nothing to merge"):
        merge_corpora([], tmp_path / "m")
    assert not (tmp_path / "m.bin").exists()
