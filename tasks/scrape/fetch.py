"""Fetch one page: robots.txt, redirects by hand, every hop checked, and an outcome whatever happens."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache

from multidict import CIMultiDictProxy
from yarl import URL

from tasks.scrape.address_guard import Lookup, system_lookup
from tasks.scrape.earlier_crawl import EarlierCrawl, conditions
from tasks.scrape.fetch_config import FetchConfig
from tasks.scrape.fetch_outcome import FetchedPage, FetchFailure, FetchOutcome, FetchReason
from tasks.scrape.http_client import BodyRule, Budget, HttpClient, Reply
from tasks.scrape.media_type import check_body, check_header
from tasks.scrape.redirects import REDIRECT_STATUSES, parse_url, redirect_target
from tasks.scrape.robots import RobotsCache

PAGE_STATUSES = (200, 203)
NOT_MODIFIED = 304


@lru_cache(maxsize=64)
def _warc_date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class PageFetcher:
    """Fetches pages over one pool of connections. Use it as an async context manager; `fetch` may run many times
    at once."""

    def __init__(self, config: FetchConfig, lookup: Lookup = system_lookup) -> None:
        """`lookup` finds the addresses of a host name; tests give their own."""
        self._config = config
        self._client = HttpClient(config, lookup)
        self._robots = RobotsCache(config, self._client) if config.respect_robots else None
        self._earlier = None if config.earlier_crawl is None else EarlierCrawl(config.earlier_crawl)
        limits = config.limits
        self._rule = BodyRule(self._wants_body, limits.max_body_bytes, limits.max_page_bytes)

    async def __aenter__(self) -> PageFetcher:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._robots is not None:
            await self._robots.close()
        await self._client.__aexit__(*error)
        if self._earlier is not None:
            self._earlier.close()

    async def fetch(self, url: str) -> tuple[FetchOutcome, FetchedPage | None]:
        """The outcome of one URL and, when its reason is `ok`, the page. Never raises for what a server does."""
        limits = self._config.limits
        budget = Budget(limits.page_seconds, limits.retries)
        outcome = FetchOutcome(url, FetchReason.OK)
        page: FetchedPage | None = None
        try:
            reply, stored = await self._follow(parse_url(url), budget, outcome)
            page = stored or self._page(reply)
            outcome.num_bytes = len(page.body)
        except FetchFailure as failure:
            outcome.reason, outcome.detail = failure.reason, failure.detail
            outcome.status = failure.status or outcome.status
        outcome.num_requests = budget.num_requests
        outcome.seconds = time.monotonic() - budget.started
        return outcome, page

    async def _follow(self, url: URL, budget: Budget, outcome: FetchOutcome) -> tuple[Reply, FetchedPage | None]:
        """The last answer of the redirects and, when it says that nothing changed, the page of the earlier crawl."""
        visited: set[URL] = set()
        while True:
            outcome.status = 0
            if self._robots is not None:
                await self._robots.check(url)
            requests_before = budget.num_requests
            try:
                reply, stored = await self._ask(url, budget)
            finally:
                if budget.num_requests > requests_before:
                    outcome.final_url = str(url)
            outcome.status = reply.status
            if reply.status not in REDIRECT_STATUSES:
                break
            visited.add(url)
            url = redirect_target(reply)
            if url in visited:
                raise FetchFailure(FetchReason.REDIRECT_LOOP, str(url))
            if len(visited) > self._config.limits.max_redirects:
                raise FetchFailure(FetchReason.TOO_MANY_REDIRECTS, str(url))
        if reply.status not in PAGE_STATUSES and stored is None:
            raise FetchFailure(FetchReason.HTTP_ERROR, reply.status_text)
        return reply, stored

    async def _ask(self, url: URL, budget: Budget) -> tuple[Reply, FetchedPage | None]:
        """One answer, without its page when the earlier crawl has it and it did not change since."""
        known = None if self._earlier is None else self._earlier.find(str(url))
        if known is None or self._earlier is None:
            return await self._client.get(url, budget, self._rule), None
        reply = await self._client.get(url, budget, self._rule, conditions(known))
        if reply.status != NOT_MODIFIED:
            return reply, None
        if (stored := self._earlier.page(known)) is not None:
            return reply, stored
        return await self._client.get(url, budget, self._rule), None  # its file is damaged or gone

    def _wants_body(self, status: int, headers: CIMultiDictProxy[str]) -> bool:
        if status not in PAGE_STATUSES:
            return False
        if self._config.respect_noai and any("noai" in value.lower() for value in headers.getall("X-Robots-Tag", ())):
            raise FetchFailure(FetchReason.OPTED_OUT)
        check_header(headers.get("Content-Type", ""), self._config.accepted_types)
        return True

    def _page(self, reply: Reply) -> FetchedPage:
        check_body(reply.header("Content-Type"), reply.body, self._config.accepted_types)
        return FetchedPage(
            final_url=str(reply.url),
            date=_warc_date(int(reply.started_at)),
            status=reply.status,
            status_text=reply.status_text,
            headers=list(reply.raw_headers),
            body=reply.body,
        )
