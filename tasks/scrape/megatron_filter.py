"""The preset "megatron": the decisions of tools/openwebtext/blacklist_urls.py of Megatron-LM core_v0.12.0.

Its known faults are part of it: a site is known by the one label before its public suffix, in the case it was typed
(so `GitHub.com` and `google.com.example.org` pass while every blog on github.io falls); 7z and ai files pass, because
a comma is missing between them; a fragment or a final slash hides an extension; hosts outside ASCII and addresses with
user names count as malformed, addresses such as 999.999.999.999 do not; only equal texts are duplicates.
What differs: the order is that of the list, not that of a hash table, a line that is no UTF-8 is malformed and does
not end the run, and blank lines are no records. The whole table of faults: docs/url-filter.md.
"""

from __future__ import annotations

import re

import numpy as np

from tasks.scrape.filter_digest import LOWER_CASE, WORD_BYTES, Places, masks_of
from tasks.scrape.filter_heads import KEPT, NOT_PLAIN, HeadVerdicts
from tasks.scrape.filter_lines import PlainLines, plain_words
from tasks.scrape.filter_reasons import REASONS, FilterReason
from tasks.scrape.public_suffix import offline_tldextract, public_suffixes
from tasks.scrape.url_lists import packaged_list, words_of

SHORT_URL_CHARACTERS = 8
MAX_REMEMBERED_PLACES = 500_000
_PLAIN_HEAD = re.compile(rb"https?://[a-z0-9.-]+")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PLACE = re.compile(r"[^/?#]*//[^/?#]*")
_HOST = rf"(?:{_LABEL}\.)+[a-z0-9-]{{2,}}\.?|\d{{1,3}}(?:\.\d{{1,3}}){{3}}"
_WELL_FORMED = re.compile(rf"https?://(?:{_HOST})(?::\d+)?(?:/|[/?]\S+)?", re.IGNORECASE)
_NOT_UTF8 = re.compile("[\ud800-\udfff]")


class MegatronFilter:
    """Domain label, extension, length and form, in this order; the first that hits is the reason."""

    repairs_entities = False

    def __init__(self) -> None:
        self._labels = frozenset(words_of(packaged_list("megatron_domains")))
        self._endings = tuple(words_of(packaged_list("megatron_extensions")))
        single = frozenset(ending[1:] for ending in self._endings if ending.count(".") == 1)
        last = frozenset(ending.rpartition(".")[2] for ending in self._endings)
        self._certain, self._doubtful = plain_words(single), plain_words(last - single)
        self._extract = offline_tldextract()
        self._places: dict[str, bool] = {}

    def judge(self, url: str) -> FilterReason | None:
        """The reason why a stripped line is dropped, or None."""
        if self._is_listed(url):
            return FilterReason.BLOCKED_DOMAIN
        if url.partition("?")[0].lower().endswith(self._endings):
            return FilterReason.BLOCKED_EXTENSION
        if len(url) <= SHORT_URL_CHARACTERS:
            return FilterReason.TOO_SHORT
        if not _WELL_FORMED.fullmatch(url) or _NOT_UTF8.search(url):
            return FilterReason.MALFORMED
        return None

    def _is_listed(self, url: str) -> bool:
        match = _PLACE.match(url)
        place = match.group() if match else url
        listed = self._places.get(place)
        if listed is None:
            if len(self._places) >= MAX_REMEMBERED_PLACES:
                self._places.clear()
            listed = self._places[place] = self._extract(place).domain in self._labels
        return listed

    def judge_bytes(self, line: bytes) -> tuple[FilterReason | None, bytes, bytes]:
        """The verdict about a line, and the line itself as URL and key."""
        url = line.decode("utf-8", "surrogateescape").strip()
        reason = self.judge(url)
        text = url.encode("utf-8", "surrogateescape")
        return reason, text, text

    def judge_heads(self, heads: list[bytes]) -> HeadVerdicts:
        """The verdicts about what lines say before their third slash, when that is plain."""
        codes = [self._judge_head(head) for head in heads]
        plain = [code != NOT_PLAIN for code in codes]
        canonical = [head.decode("latin-1") if is_plain else "" for head, is_plain in zip(heads, plain, strict=True)]
        sites = [self.site_of(head) if is_plain else "" for head, is_plain in zip(heads, plain, strict=True)]
        return HeadVerdicts(codes, canonical, sites)

    def _judge_head(self, head: bytes) -> int:
        if not _PLAIN_HEAD.fullmatch(head):
            return NOT_PLAIN
        place = head.decode()
        if self._is_listed(place):
            return REASONS.index(FilterReason.BLOCKED_DOMAIN)
        return KEPT if _WELL_FORMED.fullmatch(place) else NOT_PLAIN

    def key_end(self, rest: bytes) -> int:
        """A line is its own key."""
        return len(rest)

    def site_of(self, head: bytes) -> str:
        """The registrable domain, or the host where there is none."""
        host = head.partition(b"://")[2].decode()
        return public_suffixes().registrable(host) or host

    def judge_rests(self, lines: PlainLines) -> Places:
        """For lines whose head is kept: the place of the reason in REASONS, KEPT, or NOT_PLAIN."""
        lines.odd |= lines.key_ends < lines.ends
        ends = lines.path_ends
        starts = lines.last_before(lines.dots, ends) + 1
        words = (lines.words[starts] | LOWER_CASE) & masks_of(ends - starts)
        short = ends - starts <= WORD_BYTES
        lines.odd |= short & np.isin(words, self._doubtful)
        verdicts = np.full(len(starts), KEPT, np.int64)
        verdicts[ends - lines.starts <= SHORT_URL_CHARACTERS] = REASONS.index(FilterReason.TOO_SHORT)
        verdicts[short & np.isin(words, self._certain)] = REASONS.index(FilterReason.BLOCKED_EXTENSION)
        verdicts[lines.odd] = NOT_PLAIN
        lines.key_ends = lines.ends
        return verdicts
