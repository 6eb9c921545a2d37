"""Which part of a page is its text, and which blocks of that part."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

from tasks.scrape.extractors.box_names import Verdict
from tasks.scrape.extractors.page_blocks import Kind, PageBlocks, running_sums
from tasks.scrape.extractors.phrases import ASIDE, PROMOTION

_SPACELESS: Final = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_SENTENCE: Final = re.compile(r"[.!?…。！？;:,،؟।][\"'”’»)\]]*(?:\s|$)|[。！？，、]")
_WORDS: Final = re.compile(r"\w+")
LISTS: Final = frozenset(("blockquote", "table", "tr", "tbody", "ul", "ol", "pre", "dl"))


def measure(text: str) -> int:
    """Length of a text in characters, those of scripts without spaces counted as two and a half."""
    if text.isascii():
        return len(text)
    return len(text) + 3 * len(_SPACELESS.findall(text)) // 2


def weights(page: PageBlocks) -> list[int]:
    """How much each block speaks for being in the middle of the text."""
    found = []
    for text, kind, linked in zip(page.texts, page.kinds, page.link_lengths, strict=True):
        length = measure(text) - linked
        if kind is Kind.HEADING or kind is Kind.CAPTION or length < 30 or linked > length:
            found.append(0)
        elif kind is Kind.PARAGRAPH or kind is Kind.QUOTE or kind is Kind.PRE:
            found.append(length)
        elif length >= 80 and _SENTENCE.search(text):
            found.append(length if kind is Kind.OTHER else length * 2 // 3)
        elif kind is Kind.OTHER:
            found.append(0)
        else:
            found.append(length // 3)
    return found


class Body:
    """The search for the text of one page: headline, boilerplate, box, blocks."""

    def __init__(self, page: PageBlocks) -> None:
        self.page = page
        self.weights = weights(page)
        self.sums = running_sums(self.weights)
        self.total = self.sums[-1]
        self.anchor = self.find_anchor()
        self.drop_boilerplate()

    def drop_boilerplate(self) -> None:
        """Mark what is beside the text by its names, unless it holds too much of the page to be that."""
        boxes = self.page.boxes
        total = self.total
        self.dropped = [False] * len(self.page.texts)
        self.bad: list[bool] = []
        bodies = [(box.first, box.end) for box in boxes if box.verdict is Verdict.BODY and box.end > box.first]
        bodies.sort()
        for box in boxes:
            inherited = box.parent >= 0 and self.bad[box.parent]
            own = False
            if not inherited and box.verdict >= Verdict.DOUBTFUL and box.end > box.first:
                share = (self.sums[box.end] - self.sums[box.first]) / max(1, total)
                own = share < (0.5 if box.verdict is Verdict.BOILERPLATE else 0.15)
                if box.verdict is Verdict.DOUBTFUL and own:
                    place = bisect_right(bodies, (box.first, box.end))
                    own = not (place < len(bodies) and bodies[place][1] <= box.end)
                if own and self.anchor >= 0 and box.first <= self.anchor < box.end and share > 0.1:
                    own = False
                if own:
                    for block in range(box.first, box.end):
                        self.dropped[block] = True
            self.bad.append(inherited or own)
        self.weights = [0 if drop else weight for weight, drop in zip(self.weights, self.dropped, strict=True)]
        self.sums = running_sums(self.weights)

    def find_anchor(self) -> int:
        """The heading that the page is about; -1 when there is none."""
        page = self.page
        title = " ".join(_WORDS.findall(page.title.lower()))
        lower_title = page.title.lower()
        best, best_score = -1, 0.0
        for number, level in enumerate(page.levels):
            raw = page.texts[number]
            if level == 0 and raw[:4].lower() not in lower_title:
                continue
            if len(raw) > 300 or (page.link_lengths[number] and level == 0) or (level == 0 and len(raw) < 15):
                continue
            text = " ".join(_WORDS.findall(raw.lower()))
            if not text:
                continue
            score = 0.5 if level == 1 else 0.0 if level and level < 4 else -0.4
            if len(text) > 8 and text in title:
                score += 1 + len(text) / (len(title) + 1)
            if score > best_score:
                best, best_score = number, score
        return best

    def weight(self, box: int) -> int:
        """How much running text a box holds, in characters."""
        found = self.page.boxes[box]
        return self.sums[found.end] - self.sums[found.first]

    def select(self) -> int:
        """The box of the text: by name, the first after the headline, or else where nearly all running text is."""
        boxes = self.page.boxes
        total = self.sums[-1]
        for verdict, share in ((Verdict.BODY, 0.3), (Verdict.CONTENT, 0.5)):
            numbers = [
                n for n, box in enumerate(boxes) if box.verdict is verdict and not self.bad[n] and box.end > box.first
            ]
            if not numbers:
                continue
            found = [(n, self.weight(n)) for n in numbers]
            most = max(weight for _, weight in found)
            if most < 150:
                continue
            found = [(n, weight) for n, weight in found if weight >= max(150, 0.2 * most)]
            # the first that follows the headline, or holds it
            near = [(n, w) for n, w in found if self.anchor >= 0 and boxes[n].end > self.anchor]
            near = near or found
            first = near[0][0]
            inner = [
                (n, w) for n, w in near if boxes[n].first >= boxes[first].first and boxes[n].end <= boxes[first].end
            ]
            best, weight = max(inner, key=lambda item: (item[1], -item[0]))
            if verdict is Verdict.CONTENT:
                best = self.innermost_content(best, near)
                weight = self.weight(best)
            holds = self.anchor >= 0 and (
                boxes[best].first <= self.anchor < boxes[best].end or 0 <= boxes[best].first - self.anchor < 8
            )
            if weight >= (0.12 if holds else share) * total:
                if verdict is Verdict.BODY:
                    best = self.with_siblings(best, [n for n, _ in near])
                return self.descend(best)
        return self.descend(0)

    def innermost_content(self, best: int, near: list[tuple[int, int]]) -> int:
        """The first article of several, when one box holds several."""
        boxes = self.page.boxes
        inside = [
            (n, w)
            for n, w in near
            if boxes[n].tag == "article"
            and boxes[best].first <= boxes[n].first
            and boxes[n].end <= boxes[best].end
            and n != best
        ]
        if inside:
            n, w = inside[0]
            if w > 0.5 * self.weight(best) or (self.anchor >= 0 and boxes[n].first <= self.anchor < boxes[n].end):
                return n
        return best

    def article_of(self, box: int) -> int:
        for number in self.page.boxes_around(box):
            if self.page.boxes[number].tag == "article":
                return number
        return -1

    def with_siblings(self, best: int, near: list[int]) -> int:
        """The box around pieces of one text, which some templates divide among boxes of one name."""
        boxes = self.page.boxes
        article = self.article_of(best)
        same = [n for n in near if boxes[n].names == boxes[best].names and self.article_of(n) == article]
        others = [n for n in same if boxes[n].first >= boxes[best].end or boxes[n].end <= boxes[best].first]
        if not others:
            return best
        last = max([*others, best], key=lambda n: boxes[n].end)
        first = min([*others, best], key=lambda n: boxes[n].first)
        for around in self.page.boxes_around(boxes[best].parent):
            if boxes[around].first <= boxes[first].first and boxes[last].end <= boxes[around].end:
                return around if self.weight(around) * 0.8 <= sum(self.weight(n) for n in [*others, best]) else best
        return best

    def descend(self, box: int) -> int:
        """Into the one box that holds nearly all the weight, as long as there is one."""
        boxes = self.page.boxes
        goal = self.weight(box) * 0.9
        best = box
        for number in range(box + 1, len(boxes)):
            found = boxes[number]
            if found.first >= boxes[best].end:
                break
            if (
                found.parent == best
                and self.sums[found.end] - self.sums[found.first] >= goal
                and goal > 0
                and found.tag not in LISTS
            ):
                best = number
        return best

    def lead(self, box: int) -> list[int]:
        """Summary between the headline and the text."""
        page = self.page
        first = page.boxes[box].first
        start = self.anchor + 1 if 0 <= first - self.anchor - 1 <= 14 and self.anchor >= 0 else first - 3
        kept = []
        for number in range(max(0, start), first):
            text, kind, linked = page.texts[number], page.kinds[number], page.link_lengths[number]
            named = any(
                page.boxes[b].verdict is Verdict.LEAD or "teaser" in page.boxes[b].names.lower()
                for b in self.page.boxes_around(page.owners[number])
            )
            if self.dropped[number] and not named:
                continue
            if kind is Kind.CAPTION or kind is Kind.CELL or linked * 2 > len(text) or ASIDE.match(text):
                continue
            if measure(text) >= (30 if named else 80) and _SENTENCE.search(text):
                kept.append(number)
        return kept

    def link_lists(self, box: int) -> list[bool]:
        """Which blocks are in boxes of links and what is said about each."""
        page = self.page
        found = page.boxes[box]
        listed = [False] * len(page.texts)
        links = running_sums(
            [
                1 if linked > 0.8 * len(text) and len(text) >= 8 else 0
                for text, linked in zip(page.texts, page.link_lengths, strict=True)
            ]
        )
        lengths = running_sums([len(text) - linked for text, linked in zip(page.texts, page.link_lengths, strict=True)])
        whole = self.weight(box)
        for number in range(box + 1, len(page.boxes)):
            inner = page.boxes[number]
            if inner.first >= found.end:
                break
            num = inner.end - inner.first
            if num < 3 or inner.end > found.end or listed[inner.first]:
                continue
            num_links = links[inner.end] - links[inner.first]
            if (
                num_links >= 2
                and num_links * 3 >= num
                and lengths[inner.end] - lengths[inner.first] < 150 * (num - num_links)
                and self.weight(number) <= 0.3 * whole
            ):
                for block in range(inner.first, inner.end):
                    listed[block] = True
        return listed

    def blocks(self, box: int) -> list[int]:
        """The blocks of the text. Where next to nothing is left without links, links stay."""
        kept = self.kept(box, strict=True)
        if sum(len(self.page.texts[n]) for n in kept) < 250:
            kept = self.kept(box, strict=False)
        return kept

    def kept(self, box: int, strict: bool) -> list[int]:
        """Summary and blocks of a box; if `strict` without those that are mostly links."""
        page = self.page
        kept = self.lead(box)
        found = page.boxes[box]
        listed = self.link_lists(box)
        seen: set[str] = set()
        for number in range(found.first, found.end):
            if self.dropped[number] or (strict and listed[number]):
                continue
            text, kind, linked = page.texts[number], page.kinds[number], page.link_lengths[number]
            length = len(text)
            if kind is Kind.CAPTION:
                continue
            if length > 50 and kind is Kind.QUOTE:
                if text in seen:
                    continue
                seen.add(text)
            if strict:
                if linked > 0.6 * length and (
                    (kind is not Kind.PARAGRAPH and kind is not Kind.HEADING)
                    or (linked > 0.9 * length and length < 200)
                ):
                    continue
                if linked > 0.5 * length and length - linked < 30 and kind is Kind.PARAGRAPH:
                    continue
            if length < 150 and ASIDE.match(text):
                continue
            if length < 80 and kind is not Kind.ITEM and PROMOTION.search(text):
                continue
            if kind is Kind.OTHER and length < 25 and not _SENTENCE.search(text):
                continue
            kept.append(number)
        while kept and (
            page.kinds[kept[-1]] is Kind.HEADING
            or (len(page.texts[kept[-1]]) < 250 and PROMOTION.search(page.texts[kept[-1]]))
        ):
            kept.pop()
        while (
            kept
            and page.kinds[kept[0]] is not Kind.HEADING
            and len(page.texts[kept[0]]) < 25
            and not _SENTENCE.search(page.texts[kept[0]])
        ):
            del kept[0]
        return kept


def article_text(page: PageBlocks) -> str:
    """The text of a page, one block a line; empty when there is none."""
    body = Body(page)
    box = body.select()
    return "\n".join(page.texts[number] for number in body.blocks(box))
