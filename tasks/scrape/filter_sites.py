"""How many lines of a list each site has, and what became of them: exact for those with many, in bounded memory."""

from __future__ import annotations

from tasks.progress import largest

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
                self._counts = largest(self._counts, self._max_sites // 2)
            counts = self._counts[site] = {}
        counts[label] = counts.get(label, 0) + amount

    def top(self, number: int) -> dict[str, dict[str, int]]:
        """The sites with most lines, largest first, with their counts by label in alphabetical order."""
        return largest(self._counts, number)
