"""How many lines of a list each site has, and what became of them: exact for those with many, in bounded memory."""

from __future__ import annotations

import heapq

MAX_SITES = 200_000


class SiteCounts:
    """Counts by site and label. When there are too many sites, those with the fewest lines are forgotten.

    A site that is forgotten and comes again starts at nothing, so its counts are lower bounds; the sites with most
    lines are hardly ever among them.
    """

    def __init__(self, max_sites: int = MAX_SITES) -> None:
        self._max_sites = max_sites
        self._counts: dict[str, dict[str, int]] = {}

    def add(self, site: str, label: str, amount: int) -> None:
        """Count `amount` lines of `site` under `label`."""
        counts = self._counts.get(site)
        if counts is None:
            if len(self._counts) >= self._max_sites:
                self._counts = dict(self._largest(self._max_sites // 2))
            counts = self._counts[site] = {}
        counts[label] = counts.get(label, 0) + amount

    def _largest(self, number: int) -> list[tuple[str, dict[str, int]]]:
        return heapq.nsmallest(number, self._counts.items(), key=lambda item: (-sum(item[1].values()), item[0]))

    def top(self, number: int) -> dict[str, dict[str, int]]:
        """The sites with most lines, largest first, with their counts by label in alphabetical order."""
        return {site: dict(sorted(counts.items())) for site, counts in self._largest(number)}
