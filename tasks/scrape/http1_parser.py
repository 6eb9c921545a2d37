"""HTTP/1 answers, parsed as they come (RFC 9112): one status line, header fields and body after the other.

The body keeps its content encoding. Where servers are sloppy and the meaning is plain (bare line feeds, folded
fields, blanks before a colon, a line that is no field), the answer is taken; where the length of the body would be
a guess, it is not.
"""

from __future__ import annotations

import re

from tasks.scrape.http_message import BadResponseError, Headers, ResponseHead, TruncatedBodyError

MAX_HEAD_FIELDS = 8
"""The whole head may take so many times the limit of one field."""
MAX_CHUNK_LINE_BYTES = 4096
MAX_CHUNK_DIGITS = 15
_HEAD_END = re.compile(rb"\n\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/(\d)(?:\.(\d))?[ \t]+(\d{3})(?:[ \t]+([^\r\n]*))?\r?")
_FIELD_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CHUNK_LINE = re.compile(rb"[ \t]*([0-9a-fA-F]+)[ \t]*(?:;[^\r\n]*)?\r?")
_BODILESS = (204, 304)

_HEAD, _LENGTH, _CHUNK_SIZE, _CHUNK_DATA, _CHUNK_END, _TRAILER, _UNTIL_CLOSE, _DONE = range(8)


class ResponseParser:
    """Takes the bytes of a connection; `head` and `pieces` fill, `is_done` says that the answer is whole."""

    __slots__ = (
        "_is_connect", "_left", "_max_field_bytes", "_rest", "_state", "_trailer_bytes",
        "head", "keeps_alive", "pieces",
    )  # fmt: skip

    def __init__(self, max_field_bytes: int) -> None:
        """`max_field_bytes`: of the status line and of any one header field."""
        self._max_field_bytes = max_field_bytes
        self._rest = b""
        self._state = _DONE
        self._left = 0
        """Bytes that the body, or its chunk, still has."""
        self._trailer_bytes = 0
        self._is_connect = False
        self.head: ResponseHead | None = None
        self.pieces: list[bytes] = []
        """Body bytes that came and were not taken yet; the reader empties the list."""
        self.keeps_alive = False
        """The connection may be used again once the answer is whole."""

    @property
    def is_done(self) -> bool:
        """The answer is whole."""
        return self._state == _DONE

    @property
    def has_begun(self) -> bool:
        """Something of the head came."""
        return bool(self._rest) or self.head is not None

    def start(self, is_connect: bool = False) -> None:
        """Expect the answer to a new request. A good answer to CONNECT has no body (RFC 9110, section 9.3.6)."""
        self._state, self.head, self.pieces, self._rest = _HEAD, None, [], b""
        self._trailer_bytes, self._is_connect = 0, is_connect

    def feed(self, data: bytes) -> None:
        """Take bytes. Raises BadResponseError."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        place, end = 0, len(data)
        while place < end:
            state = self._state
            if state in (_LENGTH, _CHUNK_DATA):
                piece = data if place == 0 and end <= self._left else data[place : place + self._left]
                self.pieces.append(piece)
                place += len(piece)
                self._left -= len(piece)
                if self._left == 0:
                    self._state = _DONE if state == _LENGTH else _CHUNK_END
            elif state == _HEAD:
                place = self._take_head(data, place)
            elif state == _UNTIL_CLOSE:
                self.pieces.append(data[place:])
                return
            elif state == _DONE:
                self.keeps_alive = False  # more than one answer to one question
                return
            else:
                newline = data.find(b"\n", place)
                if newline - place > MAX_CHUNK_LINE_BYTES or (newline < 0 and end - place > MAX_CHUNK_LINE_BYTES):
                    raise BadResponseError("a line of the chunked body is too long")
                if newline < 0:
                    self._rest = data[place:]
                    return
                self._take_line(data[place:newline])
                place = newline + 1

    def finish(self) -> None:
        """The connection ended. Raises TruncatedBodyError when the body had not."""
        self.keeps_alive = False
        if self._state == _UNTIL_CLOSE:
            self._state = _DONE
        if self._state == _HEAD:
            raise BadResponseError("the connection ended within the header")
        if self._state != _DONE:
            raise TruncatedBodyError("the connection ended before the body")

    def _take_line(self, line: bytes) -> None:
        """A line between the data of a chunked body (RFC 9112, section 7.1)."""
        if self._state == _CHUNK_SIZE:
            match = _CHUNK_LINE.fullmatch(line)
            if match is None or len(match.group(1)) > MAX_CHUNK_DIGITS:
                raise BadResponseError(f"no size of a chunk: {line[:40]!r}")
            self._left = int(match.group(1), 16)
            self._state = _CHUNK_DATA if self._left else _TRAILER
        elif self._state == _CHUNK_END:
            if line.strip():
                raise BadResponseError("a chunk is longer than its size")
            self._state = _CHUNK_SIZE
        else:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > self._max_field_bytes:
                raise BadResponseError("the trailer is too large")
            if not line.strip():
                self._state = _DONE

    def _take_head(self, data: bytes, start: int) -> int:
        """Read the head that begins at `start` when it is complete; returns the place of what follows."""
        while data[start : start + 1] in (b"\r", b"\n"):  # RFC 9112, section 2.2: empty lines before it
            start += 1
        end = data.find(b"\r\n\r\n", start)
        if end >= 0 and data.find(b"\n\n", start, end) < 0:
            after = end + 4
        elif match := _HEAD_END.search(data, start):
            end, after = match.start(), match.end()
        else:
            if not data.startswith(b"HTTP/", start) and not b"HTTP/".startswith(data[start : start + 5]):
                raise BadResponseError(f"the answer begins with {data[start : start + 20]!r}")
            is_large = len(data) - start > self._max_field_bytes * MAX_HEAD_FIELDS
            if is_large or len(data) - max(start, data.rfind(b"\n")) > self._max_field_bytes:
                raise BadResponseError("the header is too large")
            self._rest = data[start:]
            return len(data)
        head, keeps_alive, is_chunked = parse_head(data[start:end], self._max_field_bytes)
        if head.status < 200:
            if head.status == 101:
                raise BadResponseError("the server changed the protocol")
            return after  # informational: the answer follows
        self.head, self.keeps_alive = head, keeps_alive
        if head.status in _BODILESS or (self._is_connect and head.status < 300):
            self._state = _DONE
        elif is_chunked:
            self._state = _CHUNK_SIZE
        elif head.content_length is None:
            self._state, self.keeps_alive = _UNTIL_CLOSE, False
        else:
            self._left = head.content_length
            self._state = _LENGTH if self._left else _DONE
        return after


def parse_head(data: bytes, max_field_bytes: int) -> tuple[ResponseHead, bool, bool]:
    """The head of an answer, whether its connection may be used again, and whether its body comes in chunks.

    Raises BadResponseError. `data` ends before the empty line.
    """
    first, *lines = data.split(b"\n")
    match = _STATUS_LINE.fullmatch(first)
    if match is None or len(first) > max_field_bytes:
        raise BadResponseError(f"no status line: {first[:40]!r}")
    fields: list[tuple[bytes, bytes]] = []
    length: int | None = None
    connection = transfer = b""
    for line in lines:
        if len(line) > max_field_bytes or b"\0" in line:
            raise BadResponseError("a header field is too large or has a zero byte")
        if line[:1] in (b" ", b"\t"):  # a folded field (section 5.2)
            if fields and (more := line.strip()):
                fields[-1] = (fields[-1][0], fields[-1][1] + b" " + more)
            continue
        name, colon, value = line.partition(b":")
        name, value = name.rstrip(), value.strip()
        if not colon or _FIELD_NAME.fullmatch(name) is None:
            continue
        fields.append((name, value))
        kind = name.lower()
        if kind == b"content-length":
            length = _length(value, length)
        elif kind == b"transfer-encoding":
            transfer = transfer + b"," + value if transfer else value
        elif kind == b"connection":
            connection = connection + b"," + value if connection else value
    tokens = [token.strip() for token in connection.lower().split(b",")]
    is_new = match.group(1) == b"1" and match.group(2) == b"1"
    keeps_alive = b"close" not in tokens if is_new else b"keep-alive" in tokens and match.group(1) == b"1"
    is_chunked = False
    if transfer:
        codings = [coding.strip() for coding in transfer.lower().split(b",")]
        is_chunked = codings[-1] == b"chunked"
        if any(coding not in (b"chunked", b"identity", b"") for coding in codings) or codings.count(b"chunked") > 1:
            raise BadResponseError(f"Transfer-Encoding {transfer[:40]!r} was not asked for")
        if is_chunked:
            keeps_alive, length = keeps_alive and length is None, None
    text = (match.group(4) or b"").strip().decode("latin-1")
    return ResponseHead(int(match.group(3)), text, Headers(fields), length), keeps_alive, is_chunked


def _length(value: bytes, before: int | None) -> int:
    """A Content-Length; the same one may be said twice (RFC 9110, section 8.6)."""
    for text in value.split(b","):
        text = text.strip()
        if not text.isdigit() or len(text) > 18 or (before is not None and int(text) != before):
            raise BadResponseError(f"Content-Length {value[:40]!r}")
        before = int(text)
    assert before is not None
    return before
