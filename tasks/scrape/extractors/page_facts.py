"""Title, date and language of a page from its tags, for extractors that do not tell; one look at the head."""

from __future__ import annotations

import html
import re
from typing import NamedTuple

HEAD_CHARACTERS = 200_000
_META = re.compile(r"<meta\s[^>]*>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([a-z:-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_LANGUAGE = re.compile(
    r"<html[^>]*?\s(?:xml:)?lang\s*=\s*[\"']?([A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*)", re.IGNORECASE
)
_TIME = re.compile(r"<time[^>]*?\sdatetime\s*=\s*[\"']([^\"']+)", re.IGNORECASE)
_PUBLISHED = re.compile(r'"datePublished"\s*:\s*"([^"]+)"')
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?)?")
TITLE_NAMES = ("og:title", "twitter:title", "dc.title")
DATE_NAMES = (
    "article:published_time", "datepublished", "date", "dc.date", "dc.date.issued", "pubdate", "publishdate",
    "citation_publication_date", "parsely-pub-date", "sailthru.date",
)  # fmt: skip


class PageFacts(NamedTuple):
    """What the tags of a page say; empty where they do not."""

    title: str
    date: str
    language: str


def page_facts(page: str) -> PageFacts:
    """Title (og:title before the title tag), ISO 8601 date of publication and language tag of an HTML page."""
    page = page[:HEAD_CHARACTERS]
    metas: dict[str, str] = {}
    for tag in _META.findall(page):
        found = {name.lower(): first or second or third for name, first, second, third in _ATTRIBUTE.findall(tag)}
        name = (found.get("property") or found.get("name") or found.get("itemprop") or "").lower()
        if name and found.get("content"):
            metas.setdefault(name, found["content"])
    title = next((metas[name] for name in TITLE_NAMES if name in metas), "")
    if not title and (match := _TITLE.search(page)):
        title = match.group(1)
    dates = [metas[name] for name in DATE_NAMES if name in metas]
    dates += [match.group(1) for pattern in (_PUBLISHED, _TIME) if (match := pattern.search(page))]
    date = next((match.group() for text in dates if (match := _DATE.match(text.strip()))), "")
    language = match.group(1) if (match := _LANGUAGE.search(page)) else ""
    return PageFacts(" ".join(html.unescape(title).split()), date, language.replace("_", "-"))
