"""What is compared of each line, kept on disk: a digest of its words, one of its URL, and the keys of its bands.

A digests file is a uint64 matrix [rows, lines] in numpy's format. Lines that are no documents have a column too, so
that a line's number is its number everywhere; their state says so.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.clean.config import DedupConfig
from tasks.clean.lines import line_lists, read_text, source_name
from tasks.clean.minhash import band_keys, rows_per_band, signatures
from tasks.clean.shingles import BATCH_CHARACTERS, Hashes, Offsets, byte_hashes, encode, mix
from tasks.progress import StageReport

STATE_ROW, BYTES_ROW, NUM_GRAMS_ROW, WORDS_ROW, URL_ROW, BANDS_ROW = 0, 1, 2, 3, 5, 7
"""State of the line, UTF-8 bytes of its text, number of its n-grams, 128 bits of them, 128 bits of the URL, bands."""
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
    """uint64 [2, documents]: two sums over the n-grams of each document. Equal texts have equal ones, white space
    aside; so do texts that differ in letter case or punctuation alone, and no others but by chance (2^-128)."""
    sums = np.zeros((2, len(offsets) - 1), np.uint64)
    full = np.flatnonzero(np.diff(offsets))
    if len(full):
        starts = offsets[:-1][full]
        sums[0, full] = np.add.reduceat(hashes, starts)
        sums[1, full] = np.add.reduceat(mix(hashes), starts)
    return sums


def describe_shard(shard: tuple[str, DedupConfig], directory: Path) -> tuple[list[str], StageReport]:
    """Write the digests file of one file of documents."""
    source, config = Path(shard[0]), shard[1]
    rows = rows_per_band(config.threshold, config.num_hashes)
    num_rows = BANDS_ROW + (config.num_hashes // rows if config.near else 0)
    parts = [np.zeros((num_rows, 0), np.uint64)]
    states: list[int] = []
    encoded: list[bytes] = []
    num_bytes: list[int] = []
    urls: list[bytes] = []
    held = number = 0

    def flush() -> None:
        part = np.zeros((num_rows, len(states)), np.uint64)
        part[STATE_ROW] = states
        part[BYTES_ROW] = num_bytes
        hashes, offsets = byte_hashes(encoded, config.shingle_words)
        part[NUM_GRAMS_ROW] = np.diff(offsets)
        part[WORDS_ROW : WORDS_ROW + 2] = words_digests(hashes, offsets)
        if urls:
            part[URL_ROW : URL_ROW + 2] = columns(urls)
        if config.near:
            part[BANDS_ROW:] = band_keys(signatures(hashes, offsets, config.seed, config.num_hashes), rows)
        parts.append(part)
        for one in (states, encoded, num_bytes, urls):
            one.clear()

    name = source_name(source)
    for lines in line_lists(source):
        for line in lines:
            number += 1
            state, text, url = read_text(line, number, name)
            one = encode(text)
            states.append(state)
            encoded.append(one)
            num_bytes.append(len(one) if text.isascii() else len(text.encode()))
            if config.urls:
                urls.append(url_digest(url))
            held += len(one)
            if held >= BATCH_CHARACTERS:
                flush()
                held = 0
    if states:
        flush()
    output = source.name + ".npy"
    save(directory / output, np.concatenate(parts, axis=1))
    return [output], StageReport(unit="documents")


def columns(digests: list[bytes]) -> Hashes:
    """uint64 [2, digests] of 16-byte digests."""
    return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2).T


def save(path: Path, array: npt.NDArray[np.generic]) -> None:
    """Write an array so that the file appears whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as stream:
        np.save(stream, array)
    temporary.replace(path)
