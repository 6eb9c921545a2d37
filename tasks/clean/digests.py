"""What is compared of each line, kept on disk: a digest of its words, one of its URL, and the keys of its bands.

A digests file is a uint64 matrix [rows, lines] in numpy's format. Lines that are no documents have a column too, so
that a line's number is its number everywhere; their state says so. The lines themselves are kept beside it as plain
text, so that later steps reach those that they want and read no others: scratch space for the corpus uncompressed.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.clean.config import DedupConfig
from tasks.clean.lines import read_text
from tasks.clean.minhash import band_keys, rows_per_band, signatures
from tasks.clean.shingles import BATCH_CHARACTERS, Hashes, Offsets, byte_hashes, encode
from tasks.clean.spool import Spool
from tasks.progress import StageReport
from tasks.records import line_lists, source_name

STATE_ROW, END_ROW, BYTES_ROW, NUM_GRAMS_ROW, WORDS_ROW, URL_ROW, BANDS_ROW = 0, 1, 2, 3, 4, 6, 8
"""State and end of the line, UTF-8 bytes of its text, number of its n-grams, 128 bits of them and of the URL, bands."""
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


def words_digests(hashes: Hashes, offsets: Offsets) -> Hashes:
    """uint64 [2, documents]: sums of the n-grams of each document and of their squares.

    Equal texts have equal sums, white space aside; so have texts that differ in letter case or punctuation alone, and
    no others but by chance (2^-128).
    """
    sums = np.zeros((2, len(offsets) - 1), np.uint64)
    full = np.flatnonzero(np.diff(offsets))
    if len(full):
        starts = offsets[:-1][full]
        sums[0, full] = np.add.reduceat(hashes, starts)
        with np.errstate(over="ignore"):
            sums[1, full] = np.add.reduceat(hashes * hashes, starts)
    return sums


@dataclass
class _Batch:
    """Lines on their way into a digests file."""

    states: list[int] = field(default_factory=list)
    num_bytes: list[int] = field(default_factory=list)
    urls: list[bytes] = field(default_factory=list)
    encoded: list[bytes] = field(default_factory=list)

    def columns(self, config: DedupConfig, rows_of_band: int, num_rows: int) -> Hashes:
        """Their part of the matrix, without END_ROW."""
        part = np.zeros((num_rows, len(self.states)), np.uint64)
        part[STATE_ROW] = self.states
        part[BYTES_ROW] = self.num_bytes
        hashes, offsets = byte_hashes(self.encoded, config.shingle_words)
        part[NUM_GRAMS_ROW] = np.diff(offsets)
        part[WORDS_ROW : WORDS_ROW + 2] = words_digests(hashes, offsets)
        if self.urls:
            part[URL_ROW : URL_ROW + 2] = columns(self.urls)
        if config.near:
            part[BANDS_ROW:] = band_keys(signatures(hashes, offsets, config.seed, config.num_hashes), rows_of_band)
        return part


def describe_shard(shard: tuple[str, DedupConfig], directory: Path) -> tuple[list[str], StageReport]:
    """Write the digests file of one file of documents, and its lines as plain text."""
    source, config = Path(shard[0]), shard[1]
    rows_of_band = rows_per_band(config.threshold, config.num_hashes)
    num_rows = BANDS_ROW + (config.num_hashes // rows_of_band if config.near else 0)
    parts = [np.zeros((num_rows, 0), np.uint64)]
    lengths: list[int] = []
    batch, held, number, name = _Batch(), 0, 0, source_name(source)
    names = [source.name + ".npy", source.name + ".lines"]
    with (directory / names[1]).open("wb") as spool:
        for lines in line_lists(source):
            spool.write(b"\n".join((*lines, b"")))
            lengths.extend(map(len, lines))
            for line in lines:
                number += 1
                state, text, url = read_text(line, number, name)
                encoded = text.encode()
                batch.states.append(state)
                batch.num_bytes.append(len(encoded))
                batch.encoded.append(encoded if text.isascii() else encode(text))
                if config.urls:
                    batch.urls.append(url_digest(url))
                held += len(encoded)
                if held >= BATCH_CHARACTERS:
                    parts.append(batch.columns(config, rows_of_band, num_rows))
                    batch, held = _Batch(), 0
    if batch.states:
        parts.append(batch.columns(config, rows_of_band, num_rows))
    matrix = np.concatenate(parts, axis=1)
    matrix[END_ROW] = np.cumsum(np.array(lengths, np.uint64) + np.uint64(1))
    save(directory / names[0], matrix)
    return names, StageReport(unit="documents")


def open_spool(digests: Path) -> Spool:
    """The lines that were kept beside a digests file."""
    return Spool(digests.with_suffix(".lines"), np.load(digests, mmap_mode="r")[END_ROW])


def columns(digests: list[bytes]) -> Hashes:
    """uint64 [2, digests] of 16-byte digests."""
    return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2).T


def save(path: Path, array: npt.NDArray[np.generic]) -> None:
    """Write an array row by row so that the file appears whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as stream:
        np.save(stream, np.ascontiguousarray(array))
    temporary.replace(path)
