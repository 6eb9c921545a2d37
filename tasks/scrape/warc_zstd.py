"""WARC files compressed with Zstandard (.warc.zst): one frame a record, a dictionary in front where there is one.

The dictionary is the content of a skippable frame at the start of the file, itself perhaps compressed (IIPC's
"Zstandard compression for WARC files" 1.0, section 3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import zstandard

from tasks.errors import CorruptInputError
from tasks.records import zstd_frames

DICTIONARY_MAGIC = 0x184D2A5D
FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
MAX_DICTIONARY_BYTES = 64 << 20
READ_BYTES = 1 << 14
MAX_WINDOW_BYTES = 128 << 20
_SKIPPABLE = struct.Struct("<II")


def _dictionary(stream: BinaryIO) -> zstandard.ZstdCompressionDict | None:
    """The dictionary at the start, if there is one; the stream is left behind it."""
    head = stream.read(_SKIPPABLE.size)
    if len(head) < _SKIPPABLE.size or _SKIPPABLE.unpack(head)[0] != DICTIONARY_MAGIC:
        stream.seek(0)
        return None
    size = _SKIPPABLE.unpack(head)[1]
    if size > MAX_DICTIONARY_BYTES:
        raise zstandard.ZstdError(f"a dictionary of {size} bytes")
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the dictionary has no end")
    if data.startswith(FRAME_MAGIC):
        data = zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_DICTIONARY_BYTES)
    return zstandard.ZstdCompressionDict(data)


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    dictionary = _dictionary(stream)
    decompressor = zstandard.ZstdDecompressor(dict_data=dictionary, max_window_size=MAX_WINDOW_BYTES)
    return zstd_frames(stream, decompressor, READ_BYTES)


class ZstdWarc:
    """The decompressed content of a .warc.zst file. Reading raises CorruptInputError when it is damaged or cut."""

    def __init__(self, path: Path) -> None:
        """Opens the file."""
        self._path = path
        self._file = path.open("rb")
        self._pieces = _pieces(self._file)
        self._rest = b""
        self._place = 0

    def tell(self) -> int:
        """Bytes read so far."""
        return self._place

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, b"" at the end."""
        if size < 0:
            return b"".join(iter(lambda: self.read(1 << 20), b""))
        try:
            if not self._rest:
                self._rest = next(self._pieces, b"")
        except (zstandard.ZstdError, EOFError) as error:
            raise CorruptInputError(f"{self._path}: the compressed file is damaged or cut short ({error})") from error
        found, self._rest = self._rest[:size], self._rest[size:]
        self._place += len(found)
        return found

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> ZstdWarc:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
