"""The work on one piece: read its documents, encode them, append the end of each, write tokens, lengths and map.

Runs in worker processes: everything a worker needs is in EncodeJob, and everything it makes lies in files.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import zstandard
from numpy.typing import NDArray

from tasks.errors import StageError
from tasks.progress import StageReport
from tasks.records import ZSTD_LEVEL, Document, parse_row, read_lines
from tasks.tokenize.engines import REFERENCE, Encode, EngineName, SpecialTokens, open_engine
from tasks.tokenize.pieces import Piece, PieceFiles
from trainer.data.index_format import MAX_SEQUENCE_TOKENS

BATCH_CHARACTERS = 1_000_000
"""Texts are encoded in batches of about this size; a longer text is encoded whole all the same."""
BATCH_DOCUMENTS = 10_000


@dataclass(frozen=True)
class EncodeJob:
    """A piece and how to encode it."""

    piece: Piece
    tokenizer_path: Path
    engine: EngineName
    special_tokens: SpecialTokens
    eod_token_id: int | None
    """Put after every document that has tokens; None puts nothing."""
    dtype: str
    """Of the tokens in the .bin file."""
    checked_fraction: float
    """Part of the documents that the reference encodes too."""


@dataclass
class Batch:
    """Documents that are encoded together."""

    documents: list[Document] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    """Line of each document in its shard, counted from 1."""
    num_characters: int = 0


def append_eod(ids: NDArray[Any], lengths: NDArray[np.int64], eod_token_id: int, dtype: str) -> NDArray[Any]:
    """`ids`, the texts back to back, with `eod_token_id` after every text that has tokens, as `dtype`."""
    ends = np.cumsum(lengths + (lengths > 0))
    tokens = np.full(int(ends[-1]) if len(ends) else 0, eod_token_id, dtype=dtype)
    is_text = np.ones(len(tokens), dtype=bool)
    is_text[ends[lengths > 0] - 1] = False
    tokens[is_text] = ids
    return tokens


def encode_piece(job: EncodeJob, directory: Path) -> tuple[list[str], StageReport]:
    """Encode the documents of a piece; returns the names of its files and its report.

    A line that is no document is dropped under its reason. Raises StageError when the engine gives other tokens than
    the reference, or a document has more than 2^31 - 1 tokens.
    """
    if multiprocessing.parent_process() is not None:
        # Workers are the parallelism: one thread each. Here only, because this process is ours.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        os.environ["RAYON_NUM_THREADS"] = "1"
    encode = open_engine(job.engine, job.tokenizer_path, job.special_tokens)
    report = StageReport(unit="documents")
    files = PieceFiles.of(job.piece.name)
    with ExitStack() as stack:
        tokens_file = stack.enter_context((directory / files.tokens).open("wb"))
        lengths_file = stack.enter_context((directory / files.lengths).open("wb"))
        map_file = stack.enter_context((directory / files.map).open("wb"))
        compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compressobj()
        for batch in _batches(job.piece, report):
            texts = [document.text for document in batch.documents]
            ids, lengths = encode(texts)
            _check_lengths(batch, lengths, job)
            _check_against_reference(batch, ids, lengths, job, directory, report)
            if job.eod_token_id is None:
                tokens = ids.astype(job.dtype)
            else:
                tokens = append_eod(ids, lengths, job.eod_token_id, job.dtype)
                lengths = lengths + (lengths > 0)
            tokens_file.write(tokens.data.cast("B") if len(tokens) else b"")
            lengths_file.write(lengths.astype("<i4").tobytes())
            map_file.write(compressor.compress(_map_lines(batch, job.piece.shard.name)))
            _count(report, texts, ids, lengths, job.engine)
        map_file.write(compressor.flush())
    return [files.tokens, files.lengths, files.map], report


def piece_documents(piece: Piece, report: StageReport) -> Iterator[tuple[int, Document]]:
    """(line, document) of the documents of a piece, counting every line; bad ones are dropped under their reason."""
    source = piece.shard.name.split(".", 1)[0]
    stop = None if piece.num_lines is None else piece.first_line + piece.num_lines
    lines = itertools.islice(read_lines(piece.shard), piece.first_line, stop)
    for number, line in enumerate(lines, start=piece.first_line + 1):
        row = parse_row(line, number, source)
        report.num_in += 1
        if row.document is None:
            report.drop(row.reason, f"{piece.shard.name}:{number}: {row.raw.decode(errors='replace')}")
            continue
        if row.repaired:
            report.count("lines_repaired")
        report.num_out += 1
        yield number, row.document


def _batches(piece: Piece, report: StageReport) -> Iterator[Batch]:
    batch = Batch()
    for row, document in piece_documents(piece, report):
        batch.documents.append(document)
        batch.rows.append(row)
        batch.num_characters += len(document.text)
        if batch.num_characters >= BATCH_CHARACTERS or len(batch.documents) >= BATCH_DOCUMENTS:
            yield batch
            batch = Batch()
    if batch.documents:
        yield batch


def _map_lines(batch: Batch, shard: str) -> bytes:
    rows = zip(batch.documents, batch.rows, strict=True)
    lines = (
        orjson.dumps(
            {"id": document.id, "url": document.url, "shard": shard, "row": row}, option=orjson.OPT_APPEND_NEWLINE
        )
        for document, row in rows
    )
    return b"".join(lines)


def _count(
    report: StageReport, texts: Sequence[str], ids: NDArray[Any], lengths: NDArray[np.int64], engine: str
) -> None:
    report.count("text_bytes", sum(len(text.encode()) for text in texts))
    report.count("text_tokens", len(ids))
    report.count(f"encoded_by_{engine}", len(texts))
    if num_empty := int(np.count_nonzero(lengths == 0)):
        report.count("empty_documents", num_empty)


def _check_lengths(batch: Batch, lengths: NDArray[np.int64], job: EncodeJob) -> None:
    longest = int(lengths.argmax())
    room = MAX_SEQUENCE_TOKENS - (job.eod_token_id is not None)
    if lengths[longest] > room:
        document = batch.documents[longest]
        raise StageError(
            f"document {document.id} ({job.piece.shard.name}, row {batch.rows[longest]}) has {int(lengths[longest]):,} "
            f"tokens; the length of a document is stored as int32. Split it, or drop it before this stage."
        )


def _check_against_reference(
    batch: Batch, ids: NDArray[Any], lengths: NDArray[np.int64], job: EncodeJob, directory: Path, report: StageReport
) -> None:
    """Encode some documents, chosen by a hash of their ids, by the reference too."""
    if job.engine == REFERENCE or not job.checked_fraction:
        return
    limit = int(job.checked_fraction * 2**32)
    reference: Encode = open_engine(REFERENCE, job.tokenizer_path, job.special_tokens)
    starts = np.cumsum(lengths) - lengths
    for index, document in enumerate(batch.documents):
        if zlib.crc32(document.id.encode("utf-8", "surrogatepass")) >= limit:
            continue
        report.count("checked_by_reference")
        wanted, _ = reference([document.text])
        found = ids[starts[index] : starts[index] + lengths[index]]
        if not np.array_equal(found, wanted):
            saved = directory / ".scratch" / f"difference-{job.piece.name}.json"
            saved.write_bytes(orjson.dumps({"document": document, "found": found.tolist(), "wanted": wanted.tolist()}))
            raise StageError(
                f"{job.engine} gives other tokens than {REFERENCE} for document {document.id} "
                f"({job.piece.shard.name}, row {batch.rows[index]}); both are in {saved}. "
                f"Set tokenize.resources.engine = {REFERENCE!r}."
            )
