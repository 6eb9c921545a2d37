"""robots.txt by RFC 9309: asked for once a site, kept for the run, and obeyed."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from multidict import CIMultiDictProxy
from protego import Protego
from yarl import URL

from tasks.scrape.fetch_config import FetchConfig
from tasks.scrape.fetch_outcome import FetchFailure, FetchReason
from tasks.scrape.http_client import BodyRule, Budget, HttpClient
from tasks.scrape.redirects import REDIRECT_STATUSES, redirect_target

MAX_ROBOTS_BYTES = 512_000  # section 2.5: at least 500 kibibytes are to be read
MAX_ROBOTS_REDIRECTS = 5  # section 2.3.1.2
MAX_REMEMBERED_SITES = 5000


Origin = tuple[str, str | None, int | None]


@dataclass(frozen=True, slots=True)
class SiteRules:
    """What a site says. `failure` stands for every page of the site; without `parsed` all is allowed."""

    parsed: Protego | None = None
    delay_seconds: float = 0.0
    """Its Crawl-delay, as far as it is honoured."""
    failure: FetchFailure | None = None


class RobotsCache:
    """The rules of the sites being fetched from; the least recently used are forgotten when there are many."""

    def __init__(self, config: FetchConfig, client: HttpClient) -> None:
        """Rules are asked for with `client`, so guard, politeness and limits hold for robots.txt too."""
        self._config, self._client = config, client
        self._sites: OrderedDict[Origin, asyncio.Task[SiteRules]] = OrderedDict()

    async def check(self, url: URL) -> None:
        """Raises FetchFailure when `url` may not be fetched."""
        origin = (url.scheme, url.raw_host, url.port)
        task = self._sites.get(origin)
        if task is None:
            task = self._sites[origin] = asyncio.create_task(self._load(url.origin()))
            self._forget_oldest()
        self._sites.move_to_end(origin)
        # The page that asks first may be cancelled; the others still wait for the answer.
        rules = task.result() if task.done() else await asyncio.shield(task)
        if rules.failure is not None:
            known = rules.failure
            raise FetchFailure(known.reason, f"robots.txt: {known.detail}")
        if rules.delay_seconds > 0:  # said each time: a host that was idle for long is forgotten
            self._client.politeness.slow_down(url.raw_host or "", rules.delay_seconds)
        if rules.parsed is not None and not rules.parsed.can_fetch(str(url), self._config.robots_name):
            raise FetchFailure(FetchReason.ROBOTS_DISALLOWED)

    def _forget_oldest(self) -> None:
        for origin in list(self._sites)[: max(0, len(self._sites) - MAX_REMEMBERED_SITES)]:
            if self._sites[origin].done():
                del self._sites[origin]

    async def close(self) -> None:
        """End what is still being asked for."""
        for task in self._sites.values():
            task.cancel()
        await asyncio.gather(*self._sites.values(), return_exceptions=True)

    async def _load(self, origin: URL) -> SiteRules:
        limits = self._config.limits
        budget = Budget(limits.page_seconds, limits.retries)
        rule = BodyRule(_is_rules, limits.max_body_bytes, limits.max_page_bytes)
        url = origin.with_path("/robots.txt")
        try:
            for _ in range(MAX_ROBOTS_REDIRECTS + 1):
                reply = await self._client.get(url, budget, rule)
                if reply.status not in REDIRECT_STATUSES:
                    break
                url = redirect_target(reply)
            else:
                return SiteRules()  # too many redirects: as if there were no robots.txt
        except FetchFailure as failure:
            return self._after_failure(failure)
        if reply.status >= 500 or reply.status == 429:
            return SiteRules(failure=FetchFailure(FetchReason.ROBOTS_UNAVAILABLE, f"status {reply.status}"))
        if reply.status != 200:
            return SiteRules()
        parsed = Protego.parse(reply.body[:MAX_ROBOTS_BYTES].decode("utf-8", "replace").removeprefix("\ufeff"))
        delay = parsed.crawl_delay(self._config.robots_name)
        return SiteRules(parsed, min(float(delay or 0.0), limits.max_crawl_delay_seconds))

    def _after_failure(self, failure: FetchFailure) -> SiteRules:
        unreadable = (
            FetchReason.BAD_REDIRECT,
            FetchReason.BAD_ENCODING,
            FetchReason.TOO_LARGE,
            FetchReason.TRUNCATED,
            FetchReason.BAD_RESPONSE,
        )
        if failure.reason in unreadable:
            # The site is there, but its rules cannot be read: section 2.3.1.4, assume that all is disallowed.
            return SiteRules(failure=FetchFailure(FetchReason.ROBOTS_UNAVAILABLE, failure.detail))
        return SiteRules(failure=failure.remembered())


def _is_rules(status: int, headers: CIMultiDictProxy[str]) -> bool:
    del headers
    return status == 200
