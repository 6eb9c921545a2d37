"""Which URLs are the first of their page: exact, in order, with bounded memory.

The URLs are written to a spool as they come. Of each stays a record of digests, in memory or, for long lists, in files
by range of digests; at the end the records of each range are sorted and say which places of the spool are copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.scrape.filter_blocks import Kept
from tasks.scrape.filter_digest import Places
from tasks.scrape.filter_reasons import FilterReason, Tally

PARTITION_BITS = 6
RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("exact", "<u8"), ("index", "<u8")])
FIRST, EXACT, CANONICAL = 0, 1, 2
BUFFERED_RECORDS = 1 << 19
SPOOL_BYTES = 1 << 22
_REASONS = ((EXACT, FilterReason.DUPLICATE_EXACT), (CANONICAL, FilterReason.DUPLICATE_CANONICAL))


class Dedup:
    """Takes URLs with the digests of their keys in order; gives back the first of each key in order.

    Memory: one byte a URL, and 32 bytes for each URL of the largest range or of `max_in_memory`, about twice while they
    are sorted (100 million URLs: 0.2 GB). Disk: the URLs, and 32 bytes for each.
    """

    def __init__(self, folder: Path, tally: Tally, max_in_memory: int) -> None:
        """`folder` is made, and must not be in use by anything else. `max_in_memory` are URLs."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._tally = tally
        self._max = max_in_memory
        self._num_urls = 0
        self._records: list[npt.NDArray[np.void]] = []
        self._num_records = 0
        self._on_disk = False
        self._spool = (folder / "urls.txt").open("wb")

    def _part(self, number: int) -> Path:
        return self._folder / f"part-{number:02d}"

    def add(self, kept: Kept) -> None:
        """More URLs of the list."""
        records = np.empty(len(kept.high), RECORD)
        records["high"], records["low"], records["exact"] = kept.high, kept.low, kept.exact
        records["index"] = np.arange(self._num_urls, self._num_urls + len(records))
        self._num_urls += len(records)
        self._spool.write(kept.text)
        self._records.append(records)
        self._num_records += len(records)
        if not self._on_disk and self._num_records > self._max:
            self._on_disk = True
            for number in range(1 << PARTITION_BITS):
                self._part(number).unlink(missing_ok=True)
        if self._on_disk and self._num_records >= BUFFERED_RECORDS:
            self._write_parts()

    def _write_parts(self) -> None:
        records = np.concatenate(self._records)
        ranges = (records["high"] >> np.uint64(64 - PARTITION_BITS)).astype(np.int64)
        records = records[np.argsort(ranges, kind="stable")]
        ends = np.cumsum(np.bincount(ranges, minlength=1 << PARTITION_BITS)).tolist()
        for number, (first, last) in enumerate(zip([0, *ends], ends, strict=False)):
            with self._part(number).open("ab") as part:
                records[first:last].tofile(part)
        self._records, self._num_records = [], 0

    def finish(self) -> Iterator[bytes]:
        """The first URLs, once everything was added: pieces of text with a line end after each URL."""
        self._spool.close()
        states = np.zeros(self._num_urls, dtype=np.uint8)
        if self._on_disk:
            self._write_parts()
            for number in range(1 << PARTITION_BITS):
                _mark(np.fromfile(self._part(number), dtype=RECORD), states)
                self._part(number).unlink()
        elif self._records:
            records, self._records = np.concatenate(self._records), []
            _mark(records, states)
        yield from self._read_spool(states)
        (self._folder / "urls.txt").unlink()

    def _read_spool(self, states: npt.NDArray[np.uint8]) -> Iterator[bytes]:
        first, rest = 0, b""
        with (self._folder / "urls.txt").open("rb") as spool:
            while piece := spool.read(SPOOL_BYTES):
                whole, end, tail = (rest + piece).rpartition(b"\n")
                text, rest = whole + end, tail
                array = np.frombuffer(text, np.uint8)
                ends = np.flatnonzero(array == ord("\n"))
                found = states[first : first + len(ends)]
                first += len(ends)
                if not found.any():
                    yield text
                    continue
                starts = np.concatenate(([0], ends[:-1] + 1))
                self._drop(text, starts, ends, found)
                yield array[np.repeat(found == FIRST, ends - starts + 1)].tobytes()

    def _drop(self, text: bytes, starts: Places, ends: Places, states: npt.NDArray[np.uint8]) -> None:
        for state, reason in _REASONS:
            places = np.flatnonzero(states == state)

            def line_at(place: int, places: Places = places) -> str:
                return text[starts[places[place]] : ends[places[place]]].decode("utf-8", "backslashreplace")

            if len(places):
                self._tally.drop_many(reason, len(places), line_at)


def _mark(records: npt.NDArray[np.void], states: npt.NDArray[np.uint8]) -> None:
    """Write EXACT or CANONICAL into `states` [URLs] for every record whose key an earlier record has.

    `records` are in the order of their index.
    """
    high = records["high"]
    order = np.argsort(high, kind="stable")
    high = high[order]
    same = np.flatnonzero(high[1:] == high[:-1])
    if not len(same):
        return
    # few records share their first half with another one: only these are looked at
    some = np.unique(np.concatenate((same, same + 1)))
    records = records[order[some]]
    records = records[np.lexsort((records["index"], records["low"], records["high"]))]
    starts = np.ones(len(records), dtype=bool)
    starts[1:] = (records["high"][1:] != records["high"][:-1]) | (records["low"][1:] != records["low"][:-1])
    first = np.flatnonzero(starts)[np.cumsum(starts) - 1]
    same_text = records["exact"] == records["exact"][first]
    states[records["index"].astype(np.int64)] = np.where(starts, FIRST, np.where(same_text, EXACT, CANONICAL))
