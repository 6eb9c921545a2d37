"""Laws of the fetcher's parts: spool, decoder, key set, record bytes, Retry-After."""

from __future__ import annotations

import base64
import email.utils
import gzip
import hashlib
import random
import shutil
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.scrape import fetch_shard
from tasks.scrape.body_decoder import BodyDecoder
from tasks.scrape.fetch_outcome import FetchedPage, FetchFailure, FetchOutcome, FetchReason, PageFacts
from tasks.scrape.fetch_shard import UrlKeys
from tasks.scrape.fetch_spool import Spool
from tasks.scrape.http_client import retry_after_seconds
from tasks.scrape.warc_writer import gzip_member, response_record, sha1_digest

FACTS = PageFacts("2026-01-01T00:00:00Z", 200, "text/html", "sha1:X", 'W/"é"', "Tue, 01 Dec 2026 03:18:22 GMT")


def _outcome(place: int) -> FetchOutcome:
    return FetchOutcome(f"http://x/{place}", FetchReason.OK, f"http://x/{place}#é", 200, 7, 1, 0.5, "fine")


@given(st.integers(0, 1 << 30), st.sampled_from(["cut", "flip", "append"]))
def test_a_damaged_spool_keeps_its_first_whole_frames(seed: int, kind: str) -> None:
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "spool"
        sizes, written = [0], {}
        with Spool(path) as spool:
            for place in range(4):
                record = chance.randbytes(chance.randrange(60))
                spool.append([(place, _outcome(place), FACTS, record)])
                written[place] = record
                sizes.append(path.stat().st_size)
        data = bytearray(path.read_bytes())
        where = chance.randrange(len(data))
        if kind == "cut":
            del data[where:]
        elif kind == "flip":
            data[where] ^= 1 << chance.randrange(8)
        else:
            where = len(data)
            data += chance.randbytes(30)
        path.write_bytes(data)
        whole = max(number for number, size in enumerate(sizes) if size <= where)
        with Spool(path) as spool:
            assert set(spool.pages) >= set(range(whole))
            for place in range(whole):
                assert spool.pages[place].outcome == _outcome(place)
                assert spool.pages[place].facts == (FACTS if written[place] else PageFacts())
                assert spool.read_record(spool.pages[place]) == written[place]
            spool.append([(9, _outcome(9), FACTS, b"more")])
        with Spool(path) as spool:
            assert spool.read_record(spool.pages[9]) == b"more"
    finally:
        shutil.rmtree(folder)


@given(
    st.binary(max_size=3000),
    st.lists(st.integers(1, 400), max_size=12),
    st.sampled_from(["gzip", "x-gzip", "deflate", "deflate ", ""]),
)
def test_a_body_in_pieces_is_the_whole_body(body: bytes, cuts: list[int], encoding: str) -> None:
    raw = zlib.compressobj(wbits=-15)
    sent = {
        "gzip": gzip.compress(body),
        "x-gzip": gzip.compress(body[:9]) + gzip.compress(body[9:]) + b"\0\0",
        "deflate": zlib.compress(body),
        "deflate ": raw.compress(body) + raw.flush(),
        "": body,
    }[encoding]
    decoder = BodyDecoder(encoding, 1 << 20, 1 << 20)
    place = 0
    for cut in [*cuts, len(sent)]:
        decoder.feed(sent[place : place + cut])
        place += cut
    assert decoder.finish() == body
    assert decoder.num_page_bytes == len(body)


@pytest.mark.parametrize("size", [1 << 18, (1 << 18) + 1, (1 << 19) - 1, 1 << 20])
@pytest.mark.parametrize("window", [15, -15, 31])
def test_steps_of_decompression_lose_nothing(size: int, window: int) -> None:
    stream = zlib.compressobj(wbits=window)
    sent = stream.compress(b"x" * size) + stream.flush()
    for width in (len(sent), 7):
        decoder = BodyDecoder("gzip" if window == 31 else "deflate", 1 << 20, 1 << 20)
        for place in range(0, len(sent), width):
            decoder.feed(sent[place : place + width])
        assert decoder.finish() == b"x" * size


@given(st.binary(min_size=1, max_size=2000))
def test_a_limit_is_exact(body: bytes) -> None:
    BodyDecoder("gzip", 1 << 20, len(body)).feed(gzip.compress(body))
    with pytest.raises(FetchFailure, match="too_large"):
        BodyDecoder("gzip", 1 << 20, len(body) - 1).feed(gzip.compress(body))
    with pytest.raises(FetchFailure, match="too_large"):
        BodyDecoder("", len(body) - 1, 1 << 20).feed(body)


@given(st.binary(min_size=1, max_size=2000), st.integers(1, 17))
def test_a_cut_stream_is_truncated(body: bytes, cut: int) -> None:
    decoder = BodyDecoder("gzip", 1 << 20, 1 << 20)
    decoder.feed(gzip.compress(body)[:-cut])
    with pytest.raises(FetchFailure, match="truncated"):
        decoder.finish()


def test_encodings_that_were_not_asked_for_are_refused() -> None:
    with pytest.raises(FetchFailure, match="not asked for"):
        BodyDecoder("zstd", 1, 1)
    with pytest.raises(FetchFailure, match="not asked for"):
        BodyDecoder("gzip, gzip, gzip, gzip", 1, 1)


@given(st.binary(max_size=5000))
def test_gzip_members_are_gzip(data: bytes) -> None:
    assert gzip.decompress(gzip_member(data)) == data
    assert gzip.decompress(gzip_member(data) + gzip_member(b"more")) == data + b"more"


@given(st.binary(max_size=200))
def test_digests_are_base32_sha1(body: bytes) -> None:
    page = FetchedPage("http://x/", "2026-01-01T00:00:00Z", 200, "OK", [(b"Transfer-Encoding", b"chunked")], body)
    record = response_record("http://x/", page, sha1_digest(page.body))
    digest = base64.b32encode(hashlib.sha1(body).digest())
    assert b"WARC-Payload-Digest: sha1:" + digest + b"\r\n" in record
    assert b"\r\nX-Archive-Orig-Transfer-Encoding: chunked\r\n" in record
    assert record == response_record("http://x/", page, sha1_digest(page.body))


@given(st.lists(st.integers(0, 60)))
def test_a_key_set_is_a_set(numbers: list[int]) -> None:
    before = fetch_shard.RECENT_KEYS
    fetch_shard.RECENT_KEYS = 5
    try:
        keys, seen = UrlKeys(), set()
        for number in numbers:
            assert keys.add(f"http://x/{number}#{len(seen)}") == (number not in seen)
            seen.add(number)
    finally:
        fetch_shard.RECENT_KEYS = before


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("5", 5.0),
        (" 0 ", 0.0),
        ("99999999999999", 999_999_999.0),
        (email.utils.formatdate(NOW + 30, usegmt=True), 30.0),
        (email.utils.formatdate(NOW - 30, usegmt=True), 0.0),
        ("", None),
        ("-3", None),
        ("soon", None),
        ("Mon, 99 Foo 2020", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str, seconds: float | None) -> None:
    assert retry_after_seconds(header, NOW) == seconds
