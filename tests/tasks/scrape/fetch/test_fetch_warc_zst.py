"""WARC files in Zstandard, with and without dictionary, whole and cut."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
import zstandard

from tasks.adopt import adopt_pages
from tasks.errors import CorruptInputError
from tasks.scrape.warc_reader import read_pages
from tasks.store import ArtifactStore


def record(number: int) -> bytes:
    chance = random.Random(number)
    words = " ".join(chance.choice(["bridge", "town", "council", "river", "market"]) for _ in range(200))
    block = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>{number} {words}</p>".encode()
    head = (
        f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: http://example.com/{number}\r\n"
        f"WARC-Date: 2024-05-06T07:08:09Z\r\nContent-Type: application/http;msgtype=response\r\n"
        f"Content-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


RECORDS = [record(number) for number in range(40)]


def frames(dictionary: zstandard.ZstdCompressionDict | None = None) -> bytes:
    compressor = zstandard.ZstdCompressor(dict_data=dictionary)
    return b"".join(compressor.compress(item) for item in RECORDS)


def write(path: Path, kind: str) -> Path:
    if kind == "plain":
        path.write_bytes(frames())
        return path
    dictionary = zstandard.train_dictionary(2000, RECORDS)
    data = dictionary.as_bytes()
    if kind == "compressed dictionary":
        data = zstandard.ZstdCompressor().compress(data)
    path.write_bytes(struct.pack("<II", 0x184D2A5D, len(data)) + data + frames(dictionary))
    return path


@pytest.mark.parametrize("kind", ["plain", "dictionary", "compressed dictionary"])
def test_all_pages_are_read(tmp_path: Path, kind: str) -> None:
    pages = list(read_pages(write(tmp_path / "a.warc.zst", kind)))
    assert [page.final_url for page in pages] == [f"http://example.com/{number}" for number in range(40)]
    assert all(page.status == 200 and page.body.startswith(b"<p>%d " % n) for n, page in enumerate(pages))


@pytest.mark.parametrize("kind", ["plain", "dictionary"])
@pytest.mark.parametrize("cut", [1, 50, 400])
def test_a_cut_file_is_refused(tmp_path: Path, kind: str, cut: int) -> None:
    path = write(tmp_path / "a.warc.zst", kind)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CorruptInputError, match="cut short"):
        list(read_pages(path))


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.zst"
    path.write_bytes(b"no zstd at all" * 10)
    with pytest.raises(CorruptInputError):
        list(read_pages(path))


@pytest.mark.parametrize("kind", ["plain", "dictionary"])
def test_such_files_can_be_taken_over(tmp_path: Path, kind: str) -> None:
    store = ArtifactStore(tmp_path / "store")
    pages = adopt_pages(store, [write(tmp_path / "a.warc.zst", kind)])
    [path] = store.path_of(pages).glob("pages-*")
    assert (pages.num_pages, path.name) == (40, "pages-00000.warc.zst")
    assert len(list(read_pages(path))) == 40
