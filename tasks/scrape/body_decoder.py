"""Content encodings undone piece by piece, with a limit: a decompression bomb is noticed, never unpacked."""

from __future__ import annotations

import zlib

from tasks.scrape.fetch_outcome import FetchFailure, FetchReason

ACCEPT_ENCODING = "gzip, deflate"
MAX_ENCODINGS = 3
DECODED_STEP_BYTES = 1 << 18
GZIP_MAGIC = b"\x1f\x8b"


class _Inflater:
    """One gzip or deflate layer. gzip may have several members; `deflate` is zlib or, wrongly, a raw stream."""

    def __init__(self, is_gzip: bool) -> None:
        self._is_gzip = is_gzip
        self._stream: zlib._Decompress | None = None
        self._head = b""
        """The one byte that came so far where two are needed to know what begins."""
        self._padding = False
        self.finished = False

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        """Decoded bytes of `data`. Raises FetchFailure when they are more than `max_bytes` or no such encoding."""
        pieces: list[bytes] = []
        is_full = False
        try:
            while (data or is_full) and not self._padding:
                if self._stream is None and (data := self._begin(data)) == b"":
                    break
                assert self._stream is not None
                step = min(max_bytes + 1, DECODED_STEP_BYTES)
                piece = self._stream.decompress(data, step)
                pieces.append(piece)
                max_bytes -= len(piece)
                if max_bytes < 0:
                    pieces.clear()  # the exception keeps this frame for a while
                    raise FetchFailure(FetchReason.TOO_LARGE, "larger than allowed after decompression")
                # when a step came out full, more may wait inside although all input is taken
                is_full = len(piece) == step
                data = self._stream.unconsumed_tail
                if self._stream.eof:
                    data = self._stream.unused_data
                    self._stream, self.finished, is_full = None, True, False
        except zlib.error as error:
            raise FetchFailure(FetchReason.BAD_ENCODING, str(error)) from error
        return b"".join(pieces)

    def _begin(self, data: bytes) -> bytes:
        """Open a stream, or a further gzip member, at the start of `data`; returns what to decode, if anything."""
        data, self._head = self._head + data, b""
        if len(data) < 2:
            self._head = data
            return b""
        if self.finished and not (self._is_gzip and data.startswith(GZIP_MAGIC)):
            self._padding = True  # servers and files add zeros at the end
            return b""
        self._stream, self.finished = self._open(data), False
        return data

    def _open(self, data: bytes) -> zlib._Decompress:
        if self._is_gzip:
            if not data.startswith(GZIP_MAGIC):
                raise FetchFailure(FetchReason.BAD_ENCODING, "Content-Encoding is gzip, the body is not")
            return zlib.decompressobj(zlib.MAX_WBITS | 16)
        # RFC 1950, section 2.2: method 8 in the low bits, and the first two bytes divisible by 31
        is_zlib = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
        return zlib.decompressobj(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)

    @property
    def open(self) -> bool:
        """Something came that has no end yet."""
        return self._stream is not None or bool(self._head)


class BodyDecoder:
    """Collects a body: at most `max_body_bytes` as sent and `max_page_bytes` decoded."""

    def __init__(self, content_encoding: str, max_body_bytes: int, max_page_bytes: int) -> None:
        """`content_encoding` is the header, empty when there was none. Raises FetchFailure for an unknown encoding."""
        names = [name.strip().lower() for name in content_encoding.split(",")]
        names = [name for name in names if name not in ("", "identity")]
        if len(names) > MAX_ENCODINGS or any(name not in ("gzip", "x-gzip", "deflate") for name in names):
            raise FetchFailure(
                FetchReason.BAD_ENCODING, f"Content-Encoding {content_encoding[:80]!r} was not asked for"
            )
        self._layers = [_Inflater(name != "deflate") for name in reversed(names)]
        self._max_body_bytes, self._max_page_bytes = max_body_bytes, max_page_bytes
        self._pieces: list[bytes] = []
        self.num_body_bytes = 0
        self.num_page_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take a piece as sent. Raises FetchFailure when the body is too large or not in its encoding."""
        try:
            self._take(data)
        except FetchFailure:
            self._pieces.clear()
            raise

    def _take(self, data: bytes) -> None:
        self.num_body_bytes += len(data)
        if self.num_body_bytes > self._max_body_bytes:
            raise FetchFailure(FetchReason.TOO_LARGE, f"more than {self._max_body_bytes} bytes sent")
        room = self._max_page_bytes - self.num_page_bytes
        for layer in self._layers:
            data = layer.feed(data, room)
        if len(data) > room:
            raise FetchFailure(FetchReason.TOO_LARGE, f"more than {self._max_page_bytes} bytes")
        if data:
            self._pieces.append(data)
            self.num_page_bytes += len(data)

    def finish(self) -> bytes:
        """The whole body. Raises FetchFailure when a compressed stream has no end."""
        if any(layer.open and not layer.finished for layer in self._layers):
            raise FetchFailure(FetchReason.TRUNCATED, "the compressed body has no end")
        return b"".join(self._pieces)
