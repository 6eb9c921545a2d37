"""Writing of .bin/.idx token files in one stream."""

from __future__ import annotations

import os
import shutil
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from trainer.data.errors import CorpusError
from trainer.data.index_format import MAX_SEQUENCE_TOKENS, dtype_code, write_index

if TYPE_CHECKING:
    from trainer.data.indexed_dataset import IndexedDataset

COPY_BYTES = 16 << 20


class IndexedDatasetBuilder:
    """Writes PREFIX.bin and PREFIX.idx; both appear under their names, whole, when `finalize` is called.

    As a context manager it finalizes at the end, and leaves nothing behind when the block raised. Memory: 4 bytes a
    sequence and 8 a document.
    """

    def __init__(self, prefix: Path | str, dtype: DTypeLike) -> None:
        """`prefix` names the pair; its folder must exist. Raises CorpusError for a dtype that holds no tokens."""
        self.prefix = Path(prefix)
        self.dtype: np.dtype[Any] = np.dtype(dtype).newbyteorder("<")
        dtype_code(self.dtype)
        self._limits = np.iinfo(self.dtype)
        self._sizes = array("i")
        self._borders = array("q", [0])
        self._bin_path = self.prefix.with_name(self.prefix.name + ".bin")
        self._idx_path = self.prefix.with_name(self.prefix.name + ".idx")
        self._temporary = self._bin_path.with_name(self._bin_path.name + ".tmp")
        self._stream = self._temporary.open("wb")

    def add_item(self, tokens: ArrayLike) -> None:
        """Append one sequence to the current document.

        Raises CorpusError for a token that the dtype cannot hold and for 2^31 tokens or more, naming the document.
        """
        values = np.asarray(tokens)
        if values.ndim != 1:
            raise CorpusError(f"a sequence has one dimension, not {values.ndim}")
        if len(values) > MAX_SEQUENCE_TOKENS:
            raise CorpusError(
                f"document {len(self._borders) - 1} has {len(values):,} tokens in one sequence; a sequence holds at "
                f"most {MAX_SEQUENCE_TOKENS:,}, because its length is stored as int32. Split the document."
            )
        self._stream.write(self._as_bytes(values))
        self._sizes.append(len(values))

    def end_document(self) -> None:
        """The sequences since the last call are one document; with none of them the document is empty."""
        self._borders.append(len(self._sizes))

    def add_document(self, tokens: ArrayLike, lengths: Sequence[int] | None = None) -> None:
        """Append one document: one sequence, or consecutive sequences of the given lengths, which must add up.

        A document without tokens has no sequence, as in Megatron's files.
        """
        values = np.asarray(tokens)
        if lengths is None:
            lengths = [len(values)] if len(values) else []
        if sum(lengths) != len(values):
            raise CorpusError(f"lengths add up to {sum(lengths)}, the document has {len(values)} tokens")
        start = 0
        for length in lengths:
            self.add_item(values[start : start + length])
            start += length
        self.end_document()

    def add_documents(self, documents: Iterable[ArrayLike]) -> None:
        """Append documents of one sequence each."""
        for tokens in documents:
            self.add_document(tokens)

    def add_corpus(self, corpus: IndexedDataset) -> None:
        """Append all documents of a finished pair. Raises CorpusError when its dtype is another."""
        if corpus.dtype != self.dtype:
            raise CorpusError(f"{corpus.prefix}: tokens are {corpus.dtype.name}, not {self.dtype.name} as the others")
        first = len(self._sizes)
        with corpus.bin_path.open("rb") as source:
            shutil.copyfileobj(source, self._stream, COPY_BYTES)
        self._sizes.frombytes(corpus.sequence_lengths.astype(np.int32).tobytes())
        self._borders.frombytes((corpus.document_indices[1:] + first).astype(np.int64).tobytes())

    def finalize(self) -> None:
        """Sync the tokens, write the index, and give both files their names."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        # An index is what makes a pair: an old one goes before the tokens it no longer fits.
        self._idx_path.unlink(missing_ok=True)
        self._temporary.replace(self._bin_path)
        sizes = np.frombuffer(self._sizes, dtype=np.intc) if self._sizes else np.empty(0, dtype=np.intc)
        write_index(self._idx_path, sizes, np.frombuffer(self._borders, dtype=np.int64), self.dtype)

    def discard(self) -> None:
        """Close and remove what was written so far."""
        self._stream.close()
        self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> IndexedDatasetBuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.finalize()
        else:
            self.discard()

    def _as_bytes(self, values: NDArray[Any]) -> memoryview | bytes:
        if not len(values):
            return b""
        if values.dtype != self.dtype:
            low, high = int(values.min()), int(values.max())
            if values.dtype.kind not in "iu" or low < self._limits.min or high > self._limits.max:
                document = len(self._borders) - 1
                raise CorpusError(
                    f"document {document} has tokens from {low} to {high} ({values.dtype.name}); {self.dtype.name} "
                    f"holds whole numbers from {self._limits.min} to {self._limits.max}. Give the right vocab_size."
                )
        return np.ascontiguousarray(values, dtype=self.dtype).data.cast("B")
