"""Why a URL does not pass the filter: the closed list of reasons, and the tally of a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum

from tasks.progress import EXAMPLE_CHARACTERS, NUM_REPORTED_DOMAINS, StageReport
from tasks.reservoir import Reservoir
from tasks.scrape.filter_sites import SiteCounts

_USER_INFORMATION = re.compile(r"(?<=//).*@|^.*@")
NUM_EXAMPLES = 5


class FilterReason(StrEnum):
    """One reason for each dropped URL: the first that applies, in this order."""

    BAD_ROW = "bad_row"
    """A row of a .jsonl list without a text field `url`."""
    UNSUPPORTED_SCHEME = "unsupported_scheme"
    """ftp, mailto, javascript and the like."""
    CONTROL_CHARACTER = "control_character"
    """A control character or a line separator inside: parsers delete it, readers split there."""
    MALFORMED = "malformed"
    """No URL, or a host or port that no server can have."""
    PRIVATE_HOST = "private_host"
    """An address or name that is not of the public internet, in any notation."""
    NO_REGISTRABLE_DOMAIN = "no_registrable_domain"
    """The host is a public suffix, has no known one, or has no dot."""
    BLOCKED_DOMAIN = "blocked_domain"
    """The host, or a domain above it, is listed."""
    CREDENTIALS = "credentials"
    """A user name or password before the host."""
    BLOCKED_WORD = "blocked_word"
    """A listed word stands between separators in the host, or in the path (looked at after the extension)."""
    TOO_SHORT = "too_short"
    TOO_LONG = "too_long"
    BLOCKED_EXTENSION = "blocked_extension"
    """The last part of the path ends in a listed extension."""
    DUPLICATE_EXACT = "duplicate_exact"
    """The same text as an earlier URL that was kept."""
    DUPLICATE_CANONICAL = "duplicate_canonical"
    """Another spelling of an earlier URL that was kept."""
    DOMAIN_CAP = "domain_cap"
    """The site already has as many URLs as are wanted of one site."""


REASONS = tuple(FilterReason)
"""The reasons by number."""


def example_of(line: str) -> str:
    """`line` fit for a report: without user information and without characters that no text file may hold."""
    if "@" in line:
        line = _USER_INFORMATION.sub("***@", line, count=1)
    return line.encode("utf-8", "backslashreplace").decode("utf-8")[:EXAMPLE_CHARACTERS]


class Tally:
    """Dropped lines by reason, with a few of each that were drawn by lot; and how many lines each site has."""

    def __init__(self) -> None:
        self.dropped: dict[FilterReason, int] = {}
        self.sites = SiteCounts()
        self._samples: dict[FilterReason, Reservoir[str]] = {}

    def drop(self, reason: FilterReason, line: str) -> None:
        """Count one line."""
        self.drop_many(reason, 1, lambda place: line)

    def drop_many(self, reason: FilterReason, amount: int, line_at: Callable[[int], str]) -> None:
        """Count `amount` lines; `line_at` gives the one at a place among them, and is asked for few."""
        samples = self._samples.get(reason)
        if samples is None:
            samples = self._samples[reason] = Reservoir(NUM_EXAMPLES, reason.value)
        self.dropped[reason] = self.dropped.get(reason, 0) + amount
        samples.offer(amount, lambda place: example_of(line_at(place)))

    @property
    def examples(self) -> dict[FilterReason, list[str]]:
        """The examples of each reason, in the order in which they were met."""
        return {reason: samples.items for reason, samples in self._samples.items()}

    def fill(self, report: StageReport) -> None:
        """Write the tally into a report, by reason in the order of the enumeration."""
        examples = self.examples
        for reason in FilterReason:
            if reason in self.dropped:
                report.dropped[reason.value] = self.dropped[reason]
                report.examples[reason.value] = examples[reason]
        report.domains = self.sites.top(NUM_REPORTED_DOMAINS)
