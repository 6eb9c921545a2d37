"""Which URLs are worth fetching: a verdict for every line, and a quick way to the same verdict for plain lines.

`judge` is the definition. `sift` gives the same answers for many lines: what a line says up to its path is looked up
in a dictionary (lists hold few hosts and many paths), most lines end there, and only lines with unusual characters
take the long way. On a million submitted links this is four to five times as fast as urlsplit and tldextract for each
line (bench/url_filter).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import unquote

from tasks.scrape.canonical_url import CONTROLS, HEAD, CanonicalRules, canonical_rest
from tasks.scrape.config import FilterConfig
from tasks.scrape.filter_reasons import FilterReason, Tally
from tasks.scrape.host_rules import HostRules, HostVerdict
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

MAX_REMEMBERED_HEADS = 2_000_000
_PLAIN_HEAD = re.compile(r"https?://[a-z0-9.-]+")
# No escapes, entities, brackets or other characters that a repair or the canonical form would touch
_PLAIN_REST = re.compile(
    r"(/[A-Za-z0-9_~+:@!$*,=/.-]*)(?:\?([A-Za-z0-9_~+:@!$*,=/.?&-]*))?(?:#[A-Za-z0-9_~+:@!$*,=/.?&-]*)?"
)
_PLAIN_END = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/_=+-")
_REASONS = tuple(FilterReason)
_OTHER_SCHEME = re.compile(r"[a-z][a-z0-9+-]*:(?!\d)", re.IGNORECASE)
_PARAMETERS = re.compile(";[^/]*$")
PAGE_EXTENSIONS = ("html", "htm", "shtml", "xhtml", "php", "aspx", "asp", "jsp", "cfm", "com", "org", "net")


class Verdict(NamedTuple):
    """What became of one line."""

    url: str
    """The URL the line means, with its first spelling; see repair_url."""
    reason: FilterReason | None
    """None when it is kept so far: duplicates and the cap of a site are found later."""
    key: str
    """The spelling in which it is compared; empty for a dropped line."""


class Sieve(Protocol):
    """A way to decide about lines, one at a time."""

    def sift(self, lines: Iterable[str], tally: Tally) -> tuple[list[str], list[str]]:
        """URLs and keys of the lines that are kept so far, in order. Blank lines are passed over."""


class UrlFilter:
    """The rules of FilterConfig."""

    def __init__(self, config: FilterConfig) -> None:
        """Reads the lists. Raises UserError for an entry that names no host."""
        self._min, self._max = config.min_url_characters, config.max_url_characters
        tracking = TrackingList(words_of(_entries(config.tracking_parameters_file, "tracking_parameters")))
        self._tracks, self._is_tracking = tracking.some_in, tracking.matches
        self._rules = CanonicalRules(
            ignore_scheme=config.same_page_without_scheme,
            ignore_www=config.same_page_without_www,
            ignore_trailing_slash=config.same_page_without_slash,
            is_tracking=tracking.matches,
        )
        domains = [*_entries(config.blocked_domains_file, "blocked_domains"), *config.blocked_domains]
        extensions = [*_entries(config.blocked_extensions_file, "blocked_extensions"), *config.blocked_extensions]
        self._extensions = blocked_extensions(extensions)
        self._innocent = frozenset(PAGE_EXTENSIONS) - {name.rpartition(".")[2] for name in self._extensions}
        self._words = WordList([*_entries(config.blocked_words_file, "blocked_words"), *config.blocked_words])
        self._hosts = HostRules(
            blocked=blocked_hosts(domains, "filter.blocked_domains"),
            allowed_private=config.allow_private_hosts,
            words=self._words,
            rules=self._rules,
        )
        self._verdicts: dict[tuple[str, str], HostVerdict] = {}
        self._heads: dict[str, str | int] = {}
        """Plain heads: the canonical form, or the place of the reason in _REASONS (numbers count faster)."""

    def judge(self, line: str) -> Verdict:
        """The verdict about one line."""
        url = repair_url(line)
        match = HEAD.match(url)
        if match is None:
            if CONTROLS.search(url):
                return Verdict(url, FilterReason.CONTROL_CHARACTER, "")
            other = _OTHER_SCHEME.match(url) and not url.lower().startswith(("http:", "https:"))
            return Verdict(url, FilterReason.UNSUPPORTED_SCHEME if other else FilterReason.MALFORMED, "")
        if CONTROLS.search(match.group()):
            return Verdict(url, FilterReason.CONTROL_CHARACTER, "")
        host = self._host_verdict(match.group(1).lower(), match.group(2))
        rest = url[match.end() :]
        reason = host.reason or self._judge_rest(url, rest)
        return Verdict(url, reason, "" if reason else host.head + canonical_rest(rest, self._rules))

    def _host_verdict(self, scheme: str, authority: str) -> HostVerdict:
        verdict = self._verdicts.get((scheme, authority))
        if verdict is None:
            if len(self._verdicts) >= MAX_REMEMBERED_HEADS:
                self._verdicts.clear()
            verdict = self._verdicts[scheme, authority] = self._hosts.judge(scheme, authority)
        return verdict

    def _judge_rest(self, url: str, rest: str) -> FilterReason | None:
        if CONTROLS.search(rest):
            return FilterReason.CONTROL_CHARACTER
        if len(url) < self._min:
            return FilterReason.TOO_SHORT
        if len(url) > self._max:
            return FilterReason.TOO_LONG
        path = rest.partition("#")[0].partition("?")[0]
        if "%" in path:
            path = unquote(path)
        if self._has_blocked_extension(path):
            return FilterReason.BLOCKED_EXTENSION
        if self._words and self._words.hits(split_words(path)):
            return FilterReason.BLOCKED_WORD
        return None

    def _has_blocked_extension(self, path: str) -> bool:
        name = _PARAMETERS.sub("", path).rstrip("/").rpartition("/")[2].lower()
        while "." in name:
            name = name.partition(".")[2]
            if name in self._extensions:
                return True
        return False

    def _learn(self, head: str) -> str | int | None:
        """The verdict about a plain head, remembered; None for any other head."""
        if _PLAIN_HEAD.fullmatch(head) is None:
            return None
        if len(self._heads) >= MAX_REMEMBERED_HEADS:
            self._heads.clear()
        verdict = self._hosts.judge_plain(*head.split("://", 1))
        answer = _REASONS.index(verdict) if isinstance(verdict, FilterReason) else verdict
        self._heads[head] = answer
        return answer

    def sift(self, lines: Iterable[str], tally: Tally) -> tuple[list[str], list[str]]:
        """URLs and keys of the lines that are kept so far, in order; the same answers as `judge`."""
        urls: list[str] = []
        keys: list[str] = []
        paths: list[str] = []
        """Paths that were not looked through for words yet."""
        heads, plain_rest, plain_end, innocent = self._heads, _PLAIN_REST.fullmatch, _PLAIN_END, self._innocent
        min_length, max_length, ignores_slash = self._min, self._max, self._rules.ignore_trailing_slash
        has_extension = self._has_blocked_extension
        counts = [0] * len(_REASONS)
        for line in lines:
            cut = line.find("/", 8)
            head = line if cut < 0 else line[:cut]
            known = heads.get(head)
            if known is None:
                known = self._learn(head)
                if known.__class__ is int:
                    tally.drop(_REASONS[known], line, 0)
            if known.__class__ is int:
                counts[known] += 1
                continue
            if known is None:
                self._sift_slowly(line, tally, urls, keys, paths)
                continue
            url = line
            if cut < 0:
                path, query = "/", None
            else:
                match = plain_rest(line, cut)
                if match is None and "&amp;" in line:
                    url = line.replace("&amp;", "&")
                    match = plain_rest(url, cut)
                if match is None or url[-1] not in plain_end or "/." in url:
                    self._sift_slowly(line, tally, urls, keys, paths)
                    continue
                path, query = match.groups()
            if not min_length <= len(url) <= max_length:
                tally.drop(FilterReason.TOO_SHORT if len(url) < min_length else FilterReason.TOO_LONG, line)
                continue
            dot = path.rfind(".")
            if dot >= 0 and path[dot + 1 :] not in innocent and has_extension(path):
                tally.drop(FilterReason.BLOCKED_EXTENSION, line)
                continue
            if query is not None:
                query = self._plain_query(query)
            if ignores_slash and path[-1] == "/":
                path = path.rstrip("/")
            urls.append(url)
            paths.append(path)
            keys.append(f"{known}{path}?{query}" if query else f"{known}{path}")
        for reason, count in zip(_REASONS, counts, strict=True):
            if count:
                tally.dropped[reason] = tally.dropped.get(reason, 0) + count
        if self._words and self._words.hits_ascii("\n".join(paths)):
            return self._without_words(urls, keys, paths, tally)
        return urls, keys

    def _without_words(
        self, urls: list[str], keys: list[str], paths: list[str], tally: Tally
    ) -> tuple[list[str], list[str]]:
        """Look at each path: somewhere among them stands a listed word."""
        kept = [place for place, path in enumerate(paths) if not self._words.hits_ascii(path)]
        for place in sorted(set(range(len(paths))).difference(kept)):
            tally.drop(FilterReason.BLOCKED_WORD, urls[place])
        return [urls[place] for place in kept], [keys[place] for place in kept]

    def _plain_query(self, query: str) -> str:
        if query[:1] != "&" and query[-1:] != "&" and "&&" not in query and not self._tracks(query):
            return query
        parts = query.split("&")
        return "&".join([part for part in parts if part and not self._is_tracking(part)])

    def _sift_slowly(self, line: str, tally: Tally, urls: list[str], keys: list[str], paths: list[str]) -> None:
        if not line or line.isspace():
            return
        verdict = self.judge(line)
        if verdict.reason is not None:
            tally.drop(verdict.reason, line)
        else:
            urls.append(verdict.url)
            keys.append(verdict.key)
            paths.append("")


def _entries(path: Path | None, default: str) -> tuple[str, ...]:
    return read_list(path, default)
