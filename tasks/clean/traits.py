"""What is compared of each document, kept on disk: digests of URL and text, and the keys of its bands.

A traits file is a uint64 matrix [rows, documents] in numpy's format: row 0 has the number of n-grams, rows 1 and 2 the
digest of the text, rows 3 and 4 that of the URL (zero without one), the rest the band keys.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tasks.clean.config import DedupConfig
from tasks.clean.minhash import band_keys, rows_per_band, signatures
from tasks.clean.shingles import Hashes, shingle_hashes
from tasks.progress import StageReport
from tasks.records import Document, read_rows

NUM_GRAMS_ROW, TEXT_ROW, URL_ROW, BANDS_ROW = 0, 1, 3, 5
BATCH_CHARACTERS = 1 << 18
_SPACE = re.compile(r"\s+")


def text_digest(text: str) -> bytes:
    """128 bits of the text in NFC with runs of white space as one blank and none at the ends; letter case counts."""
    normal = text if text.isascii() else unicodedata.normalize("NFC", text)
    return _digest(" ".join(normal.split()) if normal.isascii() else _SPACE.sub(" ", normal).strip())


def url_digest(url: str) -> bytes:
    """128 bits of the URL without its fragment; zero for an empty one, which equals no other."""
    address = url.partition("#")[0].strip()
    return _digest(address) if address else bytes(16)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def documents_of(source: Path) -> Iterator[Document]:
    """The documents of a file in order, bad rows left out."""
    return (row.document for row in read_rows(source) if row.document is not None)


def batches_of(source: Path) -> Iterator[list[Document]]:
    """Documents in lists of about BATCH_CHARACTERS characters."""
    batch: list[Document] = []
    size = 0
    for document in documents_of(source):
        batch.append(document)
        size += len(document.text)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def describe_shard(shard: tuple[str, DedupConfig], directory: Path) -> tuple[list[str], StageReport]:
    """Write the traits file of one file of documents."""
    source, config = Path(shard[0]), shard[1]
    rows = rows_per_band(config.threshold, config.num_hashes)
    num_rows = BANDS_ROW + (config.num_hashes // rows if config.near else 0)
    parts = [np.zeros((num_rows, 0), np.uint64)]
    for batch in batches_of(source):
        part = np.zeros((num_rows, len(batch)), np.uint64)
        part[TEXT_ROW : TEXT_ROW + 2] = _columns([text_digest(document.text) for document in batch])
        part[URL_ROW : URL_ROW + 2] = _columns([url_digest(document.url) for document in batch])
        if config.near:
            hashes, offsets = shingle_hashes([document.text for document in batch], config.shingle_words)
            part[NUM_GRAMS_ROW] = np.diff(offsets).astype(np.uint64)
            part[BANDS_ROW:] = band_keys(signatures(hashes, offsets, config.seed, config.num_hashes), rows)
        parts.append(part)
    name = source.name + ".npy"
    save(directory / name, np.concatenate(parts, axis=1))
    return [name], StageReport(unit="documents")


def _columns(digests: list[bytes]) -> Hashes:
    return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2).T


def save(path: Path, array: Hashes) -> None:
    """Write an array so that the file appears whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as stream:
        np.save(stream, array)
    temporary.replace(path)
