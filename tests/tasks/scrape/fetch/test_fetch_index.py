"""The CDXJ index: sorted, found again, and leading to records that stand alone."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import ScriptedServer, html, page, redirects
from warcio.archiveiterator import ArchiveIterator

from tasks.adopt import adopt_urls
from tasks.errors import CorruptInputError
from tasks.scrape.fetch_config import INDEX_NAME, FetchConfig, FetchResources
from tasks.scrape.fetch_stage import FETCH
from tasks.scrape.warc_index import IndexEntry, WarcIndex, merge_parts, surt, write_part
from tasks.store import ArtifactStore


def entry(url: str, number: int = 0, **fields: str) -> IndexEntry:
    return IndexEntry(url, f"2026-12-01T00:00:{number % 60:02d}Z", "text/html", 200, "sha1:X", number, 7, "f", **fields)


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://www.Example.com/A/b/?z=1&a=2", "com,example)/a/b?a=2&z=1"),
        ("https://example.com", "com,example)/"),
        ("https://example.com:8443/", "com,example:8443)/"),
        ("http://127.0.0.1:80/x", "127.0.0.1)/x"),
        ("http://www2.news.example.org/", "org,example,news)/"),
        ("http://www.com/", "com,www)/"),
        ("http://example.com/a b?ü", "com,example)/a%20b?%c3%bc"),
    ],
)
def test_keys_are_surts(url: str, key: str) -> None:
    assert surt(url) == key


@given(st.text(max_size=30), st.text(max_size=20))
def test_keys_have_no_blanks(path: str, query: str) -> None:
    try:
        key = surt(f"http://example.com/{path}?{query}")
    except ValueError:
        return
    assert key.isascii() and not re.search(r"\s", key)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60, unique=True))
def test_every_page_is_found_again(numbers: list[int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for place in range(0, len(numbers), 7):
            parts.append(Path(folder) / f"part-{place}")
            write_part(parts[-1], [entry(f"http://h{n % 5}.example/p{n}", n) for n in numbers[place : place + 7]])
        merged = Path(folder) / "pages.cdxj"
        merged.write_bytes(b"".join(merge_parts(parts, Path(folder))))
        lines = merged.read_bytes().splitlines()
        assert lines == sorted(lines) and len(lines) == len(numbers)
        with WarcIndex(merged) as index:
            for number in range(301):
                found = index.find(f"http://h{number % 5}.example/p{number}")
                assert (found is not None and found.offset == number) == (number in numbers)


def test_many_parts_are_merged_in_steps(tmp_path: Path) -> None:
    parts = []
    for number in range(450):
        parts.append(tmp_path / f"part-{number}")
        write_part(parts[-1], [entry(f"http://example.com/{number * 7919 % 450:03d}", number)])
    lines = list(merge_parts(parts, tmp_path))
    assert lines == sorted(lines) and len(lines) == 450


def test_the_newest_of_a_url_counts_and_validators_stay(tmp_path: Path) -> None:
    path = tmp_path / "pages.cdxj"
    same_key = [entry("http://example.com/a", 1, etag='"x"'), entry("http://example.com/A", 2)]
    write_part(path, [*same_key, entry("http://example.com/a", 3, etag='W/"y"', last_modified="Tue")])
    with WarcIndex(path) as index:
        found = index.find("http://example.com/a")
        assert found is not None
        assert (found.offset, found.etag, found.last_modified) == (3, 'W/"y"', "Tue")
        assert index.find("http://example.com/aa") is None


def test_an_empty_index_has_nothing_and_a_broken_one_says_so(tmp_path: Path) -> None:
    path = tmp_path / "pages.cdxj"
    path.write_bytes(b"")
    with WarcIndex(path) as index:
        assert index.find("http://example.com/") is None
    path.write_bytes(b"com,example)/ 2026 {broken\n")
    with WarcIndex(path) as index, pytest.raises(CorruptInputError, match="index"):
        index.find("http://example.com/")


def test_the_index_leads_to_records_that_stand_alone(tmp_path: Path) -> None:
    routes = {
        "/a": html(ETag='"one"', Last_Modified="Tue, 01 Dec 2026 03:18:22 GMT"),
        "/b": redirects("/c"),
        "/c": html(page(title="other")),
    }
    with ScriptedServer(routes, default=html()) as server:
        lines = [server.url(path) for path in ("/b", "/a", *(f"/{n}" for n in range(9)))]
        path = tmp_path / "list.txt"
        path.write_text("\n".join(lines))
        store = ArtifactStore(tmp_path / "store")
        resources = FetchResources(delay_seconds=0)
        config = FetchConfig(allow_private_hosts=(server.host,), urls_per_shard=4, resources=resources)
        folder = store.path_of(store.run(FETCH, config, [adopt_urls(store, [path])]))
    text = (folder / INDEX_NAME).read_bytes().splitlines()
    assert text == sorted(text) and len(text) == 11
    with WarcIndex(folder / INDEX_NAME) as index:
        for url in [server.url("/c"), *lines[1:]]:
            found = index.find(url)
            assert found is not None
            member = (folder / found.file_name).read_bytes()[found.offset : found.offset + found.length]
            [record] = ArchiveIterator(io.BytesIO(member), check_digests="raise")
            assert record.rec_headers["WARC-Target-URI"] == url
            assert record.rec_headers["WARC-Payload-Digest"] == found.digest
            assert (found.mime, found.status, found.date) == ("text/html", 200, record.rec_headers["WARC-Date"])
        first = index.find(server.url("/a"))
        assert first is not None
        assert (first.etag, first.last_modified) == ('"one"', "Tue, 01 Dec 2026 03:18:22 GMT")
