"""A parsed page as a list of blocks (paragraphs, headings, list items, cells) and the boxes around them.

One walk over the tree. The blocks of a box and of all boxes in it are a contiguous range, so that sums over any part
of the page are differences of two running sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate
from typing import Any, Final

from lxml import etree

from tasks.scrape.extractors.box_names import Verdict, verdict_of

LINE: Final = "\x00"
"""Stands for a line break while the text of a block is gathered; pages hold no control characters."""


class Kind(IntEnum):
    """What a block is."""

    PARAGRAPH = 0
    HEADING = 1
    ITEM = 2
    CELL = 3
    QUOTE = 4
    PRE = 5
    CAPTION = 6
    OTHER = 7
    """Text of a div and its like, in no paragraph."""


SKIPPED: Final = frozenset(
    ("script", "style", "noscript", "template", "iframe", "svg", "math", "button", "select", "textarea", "input",
     "object", "embed", "canvas", "audio", "video", "map", "head", "dialog", "datalist", "applet", "option", "frameset",
     "noframes", "img", "link", "meta", "source", "picture", "wbr", "hr", "area", "col", "base", "param", "track",
     "progress", "meter", "rp", "rt", "nav", "menu")
)  # fmt: skip
INLINE: Final = frozenset(
    ("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins",
     "kbd", "label", "mark", "nobr", "q", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup",
     "time", "tt", "u", "var", "rb", "tspan", "bdo", "blink", "center_")
)  # fmt: skip
KINDS: Final = {
    "p": Kind.PARAGRAPH, "li": Kind.ITEM, "dt": Kind.ITEM, "dd": Kind.ITEM, "td": Kind.CELL, "th": Kind.CELL,
    "blockquote": Kind.QUOTE, "pre": Kind.PRE, "figcaption": Kind.CAPTION, "caption": Kind.CELL,
    **{f"h{level}": Kind.HEADING for level in range(1, 7)},
}  # fmt: skip
_KEPT_INSIDE: Final = frozenset((Kind.ITEM, Kind.CELL, Kind.QUOTE, Kind.PRE, Kind.CAPTION))
_NO_BOX: Final = frozenset(("p", "li", "td", "th", "dt", "dd", "h1", "h2", "h3", "h4", "h5", "h6"))
_PARSER_OPTIONS: Final[dict[str, Any]] = {
    "encoding": "utf-8", "remove_comments": True, "remove_pis": True, "no_network": True,
}  # fmt: skip


@dataclass(slots=True)
class Box:
    """An element that holds blocks."""

    tag: str
    parent: int
    verdict: Verdict
    names: str
    """Class and id."""
    first: int
    """Its first block."""
    end: int = 0
    """The block after its last one."""


@dataclass(slots=True)
class PageBlocks:
    """Blocks in the order of the page, as parallel lists, and boxes, parents before children."""

    texts: list[str] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    """Level of a heading, 1 to 6; 0 for other blocks."""
    link_lengths: list[int] = field(default_factory=list)
    """Characters of a block that are links."""
    title: str = ""
    """What the page calls itself in its head."""
    owners: list[int] = field(default_factory=list)
    """The innermost box of each block."""
    boxes: list[Box] = field(default_factory=list)

    def boxes_around(self, box: int) -> Iterator[int]:
        """The box and those around it, inside out."""
        while box >= 0:
            yield box
            box = self.boxes[box].parent


class _Walk:
    def __init__(self) -> None:
        self.page = PageBlocks()
        self.pieces: list[str] = []
        self.linked = 0

    def flush(self, kind: Kind, level: int, box: int) -> None:
        text = "".join(self.pieces)
        self.pieces.clear()
        linked, self.linked = self.linked, 0
        if kind is Kind.PRE:
            text = text.replace(LINE, "\n").strip("\n")
            if not text.strip():
                return
        elif LINE in text:
            lines = (" ".join(line.split()) for line in text.split(LINE))
            text = "\n".join(line for line in lines if line)
        else:
            text = " ".join(text.split())
        if not text:
            return
        page = self.page
        page.texts.append(text)
        page.kinds.append(kind)
        page.levels.append(level)
        page.link_lengths.append(min(linked, len(text)))
        page.owners.append(box)

    def walk(self, element: Any, box: int, kind: Kind, level: int, in_link: bool) -> None:
        """Gather what is in `element`. Its own text and the tails of its children belong to it."""
        pieces = self.pieces
        if text := element.text:
            pieces.append(text)
            if in_link:
                self.linked += len(text)
        for child in element:
            tag = child.tag
            if tag == "br":
                self.line_break(kind, level, box)
            elif tag in INLINE:
                if len(child):
                    self.walk(child, box, kind, level, in_link or tag == "a")
                elif text := child.text:
                    pieces.append(text)
                    if in_link or tag == "a":
                        self.linked += len(text)
            elif tag not in SKIPPED and tag.__class__ is str:
                if pieces:
                    self.flush(kind, level, box)
                self.enter(child, tag, box, in_link, kind, level)
            if tail := child.tail:
                pieces.append(tail)
                if in_link:
                    self.linked += len(tail)

    def line_break(self, kind: Kind, level: int, box: int) -> None:
        for piece in reversed(self.pieces):
            if piece is LINE:
                self.flush(kind, level, box)
                return
            if not piece.isspace():
                break
        self.pieces.append(LINE)

    def enter(self, element: Any, tag: str, box: int, in_link: bool, kind: Kind, level: int) -> None:
        """A block element: what it holds is a block of its own, or several."""
        verdict, names = verdict_of(element, tag)
        if verdict is Verdict.HIDDEN:
            return
        inner = KINDS.get(tag)
        if inner is None:
            level = 0
            inner = kind if kind in _KEPT_INSIDE else Kind.OTHER
        elif inner is Kind.HEADING:
            level = int(tag[1])
        else:
            level = 0
            if inner is Kind.PARAGRAPH and (kind is Kind.ITEM or kind is Kind.QUOTE):
                inner = kind
        if verdict is Verdict.NONE and tag in _NO_BOX:
            self.walk(element, box, inner, level, in_link)
            if self.pieces:
                self.flush(inner, level, box)
            return
        number = self.open(tag, box, verdict, names)
        self.walk(element, number, inner, level, in_link)
        if self.pieces:
            self.flush(inner, level, number)
        self.page.boxes[number].end = len(self.page.texts)

    def open(self, tag: str, parent: int, verdict: Verdict, names: str) -> int:
        boxes = self.page.boxes
        boxes.append(Box(tag, parent, verdict, names, len(self.page.texts)))
        return len(boxes) - 1


def parse(html: str) -> Any:
    """The tree of a page. Raises etree.ParserError or etree.XMLSyntaxError where there is none."""
    return etree.fromstring(html.encode("utf-8", "replace"), etree.HTMLParser(**_PARSER_OPTIONS))


def page_blocks(root: Any) -> PageBlocks:
    """The blocks of a parsed page; box 0 is the whole page."""
    walk = _Walk()
    walk.open("html", -1, Verdict.NONE, "")
    body = root.find("body")
    walk.walk(root if body is None else body, 0, Kind.OTHER, 0, in_link=False)
    walk.flush(Kind.OTHER, 0, 0)
    walk.page.boxes[0].end = len(walk.page.texts)
    walk.page.title = _title(root)
    return walk.page


def _title(root: Any) -> str:
    title = root.find("head/title")
    return " ".join((title.text or "").split()) if title is not None else ""


def running_sums(values: list[int]) -> list[int]:
    """Sums of the first 0, 1, 2, ... values."""
    return list(accumulate(values, initial=0))
