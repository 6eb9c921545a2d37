"""Megatron's `.bin`/`.idx` pair, byte for byte: memory-mapped reader, streaming writer. numpy only.

`.bin` holds the token ids of all sequences back to back. `.idx`, little-endian, unaligned (Megatron-LM,
megatron/core/datasets/indexed_dataset.py), with n sequences and d document borders (documents + 1):

    offset        bytes  type      content
    0             9      bytes     magic "MMIDIDX\\0\\0"
    9             8      u64       version, 1
    17            1      u8        dtype code of .bin
    18            8      u64       n
    26            8      u64       d
    34            4n     i32[n]    sequence lengths in tokens
    34+4n         8n     i64[n]    byte offset of each sequence in .bin
    34+12n        8d     i64[d]    document borders: document k is sequences [D[k], D[k+1])
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, overload

import numpy as np
import numpy.typing as npt

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER_BYTES = 34
DTYPES: dict[int, type[np.generic]] = {
    1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.float64, 7: np.float32, 8: np.uint16,
}  # fmt: skip
CODES = {np.dtype(dtype): code for code, dtype in DTYPES.items()}
UINT16_VOCAB_LIMIT = 65500
MAX_SEQUENCE_TOKENS = 2**31 - 1

Tokens = npt.NDArray[Any]


class CorpusError(ValueError):
    """A .bin/.idx pair is not what it should be; the message names the file and what is wrong in it."""


def best_dtype(vocab_size: int | None) -> type[np.generic]:
    """uint16 for a known vocabulary below 65,500 ids, else int32 (Megatron's rule)."""
    return np.uint16 if vocab_size is not None and vocab_size < UINT16_VOCAB_LIMIT else np.int32


def sequence_pointers(lengths: npt.ArrayLike, itemsize: int) -> npt.NDArray[np.int64]:
    """Byte offset of each sequence: the exclusive running sum of lengths times `itemsize`, in 64 bits."""
    sizes = np.asarray(lengths, dtype=np.int64)
    pointers = np.zeros(len(sizes), dtype=np.int64)
    np.cumsum(sizes[:-1], out=pointers[1:]) if len(sizes) else None
    return pointers * itemsize


def check_lengths(lengths: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Sequence lengths as int32. Raises CorpusError, naming the sequence, for one that does not fit the format."""
    sizes = np.asarray(lengths, dtype=np.int64)
    wrong = np.flatnonzero((sizes < 0) | (sizes > MAX_SEQUENCE_TOKENS))
    if len(wrong):
        index = int(wrong[0])
        raise CorpusError(
            f"sequence {index} has {int(sizes[index])} tokens; the format holds 0 to {MAX_SEQUENCE_TOKENS} in one sequence"
        )
    return sizes.astype(np.int32)


def write_index(path: Path, lengths: npt.ArrayLike, document_indices: npt.ArrayLike, dtype: type[np.generic]) -> None:
    """Write an .idx file, whole or not at all. Raises CorpusError for lengths that do not fit."""
    sizes = check_lengths(lengths)
    borders = np.asarray(document_indices, dtype=np.int64)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as stream:
        stream.write(MAGIC)
        stream.write(np.array([VERSION], "<u8").tobytes())
        stream.write(np.array([CODES[np.dtype(dtype)]], "u1").tobytes())
        stream.write(np.array([len(sizes), len(borders)], "<u8").tobytes())
        stream.write(sizes.astype("<i4").tobytes())
        stream.write(sequence_pointers(sizes, np.dtype(dtype).itemsize).astype("<i8").tobytes())
        stream.write(borders.astype("<i8").tobytes())
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


class IndexedDatasetBuilder:
    """Streams documents into PREFIX.bin and writes PREFIX.idx at the end; both get their names when they are whole.

    Megatron's rules: a document without tokens is a document without a sequence (a repeated border).
    """

    def __init__(self, prefix: Path, dtype: type[np.generic]) -> None:
        self._prefix, self._dtype = prefix, dtype
        self._lengths: list[int] = []
        self._borders = [0]
        self._temporary = prefix.with_name(prefix.name + ".bin.tmp")
        self._stream = self._temporary.open("wb")

    def add_document(self, tokens: npt.ArrayLike) -> None:
        """Append one document of token ids (1-D). Raises CorpusError for an id that the dtype does not hold."""
        ids = np.asarray(tokens)
        if len(ids):
            info = np.iinfo(self._dtype)  # type: ignore[type-var]
            if ids.min() < info.min or ids.max() > info.max:
                raise CorpusError(f"document {len(self._borders) - 1}: token id {ids.max()} does not fit {info.dtype}")
            self._stream.write(np.ascontiguousarray(ids, dtype=self._dtype).tobytes())
            self._lengths.append(len(ids))
        self._borders.append(len(self._lengths))

    def __enter__(self) -> IndexedDatasetBuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._stream.close()
            self._temporary.unlink(missing_ok=True)
            return
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        write_index(self._prefix.with_name(self._prefix.name + ".idx"), self._lengths, self._borders, self._dtype)
        self._temporary.replace(self._prefix.with_name(self._prefix.name + ".bin"))


class IndexedDataset:
    """Reads PREFIX.bin and PREFIX.idx, memory-mapped. Sequences are read-only views, nothing is copied."""

    def __init__(self, prefix: Path | str) -> None:
        """Open and check the pair. Raises CorpusError that names the file and what is wrong."""
        self.prefix = Path(prefix)
        self.bin_path = self.prefix.with_name(self.prefix.name + ".bin")
        self.idx_path = self.prefix.with_name(self.prefix.name + ".idx")
        self._open()

    def _open(self) -> None:
        for path in (self.idx_path, self.bin_path):
            if not path.is_file():
                raise CorpusError(f"{path}: no such file (a corpus is a .bin and an .idx of one name)")
        size = self.idx_path.stat().st_size
        if size < HEADER_BYTES:
            raise CorpusError(f"{self.idx_path}: {size} bytes, but the header alone is {HEADER_BYTES}")
        self._index = np.memmap(self.idx_path, dtype=np.uint8, mode="r")
        header = bytes(self._index[:HEADER_BYTES])
        if header[:9] != MAGIC:
            raise CorpusError(f"{self.idx_path}: bytes 0 to 8 are {header[:9]!r}, not the magic {MAGIC!r}")
        version = int.from_bytes(header[9:17], "little")
        if version != VERSION:
            raise CorpusError(f"{self.idx_path}: version {version} at byte 9, only {VERSION} is known")
        if header[17] not in DTYPES:
            raise CorpusError(f"{self.idx_path}: dtype code {header[17]} at byte 17; known: {sorted(DTYPES)}")
        self.dtype = DTYPES[header[17]]
        n, d = int.from_bytes(header[18:26], "little"), int.from_bytes(header[26:34], "little")
        expected = HEADER_BYTES + 12 * n + 8 * d
        if size != expected:
            raise CorpusError(f"{self.idx_path}: {size} bytes, but {n} sequences and {d} borders need {expected}")
        self.sequence_lengths = np.frombuffer(self._index, "<i4", n, HEADER_BYTES)
        self.sequence_pointers = np.frombuffer(self._index, "<i8", n, HEADER_BYTES + 4 * n)
        self.document_indices = np.frombuffer(self._index, "<i8", d, HEADER_BYTES + 12 * n)
        self._check(n, d)
        num_bytes = self.bin_path.stat().st_size
        self._tokens: Tokens = (
            np.memmap(self.bin_path, dtype=self.dtype, mode="r") if num_bytes else np.zeros(0, self.dtype)
        )

    def _check(self, n: int, d: int) -> None:
        lengths, borders = self.sequence_lengths, self.document_indices
        if n and lengths.min() < 0:
            raise CorpusError(f"{self.idx_path}: sequence {int(lengths.argmin())} has a negative length")
        itemsize = np.dtype(self.dtype).itemsize
        wrong = np.flatnonzero(self.sequence_pointers != sequence_pointers(lengths, itemsize))
        if len(wrong):
            raise CorpusError(
                f"{self.idx_path}: the offset of sequence {int(wrong[0])} is not the sum of lengths before it"
            )
        if d == 0 or borders[0] != 0 or borders[-1] != n or (np.diff(borders) < 0).any():
            raise CorpusError(f"{self.idx_path}: the document borders do not rise from 0 to {n}")
        needed, found = int(lengths.sum(dtype=np.int64)) * itemsize, self.bin_path.stat().st_size
        if needed != found:
            raise CorpusError(f"{self.bin_path}: {found} bytes, but the index describes {needed}")

    def __getstate__(self) -> dict[str, Any]:
        return {"prefix": self.prefix, "bin_path": self.bin_path, "idx_path": self.idx_path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.sequence_lengths)

    @overload
    def __getitem__(self, index: int) -> Tokens: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tokens]: ...
    def __getitem__(self, index: int | slice) -> Tokens | list[Tokens]:
        """The tokens of one sequence, or of a run of sequences. Raises IndexError, and ValueError for a step."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("slices of a corpus are contiguous; a step is not possible")
            return [self.get(item) for item in range(start, stop)]
        return self.get(index)

    def get(self, index: int, offset: int = 0, length: int | None = None) -> Tokens:
        """Tokens [offset, offset + length) of sequence `index`, to its end without `length`; a read-only view."""
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"{self.prefix} has {len(self)} sequences, there is no number {index}")
        size = int(self.sequence_lengths[index])
        end = size if length is None else offset + length
        if not 0 <= offset <= end <= size:
            raise IndexError(f"sequence {index} has {size} tokens, not [{offset}, {end})")
        start = int(self.sequence_pointers[index]) // np.dtype(self.dtype).itemsize
        return self._tokens[start + offset : start + end]


def merge_corpora(sources: Sequence[Path], target: Path) -> None:
    """Concatenate finished pairs into TARGET.bin and TARGET.idx, documents in order.

    Raises CorpusError when there is no source or the dtypes differ.
    """
    if not sources:
        raise CorpusError("nothing to merge")
    corpora = [IndexedDataset(prefix) for prefix in sources]
    dtypes = {np.dtype(corpus.dtype) for corpus in corpora}
    if len(dtypes) > 1:
        names = ", ".join(f"{corpus.prefix}: {np.dtype(corpus.dtype)}" for corpus in corpora)
        raise CorpusError(f"only corpora of one dtype can be merged ({names})")
    temporary = target.with_name(target.name + ".bin.tmp")
    with temporary.open("wb") as stream:
        for corpus in corpora:
            corpus._tokens.tofile(stream)
        stream.flush()
        os.fsync(stream.fileno())
    lengths = np.concatenate([corpus.sequence_lengths for corpus in corpora])
    borders, base = [np.zeros(1, np.int64)], 0
    for corpus in corpora:
        borders.append(corpus.document_indices[1:] + base)
        base += len(corpus)
    write_index(target.with_name(target.name + ".idx"), lengths, np.concatenate(borders), corpora[0].dtype)
    temporary.replace(target.with_name(target.name + ".bin"))
