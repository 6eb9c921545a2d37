from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import records
from tasks.artifacts import DocumentShards
from tasks.clean import shuffle
from tasks.clean.config import ShuffleConfig, ShuffleResources
from tasks.clean.lines import line_blocks, line_ends
from tasks.clean.shuffle import END_OF_KEYS, RunWriter, cut_keys, lines_between, open_runs, order_keys
from tasks.clean.shuffle_stage import deal_shard
from tasks.clean.stage import SHUFFLE
from tasks.records import Document, line_lists, read_rows
from tasks.store import ArtifactStore

Corpus = Callable[..., DocumentShards]
Read = Callable[[DocumentShards], list[Document]]


def config(seed: int = 1, workers: int = 1, memory_bytes: int = 1 << 30, per_shard: int = 30) -> ShuffleConfig:
    resources = ShuffleResources(workers=workers, memory_bytes=memory_bytes)
    return ShuffleConfig(seed=seed, documents_per_shard=per_shard, resources=resources)


def test_a_permutation_of_whole_rows_in_full_shards(store: ArtifactStore, corpus: Corpus, read: Read) -> None:
    documents = corpus([{"id": f"{n}", "text": f"text {n}", "n": [n], "title": "é"} for n in range(100)], 17)
    made = store.run(SHUFFLE, config(), [documents])
    before, after = read(documents), read(made)
    assert sorted(after, key=lambda one: int(one.id)) == before
    assert after != before
    sizes = [sum(1 for _ in read_rows(path)) for path in sorted(store.path_of(made).glob("*.zst"))]
    assert sizes == [30, 30, 30, 10]
    assert (made.num_documents, made.num_text_bytes) == (documents.num_documents, documents.num_text_bytes)


def test_plain_shards_hold_the_same_order(store: ArtifactStore, corpus: Corpus, read: Read) -> None:
    documents = corpus([{"id": f"{n}", "text": f"text {n} é", "n": n} for n in range(50)], 17)
    made = store.run(SHUFFLE, config(), [documents])
    plain = store.run(SHUFFLE, config().model_copy(update={"compression": "none"}), [documents])
    shards = sorted(store.path_of(plain).glob("*.jsonl"))
    assert [row.document for path in shards for row in read_rows(path)] == read(made)
    # And they are read as well as written.
    again = store.run(SHUFFLE, config(seed=7), [plain])
    assert sorted(read(again), key=lambda one: int(one.id)) == read(documents)


def test_rows_of_other_writers_are_made_our_own(tmp_path: Path) -> None:
    lines = [b'{"text": "one"}', b"", b"{", b'{"id":"a","url":"","text":"two"}', b'  {"id":"b","text":"three"}', b"7"]
    (tmp_path / "in.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines))
    names, report = deal_shard((str(tmp_path / "in.jsonl"), 0, 1, 1 << 20), tmp_path)
    report.check_balance()
    assert report.dropped == {"blank_line": 1, "invalid_json": 1, "not_an_object": 1} and report.num_out == 3
    rows = (tmp_path / names[0]).read_bytes().splitlines()
    assert sorted(rows) == [
        b'{"id":"a","url":"","text":"two"}', b'{"id":"b","url":"","text":"three"}', b'{"id":"in:1","url":"","text":"one"}',
    ]  # fmt: skip


@given(
    st.lists(st.sampled_from([b"", b"a", b"bc", b"\xe2\x80\xa8", b"x" * 9]), max_size=8),
    st.booleans(),
    st.integers(1, 7),
)
@settings(max_examples=150, deadline=None)
def test_blocks_are_the_lines_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], newline: bool, size: int
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "in.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n" * newline)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "READ_BYTES", size)
        expected = list(records.read_lines(path))
        blocks = list(line_blocks(path))
        lists = list(line_lists(path))
    assert [line for block in blocks for line in bytes(block[:-1]).split(b"\n")] == expected
    assert all(bytes(block).endswith(b"\n") for block in blocks)
    assert [line for some in lists for line in some] == expected


def test_the_order_depends_on_the_seed_alone(store: ArtifactStore, corpus: Corpus, read: Read) -> None:
    # 60 rows of 50 kB do not fit into the least memory, so runs and stretches are many.
    documents = corpus([f"{number} " + "x" * 50_000 for number in range(60)], 20)
    made = {
        name: store.run(SHUFFLE, one, [documents], refresh=True)
        for name, one in {
            "much memory": config(),
            "little memory": config(memory_bytes=1 << 20),
            "two workers": config(workers=2, memory_bytes=1 << 21),
            "another seed": config(seed=2),
        }.items()
    }
    prints = {name: artifact.fingerprint for name, artifact in made.items()}
    assert prints["much memory"] == prints["little memory"] == prints["two workers"] != prints["another seed"]


def add(writer: RunWriter, *lines: bytes) -> None:
    block = b"".join(line + b"\n" for line in lines)
    writer.add(memoryview(block), line_ends(memoryview(block)))


def test_memory_stays_within_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "LINE_OVERHEAD", 0)
    most, held = 10_100, []
    writer = RunWriter(tmp_path, "in", 1, 0, most)
    for number in range(1000):
        add(writer, b"%04d" % number * 25)
        held.append(writer._held)
    writer.close()
    assert max(held) < most
    runs = open_runs(tmp_path, ["in"])
    assert len(runs) == 10
    lists = list(lines_between(runs, 0, END_OF_KEYS, most))
    assert len({bytes(line) for lines in lists for line in lines}) == 1000
    # Every stretch of keys is read from all runs, and together they fit.
    assert max(sum(map(len, lines)) for lines in lists) <= most


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 30), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_cuts_make_full_shards(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], wanted: int, seed: int
) -> None:
    directory = tmp_path_factory.mktemp("runs")
    for shard, size in enumerate(sizes):
        writer = RunWriter(directory, str(shard), seed, shard, 64)
        for row in range(size):
            add(writer, b"%d-%d" % (shard, row))
        writer.close()
    names = [str(shard) for shard in range(len(sizes))]
    runs = open_runs(directory, names)
    shards = [
        [bytes(line) for lines in lines_between(runs, low, high, 100) for line in lines]
        for low, high in pairwise(cut_keys(directory, names, wanted))
    ]
    total = sum(sizes)
    assert [len(one) for one in shards] == [wanted] * (total // wanted) + [total % wanted] * (total % wanted > 0)
    assert sorted(line for one in shards for line in one) == sorted(
        b"%d-%d\n" % (shard, row) for shard, size in enumerate(sizes) for row in range(size)
    )


def test_keys_are_all_different_and_evenly_spread() -> None:
    keys = np.concatenate([order_keys(9, shard, 0, 20_000) for shard in range(5)])
    assert len(np.unique(keys)) == 100_000
    counts = np.bincount((keys >> np.uint64(60)).astype(np.int64), minlength=16)
    # 16 bins of 6,250: chi-squared with 15 degrees of freedom is below 44 but once in ten thousand.
    assert ((counts - 6250) ** 2 / 6250).sum() < 44
    assert np.array_equal(order_keys(9, 3, 7, 5), order_keys(9, 3, 0, 12)[7:])


def test_every_place_is_as_likely_for_every_document(store: ArtifactStore, corpus: Corpus, read: Read) -> None:
    documents = corpus([str(number) for number in range(4)], 2)
    firsts = [0] * 4
    for seed in range(200):
        keys = np.concatenate([order_keys(seed, shard, 0, 2) for shard in range(2)])
        firsts[int(np.argmin(keys))] += 1
    assert min(firsts) > 30
    made = store.run(SHUFFLE, config(seed=5), [documents])
    keys = np.concatenate([order_keys(5, shard, 0, 2) for shard in range(2)])
    assert [int(document.id) for document in read(made)] == np.argsort(keys).tolist()
