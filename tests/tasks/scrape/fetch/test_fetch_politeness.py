"""robots.txt, delays and numbers of requests, as the server sees them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from scripted_server import Exchange, Handler, ScriptedServer, answers, html, redirects

from tasks.scrape.fetch import PageFetcher
from tasks.scrape.fetch_config import FetchConfig, FetchLimits, FetchResources
from tasks.scrape.fetch_outcome import FetchOutcome, FetchReason


def fetch_together(server: ScriptedServer, paths: list[str], **settings: Any) -> list[FetchOutcome]:
    """Fetch all paths at once."""
    resources = FetchResources(**{"delay_seconds": 0, "backoff_seconds": 0.01, **settings.pop("resources", {})})
    limits = FetchLimits(**settings.pop("limits", {}))
    config = FetchConfig(allow_private_hosts=(server.host,), resources=resources, limits=limits, **settings)

    async def work() -> list[FetchOutcome]:
        async with PageFetcher(config) as fetcher:
            return [outcome for outcome, _ in await asyncio.gather(*(fetcher.fetch(server.url(p)) for p in paths))]

    return asyncio.run(work())


def robots(text: str, status: int = 200) -> Handler:
    return answers(status, {"Content-Type": "text/plain"}, text.encode())


RULES = "User-agent: *\nDisallow: /private\n\nUser-agent: url2lm\nDisallow: /ours\nAllow: /ours/open\n"


def test_rules_for_our_name_are_kept() -> None:
    routes = {"/robots.txt": robots(RULES), "/private": html(), "/ours/x": html(), "/ours/open": html()}
    with ScriptedServer(routes) as server:
        reasons = [o.reason for o in fetch_together(server, ["/private", "/ours/x", "/ours/open"])]
        assert reasons == [FetchReason.OK, FetchReason.ROBOTS_DISALLOWED, FetchReason.OK]
        assert server.counts["/robots.txt"] == 1, "asked for once a site"
        assert server.counts["/ours/x"] == 0


def test_other_names_get_other_rules() -> None:
    with ScriptedServer({"/robots.txt": robots(RULES), "/private": html()}) as server:
        [outcome] = fetch_together(server, ["/private"], user_agent="other/1")
        assert outcome.reason == FetchReason.ROBOTS_DISALLOWED


def test_a_redirect_into_a_forbidden_place_is_not_followed() -> None:
    with ScriptedServer({"/robots.txt": robots(RULES), "/a": redirects("/ours/x"), "/ours/x": html()}) as server:
        [outcome] = fetch_together(server, ["/a"])
        assert outcome.reason == FetchReason.ROBOTS_DISALLOWED
        assert server.counts["/ours/x"] == 0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_client_errors_allow_all(status: int) -> None:
    with ScriptedServer({"/robots.txt": robots("User-agent: *\nDisallow: /", status), "/a": html()}) as server:
        assert fetch_together(server, ["/a"])[0].reason == FetchReason.OK


@pytest.mark.parametrize("status", [429, 500, 503])
def test_server_errors_forbid_all(status: int) -> None:
    with ScriptedServer({"/robots.txt": robots("", status), "/a": html()}) as server:
        outcomes = fetch_together(server, ["/a", "/b"])
        assert {outcome.reason for outcome in outcomes} == {FetchReason.ROBOTS_UNAVAILABLE}
        assert server.pages_requested == 0


def test_unreadable_rules_forbid_all() -> None:
    async def cut(exchange: Exchange) -> None:
        await exchange.answer(200, {}, b"User-agent: *\n", length=500)
        exchange.close()

    with ScriptedServer({"/robots.txt": cut, "/a": html()}) as server:
        assert fetch_together(server, ["/a"])[0].reason == FetchReason.ROBOTS_UNAVAILABLE


def test_rules_may_be_redirected() -> None:
    routes = {"/robots.txt": redirects("/rules"), "/rules": robots("User-agent: *\nDisallow: /a"), "/a": html()}
    with ScriptedServer(routes) as server:
        assert fetch_together(server, ["/a"])[0].reason == FetchReason.ROBOTS_DISALLOWED


def test_rules_are_ignored_only_when_told() -> None:
    with ScriptedServer({"/robots.txt": robots("User-agent: *\nDisallow: /"), "/a": html()}) as server:
        assert fetch_together(server, ["/a"], respect_robots=False)[0].reason == FetchReason.OK
        assert server.counts["/robots.txt"] == 0


def starts(server: ScriptedServer) -> list[float]:
    moments = [moment for moment, _ in server.requests]
    return [later - earlier for earlier, later in itertools.pairwise(moments)]


def test_requests_to_one_host_keep_their_distance() -> None:
    with ScriptedServer({}, default=html()) as server:
        fetch_together(server, ["/a", "/b", "/c"], resources={"delay_seconds": 0.15})
        # measured at the server, where the way there varies a little
        assert all(gap > 0.1 for gap in starts(server)), starts(server)


def test_a_crawl_delay_counts_when_it_is_longer_and_is_capped() -> None:
    rules = {"/robots.txt": robots("User-agent: *\nCrawl-delay: 500\nDisallow:")}
    with ScriptedServer(rules, default=html()) as server:
        fetch_together(server, ["/a", "/b", "/c"], limits={"max_crawl_delay_seconds": 0.2})
        moments = [moment for moment, path in server.requests if path != "/robots.txt"]
        assert all(later - earlier > 0.15 for earlier, later in itertools.pairwise(moments))


@pytest.mark.parametrize(("per_host", "in_all", "most"), [(3, 100, 3), (50, 2, 2)])
def test_only_so_many_requests_at_a_time(per_host: int, in_all: int, most: int) -> None:
    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.05)
        await exchange.answer(200, {"Content-Type": "text/html"}, b"<p>x</p>")

    with ScriptedServer({}, default=slow) as server:
        paths = [f"/{number}" for number in range(12)]
        fetch_together(server, paths, resources={"max_requests_per_host": per_host, "max_requests": in_all})
        assert server.most_active == most


def test_a_pause_holds_for_the_whole_host() -> None:
    async def busy(exchange: Exchange) -> None:
        if exchange.number == 1:
            await exchange.answer(429, {"Retry-After": "1"})
        else:
            await exchange.answer(200, {"Content-Type": "text/html"}, b"<p>x</p>")

    with ScriptedServer({"/busy": busy, "/other": html()}) as server:
        outcomes = fetch_together(
            server, ["/busy", "/other"], respect_robots=False, resources={"max_requests_per_host": 1}
        )
        assert {outcome.reason for outcome in outcomes} == {FetchReason.OK}
        assert server.times("/other")[0] - server.times("/busy")[0] >= 0.95
