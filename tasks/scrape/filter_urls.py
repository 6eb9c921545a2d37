"""Which URLs are fetched: one verdict a line, order kept, the first spelling of each page kept."""

from __future__ import annotations

import hashlib
from collections import Counter

from tasks.scrape.canonical_url import CONTROLS, CanonicalRules, canonical_rest
from tasks.scrape.config import FilterConfig
from tasks.scrape.filter_reasons import FilterReason
from tasks.scrape.host_rules import HostRules, HostVerdict
from tasks.scrape.public_suffix import public_suffixes
from tasks.scrape.repair_url import repair_url
from tasks.scrape.url_lists import (
    TrackingList,
    WordList,
    blocked_extensions,
    blocked_hosts,
    read_list,
    split_words,
    words_of,
)

DIGEST_BYTES = 12
SCHEMES = ("http://", "https://")


class UrlFilter:
    """Judges URLs one after the other; remembers the pages it kept."""

    def __init__(self, config: FilterConfig) -> None:
        """Reads the lists. Raises UserError for an entry that names no host."""
        self._config = config
        tracking = TrackingList(words_of(read_list(config.tracking_parameters_file, "tracking_parameters")))
        self._rules = CanonicalRules(
            ignore_scheme=config.same_page_without_scheme,
            ignore_www=config.same_page_without_www,
            ignore_trailing_slash=config.same_page_without_slash,
            is_tracking=tracking.matches if tracking.some else None,
        )
        domains = [*read_list(config.blocked_domains_file, "blocked_domains"), *config.blocked_domains]
        extensions = [*read_list(config.blocked_extensions_file, "blocked_extensions"), *config.blocked_extensions]
        self._extensions = blocked_extensions(extensions)
        self._words = WordList([*read_list(config.blocked_words_file, "blocked_words"), *config.blocked_words])
        self._hosts = HostRules(
            blocked=blocked_hosts(domains, "filter.blocked_domains"),
            allowed_private=config.allow_private_hosts,
            words=self._words,
            rules=self._rules,
        )
        self._verdicts: dict[tuple[str, str], HostVerdict] = {}
        self._seen: set[bytes] = set()
        self._seen_exact: set[bytes] = set()
        self._per_domain: Counter[str] = Counter()

    def judge(self, line: str) -> tuple[str, FilterReason | None]:
        """The URL that the line means, and why it is dropped, or None when it is kept."""
        url = repair_url(line)
        reason = self._judge(url)
        return url, reason

    def _judge(self, url: str) -> FilterReason | None:
        if CONTROLS.search(url):
            return FilterReason.CONTROL_CHARACTER
        scheme, mark, rest = url.partition("://")
        if not mark or scheme not in ("http", "https"):
            named = scheme if mark else url.partition(":")[0]
            known = named.isascii() and named.replace("+", "").isalnum() and ":" in url and " " not in url
            return (
                FilterReason.UNSUPPORTED_SCHEME if known and named.lower() in OTHER_SCHEMES else FilterReason.MALFORMED
            )
        end = min((place for sign in "/?#" if (place := rest.find(sign)) >= 0), default=len(rest))
        authority, path = rest[:end], rest[end:]
        verdict = self._verdicts.get((scheme, authority))
        if verdict is None:
            verdict = self._verdicts[scheme, authority] = self._hosts.judge(scheme, authority)
        if verdict.reason is not None:
            return verdict.reason
        if len(url) < self._config.min_url_characters:
            return FilterReason.TOO_SHORT
        if len(url) > self._config.max_url_characters:
            return FilterReason.TOO_LONG
        return self._judge_path(url, verdict, path)

    def _judge_path(self, url: str, verdict: HostVerdict, path: str) -> FilterReason | None:
        plain = path.partition("#")[0].partition("?")[0]
        name = plain.rstrip("/").rpartition("/")[2].lower()
        while "." in name:
            name = name.partition(".")[2]
            if name in self._extensions:
                return FilterReason.BLOCKED_EXTENSION
        if self._words and self._words.hits(split_words(plain)):
            return FilterReason.BLOCKED_WORD
        exact = _digest(url)
        if exact in self._seen_exact:
            return FilterReason.DUPLICATE_EXACT
        canonical = _digest(verdict.head + canonical_rest(path, self._rules))
        if canonical in self._seen:
            return FilterReason.DUPLICATE_CANONICAL
        if (cap := self._config.max_urls_per_domain) is not None:
            site = public_suffixes(private_domains=True).registrable(verdict.host) or verdict.host
            if self._per_domain[site] >= cap:
                return FilterReason.DOMAIN_CAP
            self._per_domain[site] += 1
        self._seen_exact.add(exact)
        self._seen.add(canonical)
        return None


OTHER_SCHEMES = frozenset(
    ("ftp", "ftps", "mailto", "javascript", "data", "file", "irc", "magnet", "news", "tel", "gopher")
)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=DIGEST_BYTES).digest()
