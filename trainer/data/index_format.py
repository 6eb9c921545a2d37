"""The .idx layout ("MMIDIDX", version 1), written; trainer.data.indexed_dataset reads it.

All numbers are little-endian and nothing is aligned. n sequences, d document borders (documents + 1):

    0   9 bytes  magic "MMIDIDX\\0\\0"
    9   u64      version, always 1
    17  u8       dtype code of the .bin file
    18  u64      n
    26  u64      d
    34  i32[n]   tokens in each sequence
    ..  i64[n]   byte offset of each sequence in the .bin file
    ..  i64[d]   document k holds the sequences [borders[k], borders[k+1])

The layout is Megatron-LM's (megatron/core/datasets/indexed_dataset.py); files are byte for byte the same.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from trainer.data.errors import CorpusError

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER_BYTES = 34
MAX_SEQUENCE_TOKENS = 2**31 - 1
"""A length is stored as int32."""
UINT16_VOCAB_LIMIT = 65500
"""Vocabularies below this are stored as uint16; the rule, margin included, is Megatron's."""
DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("u1"),
    2: np.dtype("i1"),
    3: np.dtype("<i2"),
    4: np.dtype("<i4"),
    5: np.dtype("<i8"),
    6: np.dtype("<f8"),
    7: np.dtype("<f4"),
    8: np.dtype("<u2"),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
TOKEN_CODES = (1, 2, 3, 4, 5, 8)
"""Codes of integer types; a token file has no other."""
CHUNK_ITEMS = 1 << 22
"""Items of an index handled at a time: memory stays flat however many sequences there are."""


def best_dtype(vocab_size: int | None) -> np.dtype[Any]:
    """The .bin dtype for a vocabulary: uint16 when it is known and below 65,500, else int32 (Megatron's rule)."""
    if vocab_size is not None and vocab_size < UINT16_VOCAB_LIMIT:
        return np.dtype("<u2")
    return np.dtype("<i4")


def dtype_code(dtype: DTypeLike) -> int:
    """The code of a token dtype. Raises CorpusError for one that holds no tokens."""
    wanted = np.dtype(dtype).newbyteorder("<")
    code = CODES.get(wanted, 0)
    if code not in TOKEN_CODES:
        known = ", ".join(DTYPES[item].name for item in TOKEN_CODES)
        raise CorpusError(f"dtype {wanted.name} cannot hold tokens in a .bin file; known: {known}")
    return code


def sequence_pointers(sizes: ArrayLike, itemsize: int) -> NDArray[np.int64]:
    """Byte offset int64[n] of each sequence in the .bin file: exclusive running sum of `sizes` times `itemsize`.

    The sum is taken in 64 bits whatever the dtype of `sizes`, so that files beyond 2 GiB keep their offsets.
    """
    lengths = np.asarray(sizes)
    pointers = np.zeros(len(lengths), dtype=np.int64)
    np.cumsum(lengths[:-1], dtype=np.int64, out=pointers[1:])
    pointers *= itemsize
    return pointers


def index_num_bytes(num_sequences: int, num_borders: int) -> int:
    """Size of an .idx file in bytes."""
    return HEADER_BYTES + 12 * num_sequences + 8 * num_borders


def check_sizes(sizes: NDArray[Any], document_indices: NDArray[Any]) -> None:
    """Raises CorpusError, naming the document, for a length that int32 cannot hold or that is negative.

    Also raises it when the document borders do not start at 0, fall, or do not end at the number of sequences.
    """
    bad = np.flatnonzero((sizes < 0) | (sizes > MAX_SEQUENCE_TOKENS))
    if len(bad):
        sequence = int(bad[0])
        document = int(np.searchsorted(document_indices, sequence, side="right")) - 1
        raise CorpusError(
            f"document {document} (sequence {sequence}) has {int(sizes[sequence]):,} tokens; a sequence holds 0 to "
            f"{MAX_SEQUENCE_TOKENS:,}, because its length is stored as int32. Split the document."
        )
    if len(document_indices) == 0 or document_indices[0] != 0 or document_indices[-1] != len(sizes):
        found = "none" if len(document_indices) == 0 else f"{document_indices[0]} to {document_indices[-1]}"
        raise CorpusError(f"document borders must run from 0 to {len(sizes)}, found {found}")
    if np.any(np.diff(document_indices) < 0):
        raise CorpusError("document borders must never fall")


def write_index(path: Path, sizes: ArrayLike, document_indices: ArrayLike | None, dtype: DTypeLike) -> None:
    """Write an .idx file; it appears under its name, whole.

    `sizes` [n]: tokens in each sequence; `document_indices` [d]: document borders, or None when every sequence is a
    document; `dtype`: of the tokens in the .bin file. Raises CorpusError as `check_sizes` and `dtype_code` do.
    """
    lengths = np.asarray(sizes)
    borders = np.arange(len(lengths) + 1) if document_indices is None else np.asarray(document_indices)
    check_sizes(lengths, borders)
    header = struct.pack("<9sQBQQ", MAGIC, VERSION, dtype_code(dtype), len(lengths), len(borders))
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as stream:
        stream.write(header)
        for start, stop in chunks(len(lengths)):
            _write(stream, lengths[start:stop].astype("<i4"))
        offset = 0
        for start, stop in chunks(len(lengths)):
            pointers = sequence_pointers(lengths[start:stop], np.dtype(dtype).itemsize)
            _write(stream, (pointers + offset).astype("<i8"))
            offset += int(lengths[start:stop].sum(dtype=np.int64)) * np.dtype(dtype).itemsize
        for start, stop in chunks(len(borders)):
            _write(stream, borders[start:stop].astype("<i8"))
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def chunks(num_items: int) -> Iterator[tuple[int, int]]:
    """[start, stop) pairs that cover `num_items` items."""
    for start in range(0, num_items, CHUNK_ITEMS):
        yield start, min(start + CHUNK_ITEMS, num_items)


def _write(stream: BinaryIO, values: NDArray[Any]) -> None:
    stream.write(values.data.cast("B") if len(values) else b"")
