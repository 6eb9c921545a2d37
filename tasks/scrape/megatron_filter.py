"""The preset "megatron": the decisions of tools/openwebtext/blacklist_urls.py of Megatron-LM core_v0.12.0.

Its known faults are part of it: a site is known by the one label before its public suffix, in the case it was typed
(so `GitHub.com` and `google.com.example.org` pass while every blog on github.io falls); 7z and ai files pass, because
a comma is missing between them; a fragment or a final slash hides an extension; hosts outside ASCII and addresses with
user names count as malformed, addresses such as 999.999.999.999 do not; only equal texts are duplicates.
What differs: the order is that of the list, not that of a hash table, a line that is no UTF-8 is malformed and does
not end the run, and blank lines are no records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tasks.scrape.filter_reasons import FilterReason, Tally
from tasks.scrape.public_suffix import offline_tldextract
from tasks.scrape.url_lists import packaged_list, words_of

SHORT_URL_CHARACTERS = 8
MAX_REMEMBERED_PLACES = 2_000_000
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PLACE = re.compile(r"[^/?#]*//[^/?#]*")
_HOST = rf"(?:{_LABEL}\.)+[a-z0-9-]{{2,}}\.?|\d{{1,3}}(?:\.\d{{1,3}}){{3}}"
_WELL_FORMED = re.compile(rf"https?://(?:{_HOST})(?::\d+)?(?:/|[/?]\S+)?", re.IGNORECASE)
_NOT_UTF8 = re.compile("[\ud800-\udfff]")


class MegatronFilter:
    """Domain label, extension, length and form, in this order; the first that hits is the reason."""

    def __init__(self) -> None:
        self._labels = frozenset(words_of(packaged_list("megatron_domains")))
        self._endings = tuple(words_of(packaged_list("megatron_extensions")))
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

    def sift(self, lines: Iterable[str], tally: Tally) -> tuple[list[str], list[str]]:
        """The lines that are kept so far; a line is its own key."""
        kept: list[str] = []
        for line in lines:
            url = line.strip()
            if not url:
                continue
            reason = self.judge(url)
            if reason is None:
                kept.append(url)
            else:
                tally.drop(reason, url)
        return kept, kept
