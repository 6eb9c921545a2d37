"""The filter's quick way: verdicts for all lines of a block at once, by array operations over its bytes.

Heads are looked up for all lines together (filter_heads), so that a line of a dropped host never becomes an object of
Python. The other lines are gathered; those whose path and query hold plain characters alone get their verdict and the
digest of their key from the places of dots, slashes and marks. What is left, one line in thirty of a list of submitted
links, is judged one by one. The answers are those of `UrlFilter.judge`, which is the definition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tasks.scrape.filter_digest import PADDING, Places, Words, digest, digests_of, joined, words_of_buffer
from tasks.scrape.filter_heads import KEPT, NOT_PLAIN, HeadTable, HeadVerdicts
from tasks.scrape.filter_lines import ENTITY, PlainLines
from tasks.scrape.filter_reasons import REASONS, FilterReason, Tally

Mask = npt.NDArray[np.bool_]
PASSED = "passed"
"""Label of the lines of a site that are no copies of each other as far as is known when they are counted."""
MAX_BLOCKS = 1000
"""Blocks after which what is known about heads is counted and forgotten, whatever there is."""
_NEWLINE = 10


class Kept(NamedTuple):
    """URLs of a block that are kept so far, in order, and what they are compared by."""

    text: bytes
    """The URLs, each with a line end."""
    high: Words
    """First half of the digests [URLs] of their keys."""
    low: Words
    exact: Words
    """Digests [URLs] of the URLs as they are."""


NOTHING = Kept(b"", *(np.zeros(0, np.uint64) for _ in range(3)))


class LineRules(Protocol):
    """What a sieve asks of the rules."""

    repairs_entities: bool
    """Lines are judged with `&` for `&amp;`."""

    def judge_heads(self, heads: list[bytes]) -> HeadVerdicts:
        """The verdicts about beginnings of lines, up to the third slash."""

    def judge_rests(self, lines: PlainLines) -> Places:
        """For lines whose head is kept: the place of the reason in REASONS, KEPT, or NOT_PLAIN."""

    def judge_bytes(self, line: bytes) -> tuple[FilterReason | None, bytes, bytes]:
        """The reason, the URL and its key for any one line that is not blank."""

    def key_end(self, rest: bytes) -> int:
        """Where the key of a plain line ends in what follows its head, if nothing is left out inside."""

    def site_of(self, head: bytes) -> str:
        """The site that lines with this plain or canonical head belong to."""


class BlockSieve:
    """Rules for lines, applied to blocks."""

    def __init__(self, rules: LineRules) -> None:
        self._rules = rules
        self._heads = HeadTable(rules.judge_heads)
        self._dropped: list[Places] = []
        """Lines with a kept head that were dropped: number of the head times the number of reasons, plus the reason."""

    def sift(self, data: bytes, tally: Tally) -> Kept:
        """What is kept of the lines of `data` (any bytes, whole lines). Blank lines are passed over."""
        heads = self._heads
        if heads.is_full or len(self._dropped) > MAX_BLOCKS:
            self.finish(tally)
        buffer = data + b"\n" + PADDING
        array = np.frombuffer(buffer, np.uint8, len(data) + 1)
        ends = np.flatnonzero(array == _NEWLINE)
        starts = np.concatenate(([0], ends[:-1] + 1))
        slashes = np.append(np.flatnonzero(array == ord("/")), len(array))
        head_lengths = np.minimum(slashes[np.searchsorted(slashes[:-1], starts + len("https://"))], ends) - starts
        numbers = heads.find(buffer, words_of_buffer(buffer), starts, head_lengths)
        np.add.at(heads.counts, numbers, 1)
        codes = heads.codes[numbers].astype(np.int64)
        self._drop(buffer, starts, ends, codes, tally)
        places = np.flatnonzero(codes == KEPT)
        text = array[np.repeat(codes == KEPT, ends - starts + 1)].tobytes()
        # the one repair that many lines need; a line that needs others is judged as it was
        lines = PlainLines(text.replace(ENTITY, b"&") if self._rules.repairs_entities else text, head_lengths[places])
        numbers = numbers[places]
        verdicts = self._rules.judge_rests(lines)
        self._drop(lines.buffer, lines.starts, lines.ends, verdicts, tally)
        self._dropped.append((numbers * len(REASONS) + verdicts)[verdicts >= 0])
        plain = np.flatnonzero(verdicts == KEPT)
        kept = _digested(lines, plain, heads, numbers[plain])
        odd = np.flatnonzero(verdicts == NOT_PLAIN)
        slow = np.concatenate((np.flatnonzero(codes == NOT_PLAIN), places[odd]))
        owners = np.concatenate((np.full(len(slow) - len(odd), -1), numbers[odd]))
        order = np.argsort(slow)
        slow, owners = slow[order], owners[order]
        raw = [buffer[first:last] for first, last in zip(starts[slow].tolist(), ends[slow].tolist(), strict=True)]
        judged, more = self._sift_slowly(raw, owners.tolist(), tally)
        if not judged:
            return kept
        lengths = lines.ends[plain] - lines.starts[plain] + 1
        return _merged(kept, places[plain], lengths, more, slow[judged], self._rules.key_end)

    @staticmethod
    def _drop(buffer: bytes, starts: Places, ends: Places, codes: Places, tally: Tally) -> None:
        counts = np.bincount(codes[codes >= 0], minlength=len(REASONS)).tolist()
        for code, count in enumerate(counts):
            if count:

                def line_at(place: int, code: int = code) -> str:
                    line = np.flatnonzero(codes == code)[place]
                    return buffer[starts[line] : ends[line]].decode("utf-8", "surrogateescape")

                tally.drop_many(REASONS[code], count, line_at)

    def _sift_slowly(
        self, lines: list[bytes], owners: list[int], tally: Tally
    ) -> tuple[list[int], list[tuple[bytes, bytes]]]:
        """Places of the lines that are kept, and their URLs and keys."""
        kept: list[int] = []
        found: list[tuple[bytes, bytes]] = []
        dropped: list[int] = []
        for place, (line, owner) in enumerate(zip(lines, owners, strict=True)):
            if not line or line.isspace():
                continue
            reason, url, key = self._rules.judge_bytes(line)
            if reason is None:
                kept.append(place)
                found.append((url, key))
                if owner < 0:
                    tally.sites.add(self._rules.site_of(_split(key)[0]), PASSED, 1)
                continue
            tally.drop(reason, line.decode("utf-8", "surrogateescape"))
            if owner >= 0:
                dropped.append(owner * len(REASONS) + REASONS.index(reason))
        self._dropped.append(np.array(dropped, np.int64))
        return kept, found

    def finish(self, tally: Tally) -> None:
        """Counts of the sites; then every head is forgotten."""
        heads = self._heads
        counts, codes, sites = heads.counts.tolist(), heads.codes.tolist(), heads.sites
        pairs, times = np.unique(np.concatenate((*self._dropped, np.zeros(0, np.int64))), return_counts=True)
        for pair, count in zip(pairs.tolist(), times.tolist(), strict=True):
            number, code = divmod(pair, len(REASONS))
            tally.sites.add(sites[number], REASONS[code].value, count)
            counts[number] -= count
        for site, code, count in zip(sites, codes, counts, strict=False):
            if code != NOT_PLAIN and count:
                tally.sites.add(site, PASSED if code == KEPT else REASONS[code].value, count)
        self._dropped.clear()
        heads.forget()


def _digested(lines: PlainLines, places: Places, heads: HeadTable, numbers: Places) -> Kept:
    """The lines at `places`, whose heads are `numbers`."""
    starts, key_ends, ends = lines.head_ends[places], lines.key_ends[places], lines.ends[places]
    high, low = digest(lines.words, starts, key_ends - starts)
    exact = joined(heads.exact[numbers], high)
    longer = np.flatnonzero(key_ends < ends)
    exact[longer] = joined(exact[longer], digest(lines.words, key_ends[longer], (ends - key_ends)[longer])[0])
    others = np.array(sorted(lines.keys), np.int64)
    others = others[np.isin(others, places)]
    if len(others):
        owners = np.searchsorted(places, others)
        high[owners], low[owners] = digests_of([lines.keys[line] for line in others.tolist()])
    found = joined(heads.high[numbers], high), joined(heads.low[numbers], low), exact
    if len(places) == len(lines.starts):
        return Kept(lines.text, *found)
    mask = np.zeros(len(lines.starts), bool)
    mask[places] = True
    return Kept(lines.array[np.repeat(mask, lines.ends - lines.starts + 1)].tobytes(), *found)


def _split(url: bytes) -> tuple[bytes, bytes]:
    """Scheme, host and port, and the rest."""
    slash, mark = url.find(b"/", len(b"https://")), url.find(b"?", len(b"https://"))
    end = slash if mark < 0 or 0 <= slash < mark else mark
    return (url, b"") if end < 0 else (url[:end], url[end:])


def kept_of(pairs: list[tuple[bytes, bytes]], key_end: Callable[[bytes], int]) -> Kept:
    """URLs and keys given one by one; `key_end` as in LineRules."""
    urls = [url for url, _ in pairs]
    parts = [_split(key) for _, key in pairs]
    heads, rests = digests_of([head for head, _ in parts]), digests_of([rest for _, rest in parts])
    texts = [_split(url) for url in urls]
    cuts = [key_end(rest) for _, rest in texts]
    exact = joined(
        digests_of([head for head, _ in texts])[0],
        digests_of([rest[:cut] for (_, rest), cut in zip(texts, cuts, strict=True)])[0],
    )
    tails = [rest[cut:] for (_, rest), cut in zip(texts, cuts, strict=True)]
    longer = np.flatnonzero(np.fromiter(map(len, tails), np.int64, len(tails)))
    exact[longer] = joined(exact[longer], digests_of(tails)[0][longer])
    text = b"".join(url + b"\n" for url in urls)
    return Kept(text, joined(heads[0], rests[0]), joined(heads[1], rests[1]), exact)


def _merged(
    kept: Kept,
    places: Places,
    lengths: Places,
    more: list[tuple[bytes, bytes]],
    more_places: Places,
    key_end: Callable[[bytes], int],
) -> Kept:
    """`kept` and `more` in the order of their places in the block; `lengths` [kept] are bytes with the line end."""
    cuts = np.concatenate(([0], np.cumsum(lengths)))[np.searchsorted(places, more_places)].tolist()
    pieces: list[bytes] = []
    last = 0
    for cut, (url, _) in zip(cuts, more, strict=True):
        pieces += (kept.text[last:cut], url, b"\n")
        last = cut
    pieces.append(kept.text[last:])
    others = kept_of(more, key_end)
    order = np.argsort(np.concatenate((places, more_places)))
    joined = (np.concatenate(pair)[order] for pair in zip(kept[1:], others[1:], strict=True))
    return Kept(b"".join(pieces), *joined)
