"""What the filter thinks of a host: judged once for each scheme, host and port, then remembered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tasks.scrape.address_guard import is_public, literal_address
from tasks.scrape.canonical_url import (
    DEFAULT_PORTS,
    Authority,
    CanonicalRules,
    canonical_head,
    canonical_host,
    split_authority,
)
from tasks.scrape.filter_reasons import FilterReason
from tasks.scrape.public_suffix import PublicSuffixes, public_suffixes
from tasks.scrape.url_lists import WordList, split_words

# RFC 6761, 6762, 7686 (onion), 8375 (home.arpa; nothing else below arpa is a site) and the names that private networks
# use in practice
PRIVATE_SUFFIXES = frozenset(
    ("localhost", "localdomain", "local", "internal", "intranet", "private", "corp", "home", "lan", "arpa", "onion")
)
MAX_LABEL_CHARACTERS = 63
SUFFIX, WILDCARD, EXCEPTION, PRIVATE, BLOCKED = 1, 2, 4, 8, 16
"""What a name is; bits that add up."""


@dataclass(frozen=True, slots=True)
class HostVerdict:
    """Dropped for `reason`, or kept with the head of its canonical form."""

    reason: FilterReason | None
    head: str = ""
    """Scheme, host and port under the rules of comparison."""
    host: str = ""
    """The canonical host."""


class HostRules:
    """Private hosts, public suffixes, blocked domains and words, in this order."""

    def __init__(
        self,
        *,
        blocked: frozenset[str],
        allowed_private: Iterable[str],
        words: WordList,
        rules: CanonicalRules,
        suffixes: PublicSuffixes | None = None,
    ) -> None:
        """`blocked` are canonical hosts; `allowed_private` are "host" or "host:port"."""
        self._blocked = blocked
        self._words = words
        self._rules = rules
        self._suffixes = suffixes or public_suffixes()
        self._kinds: dict[str, int] = {}
        for kind, names in (
            (SUFFIX, self._suffixes.names),
            (WILDCARD, self._suffixes.wildcards),
            (EXCEPTION, self._suffixes.exceptions),
            (PRIVATE, PRIVATE_SUFFIXES),
            (BLOCKED, blocked),
        ):
            for name in names:
                self._kinds[name] = self._kinds.get(name, 0) | kind
        self._has_words = bool(words)
        self._tails = {tail for name in self._kinds for tail in _tails(name)}
        """Names of two labels and more that something is listed about, and those above them."""
        self._allowed = {self._place(item) for item in allowed_private}

    @staticmethod
    def _place(text: str) -> tuple[str, str]:
        authority = split_authority(text)
        return canonical_host(authority.host), authority.port

    def judge(self, scheme: str, authority: str) -> HostVerdict:
        """`scheme` is http or https in lower case, `authority` the text before the path."""
        try:
            parts = split_authority(authority)
            host = canonical_host(parts.host)
        except ValueError:  # UnicodeError and the errors of idna and ipaddress are such
            return HostVerdict(FilterReason.MALFORMED)
        reason = self._reason(scheme, parts, host)
        return HostVerdict(reason, canonical_head(scheme, host, parts.port, self._rules), host)

    def judge_plain(self, scheme: str, host: str) -> tuple[FilterReason | None, str, str]:
        """`judge` for lower-case ASCII letters, digits, dots and hyphens, without port: the same answers, sooner.

        Returns the reason, the head of the canonical form (or nothing), and the registrable domain or the host.
        """
        labels = host.split(".")
        if len(labels) > 1 and self._kinds.get(labels[-1]) == SUFFIX:
            # The usual case: below a top-level domain, where nothing is listed about the site and the names below it
            site = f"{labels[-2]}.{labels[-1]}"
            is_strange = len(host) > MAX_LABEL_CHARACTERS or "" in labels or "xn--" in host or self._allowed
            if site not in self._tails and not is_strange:
                return self._judge_name(scheme, host, site)
        return self._judge_by_walk(scheme, host)

    def _judge_name(self, scheme: str, host: str, site: str) -> tuple[FilterReason | None, str, str]:
        if self._has_words and self._words.hits(host.replace("-", ".").split(".")):
            return FilterReason.BLOCKED_WORD, "", site
        if self._rules.ignore_www and host.startswith("www."):
            return None, canonical_head(scheme, host, "", self._rules), site
        return None, f"http://{host}" if self._rules.ignore_scheme else f"{scheme}://{host}", site

    def _judge_by_walk(self, scheme: str, host: str) -> tuple[FilterReason | None, str, str]:
        if len(host) > MAX_LABEL_CHARACTERS or "xn--" in host or ".." in host or "." in (host[0], host[-1]):
            return self._judge_fully(scheme, host)
        # One walk over the dots for all lists; `below` and `further` are the names one and two labels longer.
        kinds, tail, below, further = self._kinds.get, host, "", ""
        registrable, bits = "", 0
        while True:
            kind = kinds(tail, 0)
            if kind:
                bits |= kind
                if not registrable:
                    if kind & EXCEPTION:
                        registrable = tail
                    elif kind & WILDCARD and below:
                        registrable = further or "-"
                    elif kind & SUFFIX:
                        registrable = below or "-"
            dot = tail.find(".")
            if dot < 0:
                break
            further, below, tail = below, tail, tail[dot + 1 :]
        if not tail[0].isalpha() or self._allowed:
            return self._judge_fully(scheme, host)
        if bits & PRIVATE:
            return FilterReason.PRIVATE_HOST, "", registrable if registrable not in ("", "-") else host
        if registrable in ("", "-"):
            return FilterReason.NO_REGISTRABLE_DOMAIN, "", host
        if bits & BLOCKED:
            return FilterReason.BLOCKED_DOMAIN, "", registrable
        return self._judge_name(scheme, host, registrable)

    def _judge_fully(self, scheme: str, host: str) -> tuple[FilterReason | None, str, str]:
        verdict = self.judge(scheme, host)
        return verdict.reason, "" if verdict.reason else verdict.head, self._suffixes.registrable(host) or host

    def _reason(self, scheme: str, parts: Authority, host: str) -> FilterReason | None:
        port = parts.port or DEFAULT_PORTS[scheme]
        last = host.rpartition(".")[2]
        address = literal_address(host) if last[:1].isdigit() or host.startswith("[") else None
        if (host, "") not in self._allowed and (host, port) not in self._allowed:
            if address is not None:
                if not is_public(address):
                    return FilterReason.PRIVATE_HOST
            elif last in PRIVATE_SUFFIXES:
                return FilterReason.PRIVATE_HOST
            elif self._suffixes.registrable(host) is None:
                return FilterReason.NO_REGISTRABLE_DOMAIN
        if self._is_blocked(host, is_name=address is None):
            return FilterReason.BLOCKED_DOMAIN
        if parts.has_credentials:
            return FilterReason.CREDENTIALS
        if self._words.hits(split_words(host)):
            return FilterReason.BLOCKED_WORD
        return None

    def _is_blocked(self, host: str, *, is_name: bool) -> bool:
        blocked = self._blocked
        if host in blocked:
            return True
        dot = host.find(".") if is_name else -1
        while dot >= 0:
            if host[dot + 1 :] in blocked:
                return True
            dot = host.find(".", dot + 1)
        return False


def _tails(name: str) -> Iterator[str]:
    """The name, and the names above it that have two labels or more."""
    while "." in name:
        yield name
        name = name.partition(".")[2]
