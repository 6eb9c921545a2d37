"""Pages nested deeper than parsers follow: libxml2 silently drops what lies below 255 levels, others recurse.

Such a page is made flat before it is parsed: tags that only wrap are taken out below MAX_NESTING levels.
"""

from __future__ import annotations

import re

MAX_NESTING = 150
_LOOKED_BACK = 100
_TOKENS = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|textarea|title|noscript)\b.*?</\1\s*>|<(/?)([a-z][a-z0-9:-]*)[^>]*>",
    re.IGNORECASE | re.DOTALL,
)
_OPENINGS = re.compile(r"<[a-zA-Z]")
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
    """A cheap bound: openings minus closings can only be this many in a row when there are this many at all."""
    depth = highest = 0
    if len(_OPENINGS.findall(html)) <= MAX_NESTING:
        return False
    for piece in html.split("<"):
        start = piece[:1]
        if start == "/":
            depth -= 1
        elif start.isalpha() and not piece.startswith(_VOID_STARTS):
            depth += 1
            if depth > highest:
                highest = depth
    return highest > MAX_NESTING


_VOID_STARTS = tuple(f"{name}{end}" for name in sorted(_VOID) for end in (" ", ">", "/", "\n"))
