"""The parser of HTTP/1 answers: the same whatever the pieces are, and no guess where an answer is broken."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.scrape.http1_parser import ResponseParser
from tasks.scrape.http_message import BadResponseError, TruncatedBodyError

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def parse(*pieces: bytes, ends: bool = False) -> ResponseParser:
    parser = ResponseParser(8192)
    parser.start()
    for piece in pieces:
        parser.feed(piece)
    if ends:
        parser.finish()
    return parser


def body(parser: ResponseParser) -> bytes:
    assert parser.is_done
    return b"".join(parser.pieces)


ANSWERS = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", True),
    (b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", 200, b"hello", True),
    (b"\r\n\r\nHTTP/1.1 200\r\nContent-Length : 5, 5\r\nno field\r\n\r\nhello", 200, b"hello", True),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", False),
    (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", 200, b"", True),
    (b"HTTP/1.1 200 OK\r\nConnection: x, close\r\nContent-Length: 1\r\n\r\na", 200, b"a", False),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\na",
     404, b"a", True),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n", 304, b"", True),
    (CHUNKED + b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n", 200, b"hello world", True),
    (CHUNKED + b"5\nhello\n0\n\n", 200, b"hello", True),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n1\r\na\r\n0\r\n\r\n", 200, b"a", False),
]  # fmt: skip


@pytest.mark.parametrize(("data", "status", "content", "keeps"), ANSWERS)
def test_an_answer_is_the_same_in_any_pieces(data: bytes, status: int, content: bytes, keeps: bool) -> None:
    for size in (1, 2, 3, 7, len(data)):
        parser = parse(*(data[place : place + size] for place in range(0, len(data), size)))
        assert parser.head is not None and parser.head.status == status
        assert (body(parser), parser.keeps_alive) == (content, keeps), size


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), min_size=1), st.lists(st.integers(1, 60), min_size=1))
def test_chunks_join_to_the_body(content: bytes, chunks: list[int], cuts: list[int]) -> None:
    data, place, turn = CHUNKED, 0, 0
    while place < len(content):
        piece = content[place : place + chunks[turn % len(chunks)]]
        data += b"%x\r\n%s\r\n" % (len(piece), piece)
        place, turn = place + len(piece), turn + 1
    data += b"0\r\n\r\n"
    pieces, place, turn = [], 0, 0
    while place < len(data):
        pieces.append(data[place : place + cuts[turn % len(cuts)]])
        place, turn = place + cuts[turn % len(cuts)], turn + 1
    assert body(parse(*pieces)) == content


def test_without_a_length_the_body_ends_with_the_connection() -> None:
    parser = parse(b"HTTP/1.1 200 OK\r\n\r\nall", b" of it", ends=True)
    assert (body(parser), parser.keeps_alive) == (b"all of it", False)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        CHUNKED + b"5\r\nhello\r\n",
        CHUNKED + b"5\r\nhel",
        CHUNKED + b"5\r\nhello\r\n0\r\n",
    ],
)
def test_a_body_that_ends_early_is_truncated(data: bytes) -> None:
    with pytest.raises(TruncatedBodyError):
        parse(data, ends=True)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\r\n\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 9000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
        CHUNKED + b"zz\r\n",
        CHUNKED + b"-5\r\nhello\r\n",
        CHUNKED + b"5\r\nhello!!\r\n",
        CHUNKED + b"5;" + b"x" * 5000,
        CHUNKED + b"0\r\n" + b"X: y\r\n" * 2000,
    ],
)
def test_what_would_be_a_guess_is_refused(data: bytes) -> None:
    with pytest.raises(BadResponseError):
        parse(data)


def test_a_second_answer_ends_the_connection() -> None:
    parser = parse(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", b"HTTP/1.1 200 OK\r\n\r\n")
    assert not parser.keeps_alive


def test_fields_keep_their_order_and_fold() -> None:
    parser = parse(b"HTTP/1.1 200 OK\r\nb: 1\r\nA: x\r\n  y\r\nB: \xe9\r\nContent-Length: 0\r\n\r\n")
    assert parser.head is not None
    headers = parser.head.headers
    assert list(headers.raw) == [(b"b", b"1"), (b"A", b"x y"), (b"B", b"\xe9"), (b"Content-Length", b"0")]
    assert (headers.get("a"), headers.all("B"), headers.get("c", "none")) == ("x y", ["1", "\udce9"], "none")


def test_many_small_chunks_cost_no_more_than_their_number() -> None:
    data = CHUNKED + b"1\r\nx\r\n" * 200_000
    started = time.process_time()
    parse(data)
    assert time.process_time() - started < 3.0


@given(st.binary(max_size=400))
def test_any_bytes_end_in_an_answer_or_a_named_error(data: bytes) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\n", CHUNKED):
        with contextlib.suppress(BadResponseError, TruncatedBodyError):
            parse(start + data, ends=True)
