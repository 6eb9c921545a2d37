"""Lines of a block whose heads are kept, taken apart for all of them at once: where path, query and key end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tasks.scrape.canonical_url import UNRESERVED
from tasks.scrape.filter_digest import PADDING, Places, words_of_buffer

ENTITY = b"&amp;"
PLAIN, NEWLINE, SLASH, DOT, QUESTION, HASH, PERCENT, AMPERSAND, ODD = range(9)
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# No entities, quotation marks or other characters that a repair or the canonical form would touch
_PLAIN = _LETTERS + b"_~+:@!$*,=-'()[]"
_MARKS = {
    NEWLINE: b"\n",
    SLASH: b"/",
    DOT: b".",
    QUESTION: b"?",
    HASH: b"#",
    PERCENT: b"%",
    AMPERSAND: b"&",
    PLAIN: _PLAIN,
}
_KINDS = bytes(next((kind for kind, marks in _MARKS.items() if code in marks), ODD) for code in range(256))
_ENDS = np.zeros(256, bool)
_ENDS[list(_LETTERS + b"/_=+-")] = True
# Pairs of upper-case hexadecimal digits that stand for a character that must stay escaped
_ESCAPED = np.zeros(1 << 16, bool)
for _code in range(256):
    if chr(_code) not in UNRESERVED:
        _high, _low = f"{_code:02X}".encode()
        _ESCAPED[_high << 8 | _low] = True


class PlainLines:
    """Places in the bytes of lines. Nothing that is said of a line in `odd` holds."""

    def __init__(self, text: bytes, head_lengths: Places) -> None:
        """`text` holds lines with their ends, each beginning with a plain head of `head_lengths` [lines] bytes."""
        self.text = text
        self.buffer = text + PADDING
        self.words = words_of_buffer(self.buffer)
        self.array = np.frombuffer(self.buffer, np.uint8, len(text))
        kinds = np.frombuffer(text.translate(_KINDS), np.uint8)
        marks = np.flatnonzero(kinds != PLAIN)
        mark_kinds = kinds[marks]
        self.ends = marks[mark_kinds == NEWLINE]
        self.starts = np.concatenate(([0], self.ends[:-1] + 1)) if len(self.ends) else self.ends
        self.head_ends = self.starts + head_lengths
        self.slashes = marks[mark_kinds == SLASH]
        self.dots = marks[mark_kinds == DOT]
        self.odd = ~_ENDS[self.array[self.ends - 1]]
        self.odd[self._lines_of(marks[mark_kinds == ODD])] = True
        # segments that begin with a dot may be `.` or `..`
        self.odd[self._lines_of(self.dots[self.array[self.dots - 1] == ord("/")])] = True
        self.ampersands = marks[mark_kinds == AMPERSAND]
        percents = marks[mark_kinds == PERCENT]
        self.odd[self._lines_of(percents[~_ESCAPED[self._byte(percents + 1) << 8 | self._byte(percents + 2)]])] = True
        self.escaped = np.zeros(len(self.ends), bool)
        """Lines with percent escapes; those of plain lines are in canonical form."""
        self.escaped[self._lines_of(percents)] = True
        self.keys: dict[int, bytes] = {}
        """What follows the head in the key, for lines where that is not what stands in the line up to `key_ends`."""
        queries = self._first(marks[mark_kinds == QUESTION])
        self.key_ends = self._first(marks[mark_kinds == HASH])
        self.path_ends = np.minimum(queries, self.key_ends)
        self.has_query = queries < self.key_ends

    def _byte(self, places: Places) -> Places:
        # one that is cut off by the end of the text is no digit either
        found: Places = self.array.take(places, mode="clip").astype(np.int64)
        return found

    def _lines_of(self, places: Places) -> Places:
        return np.searchsorted(self.ends, places)

    def _first(self, places: Places) -> Places:
        """The first of `places` in each line, or its end."""
        found: Places = self.ends.copy()
        # of several values for one line the last one written stays
        found[self._lines_of(places)[::-1]] = places[::-1]
        return found

    def last_before(self, places: Places, limits: Places) -> Places:
        """The last of `places` before each limit; -1 where there is none."""
        found: Places = np.append(places, -1)[np.searchsorted(places, limits) - 1]
        return found

    def strip_slashes(self) -> None:
        """Keys of lines without a query end before the slashes at the end of the path."""
        ends = np.flatnonzero(~self.has_query & (self.array[self.key_ends - 1] == ord("/")))
        while len(ends):
            self.key_ends[ends] -= 1
            ends = ends[self.array[self.key_ends[ends] - 1] == ord("/")]

    def lines_at(self, places: Places) -> Places:
        """The lines, each once, that hold `places`."""
        return np.unique(self._lines_of(places))

    def parameters(self) -> Places:
        """Where the parameters of queries begin, and some places that are no such."""
        return np.concatenate((self.ampersands, self.path_ends[self.has_query])) + 1

    def has_empty_parameter(self) -> npt.NDArray[np.bool_]:
        """Lines with a parameter of no characters, and some that only look so."""
        found: npt.NDArray[np.bool_] = self.has_query & (self.path_ends + 1 == self.key_ends)
        before, after = self.array[self.ampersands - 1], self.array[self.ampersands + 1]
        empty = (before == ord("?")) | (after == ord("&")) | (after == ord("#")) | (after == ord("\n"))
        found[self.lines_at(self.ampersands[empty])] = True
        return found

    def rest(self, line: int) -> bytes:
        """Path and query of one line."""
        return self.text[self.head_ends[line] : self.key_ends[line]]

    def path(self, line: int) -> bytes:
        """The path of one line."""
        return self.text[self.head_ends[line] : self.path_ends[line]]


def plain_words(names: frozenset[str]) -> npt.NDArray[np.uint64]:
    """The names of up to eight ASCII letters and digits as sorted words."""
    fit = (name.encode() for name in names if len(name) <= 8 and name.isascii() and name.isalnum())
    return np.array(sorted(int.from_bytes(name, "little") for name in fit), np.uint64)
