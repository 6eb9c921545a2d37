"""Pages nested deeper than parsers follow: libxml2 silently drops what lies below 255 levels, others recurse.

Such a page is made flat before it is parsed: tags that only wrap are taken out below MAX_NESTING levels.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

MAX_NESTING = 150
SUSPICIOUS_NESTING = 100
_LOOKED_BACK = 100
_TOKENS = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|textarea|title|noscript)\b.*?</\1\s*>|<(/?)([a-z][a-z0-9:-]*)[^>]*>",
    re.IGNORECASE | re.DOTALL,
)
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
_INLINE = frozenset(("a", "abbr", "b", "big", "cite", "em", "font", "i", "small", "span", "strong", "tt", "u"))
# Elements that end where the next of their kind starts or where the one around them ends; they do not nest by mistake
_IMPLIED_END = frozenset(("p", "li", "dt", "dd", "td", "th", "tr", "option", "thead", "tbody", "tfoot"))


def flatten(html: str) -> str:
    """`html` as it is when it is not nested too deeply, and else without the tags that are; all text stays."""
    if not _may_be_deep(html):
        return html
    stack: list[tuple[str, bool]] = []
    """Open elements: name, and whether its tag was taken out."""

    def keep(match: re.Match[str]) -> str:
        tag = match.group()
        if match.group(3) is None:
            return tag
        name = match.group(3).lower()
        if name in _VOID or tag.endswith("/>"):
            return tag
        if not match.group(2):
            if name in _IMPLIED_END and stack and stack[-1][0] == name:
                stack.pop()
            removed = len(stack) >= MAX_NESTING
            stack.append((name, removed))
            return _gap(name) if removed else tag
        for place in range(len(stack) - 1, max(-1, len(stack) - 1 - _LOOKED_BACK), -1):
            if stack[place][0] == name:
                removed = stack[place][1]
                del stack[place:]
                return _gap(name) if removed else tag
        return tag

    return _TOKENS.sub(keep, html)


def _gap(name: str) -> str:
    return "" if name in _INLINE else "\n"


def _may_be_deep(html: str) -> bool:
    """An estimate that costs a few microseconds a kilobyte: open tags less closing tags, void elements and `p` apart.

    Closing tags of nothing inside the page make it too low, so it counts as deep well below MAX_NESTING.
    """
    data = np.frombuffer(html.encode("utf-8", "replace") + b"     ", dtype=np.uint8)
    places = np.flatnonzero(data[:-5] == ord("<"))
    if len(places) <= SUSPICIOUS_NESTING:
        return False
    closing = data[places + 1] == ord("/")
    starts = places + 1 + closing
    first, second, third, fourth = (data[starts + offset] | 0x20 for offset in range(4))
    named = (first >= ord("a")) & (first <= ord("z"))
    pair = first.astype(np.uint16) << 8 | second
    word = pair.astype(np.uint32) << 16 | third.astype(np.uint32) << 8 | fourth
    apart = _no_letter(third) & np.isin(pair, _PAIRS)
    apart |= _no_letter(second) & (first == ord("p"))
    apart |= np.isin(word, _WORDS) | ((word >> 8) == int.from_bytes(b"img", "big"))
    steps = np.where(named & ~apart, np.where(closing, -1, 1), 0)
    heights = np.cumsum(steps)
    lowest = np.minimum.accumulate(np.minimum(heights, 0))
    return bool((heights - lowest).max() > SUSPICIOUS_NESTING)


def _no_letter(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return (codes < ord("a")) | (codes > ord("z"))


_PAIRS = np.array([int.from_bytes(name, "big") for name in (b"br", b"hr")], dtype=np.uint16)
_WORDS = np.array([int.from_bytes(name, "big") for name in (b"meta", b"link", b"inpu", b"sour")], dtype=np.uint32)
