"""Which URLs are the first of their page: exact, in order, in memory or with bounded memory on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tasks.scrape.filter_reasons import FilterReason, Tally

NUM_PARTITIONS = 64
BUFFER_BYTES = 1 << 16
KEY_BYTES = 16
RECORD = np.dtype([("high", ">u8"), ("low", ">u8"), ("text", ">u8"), ("index", ">u8")])
FIRST, EXACT, CANONICAL = 0, 1, 2
LINES_PER_PIECE = 10_000


class Dedup(Protocol):
    """Takes URLs with their keys in order; gives back the first of each key in order."""

    def add(self, urls: Sequence[str], keys: Sequence[str]) -> list[str]:
        """URLs that are known by now to be first."""

    def finish(self) -> Iterator[list[str]]:
        """All others, once everything was added."""


class MemoryDedup:
    """Keeps every key."""

    def __init__(self, tally: Tally) -> None:
        self._first: dict[str, str] = {}
        self._tally = tally

    def add(self, urls: Sequence[str], keys: Sequence[str]) -> list[str]:
        kept: list[str] = []
        remember = self._first.setdefault
        for url, key in zip(urls, keys, strict=True):
            known = remember(key, url)
            if known is url:
                kept.append(url)
            else:
                exact = known == url
                self._tally.drop(FilterReason.DUPLICATE_EXACT if exact else FilterReason.DUPLICATE_CANONICAL, url)
        return kept

    def finish(self) -> Iterator[list[str]]:
        return iter(())


class DiskDedup:
    """Keeps digests of 128 bits in files, one for each range of digests, and looks at one file at a time.

    Memory: one byte a URL, and 32 bytes for each URL of the largest file (100 million URLs: 0.2 GB).
    """

    def __init__(self, folder: Path, tally: Tally) -> None:
        """`folder` is made, and must not be in use by anything else."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._tally = tally
        self._num_urls = 0
        self._buffers = [bytearray() for _ in range(NUM_PARTITIONS)]
        self._files = [self._part(number).open("wb") for number in range(NUM_PARTITIONS)]
        self._spool = (folder / "urls.txt").open("w", encoding="utf-8", newline="\n")

    def _part(self, number: int) -> Path:
        return self._folder / f"part-{number:02d}"

    def add(self, urls: Sequence[str], keys: Sequence[str]) -> list[str]:
        for url, key in zip(urls, keys, strict=True):
            digest = hashlib.blake2b(key.encode(), digest_size=KEY_BYTES).digest()
            text = digest[:8] if key == url else hashlib.blake2b(url.encode(), digest_size=8).digest()
            number = digest[0] % NUM_PARTITIONS
            buffer = self._buffers[number]
            buffer += digest + text + self._num_urls.to_bytes(8, "big")
            if len(buffer) >= BUFFER_BYTES:
                self._files[number].write(buffer)
                buffer.clear()
            self._num_urls += 1
        if urls:
            self._spool.write("\n".join(urls) + "\n")
        return []

    def finish(self) -> Iterator[list[str]]:
        self._spool.close()
        states = np.zeros(self._num_urls, dtype=np.uint8)
        for number, file in enumerate(self._files):
            file.write(self._buffers[number])
            file.close()
            _mark(np.fromfile(self._part(number), dtype=RECORD), states)
            self._part(number).unlink()
        kept: list[str] = []
        with (self._folder / "urls.txt").open(encoding="utf-8", newline="\n") as spool:
            for line, state in zip(spool, states.tolist(), strict=True):
                url = line[:-1]
                if state == FIRST:
                    kept.append(url)
                    if len(kept) >= LINES_PER_PIECE:
                        yield kept
                        kept = []
                else:
                    exact = state == EXACT
                    self._tally.drop(FilterReason.DUPLICATE_EXACT if exact else FilterReason.DUPLICATE_CANONICAL, url)
        yield kept
        (self._folder / "urls.txt").unlink()


def _mark(records: npt.NDArray[np.void], states: npt.NDArray[np.uint8]) -> None:
    """Write EXACT or CANONICAL into `states` [URLs] for every record whose key an earlier record has."""
    if not len(records):
        return
    order = np.lexsort((records["index"], records["low"], records["high"]))
    records = records[order]
    starts = np.ones(len(records), dtype=bool)
    starts[1:] = (records["high"][1:] != records["high"][:-1]) | (records["low"][1:] != records["low"][:-1])
    first = np.flatnonzero(starts)[np.cumsum(starts) - 1]
    same_text = records["text"] == records["text"][first]
    states[records["index"].astype(np.int64)] = np.where(starts, FIRST, np.where(same_text, EXACT, CANONICAL))
