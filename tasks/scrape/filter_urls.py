"""Which URLs are worth fetching: the rules of FilterConfig.

`judge` is the definition: a verdict for one line. `judge_heads` and `judge_rests` give the same verdicts for the plain
lines of a block (filter_blocks).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np

from tasks.scrape.canonical_url import CONTROLS, HEAD, CanonicalRules, canonical_rest
from tasks.scrape.config import FilterConfig
from tasks.scrape.filter_digest import LOWER_CASE, WORD_BYTES, Places, masks_of
from tasks.scrape.filter_heads import KEPT, NOT_PLAIN, HeadVerdicts
from tasks.scrape.filter_lines import PlainLines, plain_words
from tasks.scrape.filter_reasons import REASONS, FilterReason
from tasks.scrape.host_rules import HostRules, HostVerdict
from tasks.scrape.public_suffix import public_suffixes
from tasks.scrape.repair_url import repair_url
from tasks.scrape.url_lists import (
    TrackingList,
    WordFinder,
    WordList,
    blocked_extensions,
    blocked_hosts,
    read_list,
    split_words,
    words_of,
)

MAX_REMEMBERED_PLACES = 200_000
_PLAIN_HEADS = re.compile(r"^(?:(https?)://([a-z0-9.-]+)$|.*$)", re.MULTILINE)
_NUMBERS: dict[str | None, int] = {None: KEPT, "": NOT_PLAIN} | {item: place for place, item in enumerate(FilterReason)}
_OTHER_SCHEME = re.compile(r"[a-z][a-z0-9+-]*:(?!\d)", re.IGNORECASE)
_PARAMETERS = re.compile(";[^/]*$")


class Verdict(NamedTuple):
    """What became of one line."""

    url: str
    """The URL the line means, with its first spelling; see repair_url."""
    reason: FilterReason | None
    """None when it is kept so far: duplicates and the cap of a site are found later."""
    key: str
    """The spelling in which it is compared; empty for a dropped line."""


class UrlFilter:
    """The rules of FilterConfig."""

    repairs_entities = True

    def __init__(self, config: FilterConfig) -> None:
        """Reads the lists. Raises UserError for an entry that names no host."""
        self._min, self._max = config.min_url_characters, config.max_url_characters
        tracking = TrackingList(words_of(_entries(config.tracking_parameters_file, "tracking_parameters")))
        self._tracking = tracking.beginnings
        self._rules = CanonicalRules(
            ignore_scheme=config.same_page_without_scheme,
            ignore_www=config.same_page_without_www,
            ignore_trailing_slash=config.same_page_without_slash,
            is_tracking=tracking.matches,
        )
        domains = [*_entries(config.blocked_domains_file, "blocked_domains"), *config.blocked_domains]
        extensions = [*_entries(config.blocked_extensions_file, "blocked_extensions"), *config.blocked_extensions]
        self._extensions = blocked_extensions(extensions)
        self._words = WordList([*_entries(config.blocked_words_file, "blocked_words"), *config.blocked_words])
        self._finder = WordFinder(self._words)
        self._hosts = HostRules(
            blocked=blocked_hosts(domains, "filter.blocked_domains"),
            allowed_private=config.allow_private_hosts,
            words=self._words,
            rules=self._rules,
        )
        self._suffixes = public_suffixes()
        self._verdicts: dict[tuple[str, str], HostVerdict] = {}
        ends = frozenset(name.rpartition(".")[2] for name in self._extensions)
        self._endings = plain_words(ends)
        self._blocked_endings = plain_words(self._extensions)
        self._only_plain_endings = len(self._endings) == len(ends)

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
            if len(self._verdicts) >= MAX_REMEMBERED_PLACES:
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

    def judge_bytes(self, line: bytes) -> tuple[FilterReason | None, bytes, bytes]:
        """`judge` for the bytes of a line: the reason, the URL and its key."""
        url, reason, key = self.judge(line.decode("utf-8", "surrogateescape"))
        return reason, url.encode("utf-8", "surrogateescape"), key.encode()

    def judge_heads(self, heads: list[bytes]) -> HeadVerdicts:
        """The verdicts about what lines say before their third slash, when that is plain."""
        judge = self._hosts.judge_plain
        found = _PLAIN_HEADS.findall(b"\n".join(heads).decode("latin-1"))
        verdicts = [judge(scheme, host) if host else ("", "", "") for scheme, host in found]
        codes = [_NUMBERS[reason] for reason, _, _ in verdicts]
        return HeadVerdicts(codes, [head for _, head, _ in verdicts], [site for _, _, site in verdicts])

    def key_end(self, rest: bytes) -> int:
        """Where the key of a plain line ends in what follows its head, if nothing is left out inside."""
        path = rest.partition(b"#")[0]
        return len(path.rstrip(b"/") if self._rules.ignore_trailing_slash and b"?" not in path else path)

    def site_of(self, head: bytes) -> str:
        """The registrable domain, or the host where there is none."""
        host = head.partition(b"://")[2].decode()
        return self._suffixes.registrable(host) or host

    def judge_rests(self, lines: PlainLines) -> Places:
        """For lines whose head is kept: the place of the reason in REASONS, KEPT, or NOT_PLAIN."""
        if self._rules.ignore_trailing_slash:
            lines.strip_slashes()
        else:
            lines.odd |= lines.head_ends == lines.ends
        self._look_at_queries(lines)
        verdicts = np.full(len(lines.starts), KEPT, np.int64)
        self._look_at_endings(lines, verdicts)
        lengths = lines.ends - lines.starts
        verdicts[lengths > self._max] = REASONS.index(FilterReason.TOO_LONG)
        verdicts[lengths < self._min] = REASONS.index(FilterReason.TOO_SHORT)
        verdicts[lines.odd] = NOT_PLAIN
        if self._words:
            self._look_at_words(lines, verdicts)
        return verdicts

    def _look_at_words(self, lines: PlainLines, verdicts: Places) -> None:
        some = lines.lines_at(self._finder.places(lines.buffer, lines.words)).tolist()
        escaped = np.flatnonzero(lines.escaped & (verdicts == KEPT)).tolist()
        # mostly there is none in all of them together
        if self._words.hits(split_words("\n".join([_unescaped(lines.path(line)) for line in escaped]))):
            some += escaped
        for line in some:
            if verdicts[line] == KEPT and self._words.hits(split_words(_unescaped(lines.path(line)))):
                verdicts[line] = REASONS.index(FilterReason.BLOCKED_WORD)

    def _look_at_queries(self, lines: PlainLines) -> None:
        """Keys of lines where a slash before the query or a parameter is left out."""
        some = lines.has_empty_parameter()
        parameters = lines.parameters()
        some[lines.lines_at(parameters[self._tracking.match(lines.words[parameters])])] = True
        plain = lines.has_query & ~lines.odd
        for line in np.flatnonzero(some & plain).tolist():
            lines.keys[line] = canonical_rest(lines.rest(line).decode(), self._rules).encode()
        if self._rules.ignore_trailing_slash:
            for line in np.flatnonzero((lines.array[lines.path_ends - 1] == ord("/")) & plain & ~some).tolist():
                path, mark, query = lines.rest(line).partition(b"?")
                lines.keys[line] = path.rstrip(b"/") + mark + query

    def _look_at_endings(self, lines: PlainLines, verdicts: Places) -> None:
        if not self._extensions:
            return
        dots = lines.last_before(lines.dots, lines.path_ends)
        slashes = lines.last_before(lines.slashes, lines.path_ends)
        # the last segment has a dot, or it is empty and one before it may have one; escapes may stand for either
        some = (
            (dots >= lines.head_ends)
            & ((slashes < dots) | (slashes == lines.path_ends - 1) | lines.escaped)
            & ~lines.odd
        )
        found = np.flatnonzero(some)
        starts = dots[found] + 1
        lengths = lines.path_ends[found] - starts
        words = (lines.words[starts] | LOWER_CASE) & masks_of(lengths)
        short = lengths <= WORD_BYTES
        listed = np.isin(words, self._endings) & short
        blocked = np.isin(words, self._blocked_endings) & short
        # the end of a listed ending such as tar.gz, an ending that fits no word, or one that is not at the end
        doubtful = listed & ~blocked if self._only_plain_endings else ~blocked
        doubtful |= lines.escaped[found] | (slashes[found] > dots[found])
        paths = map(lines.path, found[doubtful].tolist())
        blocked[doubtful] = [self._has_blocked_extension(_unescaped(path)) for path in paths]
        verdicts[found[blocked]] = REASONS.index(FilterReason.BLOCKED_EXTENSION)


def _unescaped(path: bytes) -> str:
    return unquote(path.decode()) if b"%" in path else path.decode()


def _entries(path: Path | None, default: str) -> tuple[str, ...]:
    return read_list(path, default)
