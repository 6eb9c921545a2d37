"""Reading of .bin/.idx token files: memory-mapped, zero copy, checked when opened. numpy only, no torch."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from trainer.data.errors import CorpusError
from trainer.data.index_format import (
    DTYPES,
    HEADER_BYTES,
    MAGIC,
    TOKEN_CODES,
    VERSION,
    best_dtype,
    chunks,
    index_num_bytes,
    sequence_pointers,
    write_index,
)
from trainer.data.indexed_builder import IndexedDatasetBuilder

__all__ = [
    "CorpusError",
    "IndexedDataset",
    "IndexedDatasetBuilder",
    "best_dtype",
    "merge_corpora",
    "sequence_pointers",
    "write_index",
]

LEGACY_MAGIC = b"TNTIDX\x00\x00"


class IndexedDataset:
    """A corpus of token sequences: PREFIX.bin and PREFIX.idx, mapped into memory.

    `len` is the number of sequences; `[i]` is sequence i, `[a:b]` a list of sequences; all are views of the file,
    read-only and of the file's dtype. A dataset pickles as its prefix and is opened again where it arrives.
    """

    sequence_lengths: NDArray[np.int32]
    """Tokens in each sequence [n]."""
    sequence_pointers: NDArray[np.int64]
    """Byte offset of each sequence in the .bin file [n]."""
    document_indices: NDArray[np.int64]
    """Document k holds the sequences [document_indices[k], document_indices[k + 1]); [documents + 1]."""
    dtype: np.dtype[Any]
    """Type of a token in the .bin file."""
    num_tokens: int
    """Tokens in the .bin file."""

    def __init__(self, prefix: Path | str) -> None:
        """Open and check both files. Raises CorpusError, naming file and byte, when they are not a whole pair."""
        self.prefix = Path(prefix)
        self.idx_path = self.prefix.with_name(self.prefix.name + ".idx")
        self.bin_path = self.prefix.with_name(self.prefix.name + ".bin")
        for path in (self.idx_path, self.bin_path):
            if not path.is_file():
                raise CorpusError(f"{path}: there is no such file; a corpus is a pair PREFIX.bin and PREFIX.idx")
        self._index = _map(self.idx_path)
        self.dtype, num_sequences, num_borders = self._read_header()
        self.sequence_lengths = self._view("<i4", num_sequences, HEADER_BYTES)
        self.sequence_pointers = self._view("<i8", num_sequences, HEADER_BYTES + 4 * num_sequences)
        self.document_indices = self._view("<i8", num_borders, HEADER_BYTES + 12 * num_sequences)
        self._check_borders()
        self.num_tokens = self._check_pointers()
        self._check_bin()
        self._tokens = _map(self.bin_path)

    def __reduce__(self) -> tuple[type[IndexedDataset], tuple[Path]]:
        return type(self), (self.prefix,)

    def __len__(self) -> int:
        return len(self.sequence_lengths)

    @overload
    def __getitem__(self, index: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[NDArray[Any]]: ...
    def __getitem__(self, index: int | slice) -> NDArray[Any] | list[NDArray[Any]]:
        """Sequence `index`, or the sequences of a slice. Raises IndexError outside, ValueError for a step."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError(f"a slice of sequences must have step 1, not {step}")
            return [self.get(item) for item in range(start, stop)]
        return self.get(index)

    def get(self, index: int, offset: int = 0, length: int | None = None) -> NDArray[Any]:
        """Tokens [offset, offset + length) of sequence `index`; `length` None means: to its end.

        Raises IndexError when the sequence does not exist or does not reach that far.
        """
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"{self.prefix}: sequence {index} of {len(self)}")
        size = int(self.sequence_lengths[position])
        count = size - offset if length is None else length
        if offset < 0 or count < 0 or offset + count > size:
            raise IndexError(
                f"{self.prefix}: tokens [{offset}, {offset + count}) of sequence {index}, which has {size} tokens"
            )
        if count == 0:
            return np.empty(0, dtype=self.dtype)
        start = int(self.sequence_pointers[position]) + offset * self.dtype.itemsize
        return np.frombuffer(self._tokens, dtype=self.dtype, count=count, offset=start)

    def highest_token_id(self) -> int:
        """The greatest token id of all, -1 when there is none. Reads the whole .bin file."""
        tokens = np.frombuffer(self._tokens, dtype=self.dtype)
        return max((int(tokens[start:stop].max()) for start, stop in chunks(len(tokens))), default=-1)

    def _view(self, dtype: str, count: int, offset: int) -> NDArray[Any]:
        return np.frombuffer(self._index, dtype=dtype, count=count, offset=offset)

    def _fail(self, byte: int, message: str) -> CorpusError:
        return CorpusError(f"{self.idx_path}: byte {byte}: {message}")

    def _read_header(self) -> tuple[np.dtype[Any], int, int]:
        size = len(self._index)
        if bytes(self._index[:8]) == LEGACY_MAGIC:
            raise self._fail(0, "a legacy (lazy or cached) index; tokenize the documents again")
        if size < HEADER_BYTES:
            raise self._fail(size, f"the file ends inside its header of {HEADER_BYTES} bytes")
        magic, version, code, num_sequences, num_borders = struct.unpack("<9sQBQQ", bytes(self._index[:HEADER_BYTES]))
        if magic != MAGIC:
            raise self._fail(0, f"starts with {magic!r}, not with {MAGIC!r}: this is no .idx file")
        if version != VERSION:
            raise self._fail(9, f"version {version}, known is {VERSION}")
        if code not in TOKEN_CODES:
            known = ", ".join(f"{item} {DTYPES[item].name}" for item in TOKEN_CODES)
            raise self._fail(17, f"dtype code {code} is no token type; known are {known}")
        wanted = index_num_bytes(num_sequences, num_borders)
        if size != wanted:
            extra = ": a multimodal file, one byte more a sequence" if size == wanted + num_sequences else ""
            raise self._fail(
                min(size, wanted),
                f"the file has {size:,} bytes; {num_sequences:,} sequences and {num_borders:,} document borders "
                f"take {wanted:,}{extra}",
            )
        return DTYPES[code], num_sequences, num_borders

    def _check_borders(self) -> None:
        borders, num_sequences = self.document_indices, len(self)
        at = HEADER_BYTES + 12 * num_sequences
        if len(borders) == 0:
            raise self._fail(26, "no document borders; there is at least one, 0")
        if borders[0] != 0:
            raise self._fail(at, f"the first document border is {borders[0]}, not 0")
        if borders[-1] != num_sequences:
            last = at + 8 * (len(borders) - 1)
            raise self._fail(last, f"the last document border is {borders[-1]}, not the {num_sequences} sequences")
        for start, stop in chunks(len(borders)):
            falls = np.flatnonzero(np.diff(borders[start : stop + 1]) < 0)
            if len(falls):
                border = start + int(falls[0]) + 1
                raise self._fail(at + 8 * border, f"document border {border} is lower than the one before it")

    def _check_pointers(self) -> int:
        lengths, pointers, itemsize = self.sequence_lengths, self.sequence_pointers, self.dtype.itemsize
        num_tokens = 0
        for start, stop in chunks(len(self)):
            part = lengths[start:stop]
            negative = np.flatnonzero(part < 0)
            if len(negative):
                sequence = start + int(negative[0])
                raise self._fail(HEADER_BYTES + 4 * sequence, f"sequence {sequence} has length {lengths[sequence]}")
            wrong = np.flatnonzero(pointers[start:stop] != sequence_pointers(part, itemsize) + num_tokens * itemsize)
            if len(wrong):
                sequence = start + int(wrong[0])
                raise self._fail(
                    HEADER_BYTES + 4 * len(self) + 8 * sequence,
                    f"sequence {sequence} points at byte {pointers[sequence]} of the .bin file, "
                    "which is not where the sequences before it end",
                )
            num_tokens += int(part.sum(dtype=np.int64))
        return num_tokens

    def _check_bin(self) -> None:
        found, wanted = self.bin_path.stat().st_size, self.num_tokens * self.dtype.itemsize
        if found != wanted:
            raise CorpusError(
                f"{self.bin_path}: byte {min(found, wanted)}: the file has {found:,} bytes; {self.num_tokens:,} tokens "
                f"of {self.dtype.name} (from {self.idx_path.name}) take {wanted:,}"
            )


def _map(path: Path) -> memoryview:
    """The bytes of a file, mapped read-only; an empty file cannot be mapped and is empty bytes."""
    if path.stat().st_size == 0:
        return memoryview(b"")
    return np.memmap(path, dtype=np.uint8, mode="r").data


def merge_corpora(sources: Sequence[Path | str], target: Path | str) -> None:
    """Join finished pairs, in the order given, into one pair TARGET.bin and TARGET.idx.

    Raises CorpusError when there is none, when one is damaged, or when their dtypes differ.
    """
    if not sources:
        raise CorpusError("nothing to merge: no prefix is given")
    corpora = [IndexedDataset(prefix) for prefix in sources]
    with IndexedDatasetBuilder(target, corpora[0].dtype) as builder:
        for corpus in corpora:
            builder.add_corpus(corpus)
