"""Every way one page can end, against a real server on 127.0.0.1."""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from scripted_server import Exchange, Handler, ScriptedServer, answers, html, page, redirects

from tasks.scrape.fetch import PageFetcher
from tasks.scrape.fetch_config import FetchConfig, FetchLimits, FetchResources
from tasks.scrape.fetch_outcome import FetchedPage, FetchOutcome, FetchReason

MEGABYTE = 1 << 20
FAST: dict[str, Any] = {"delay_seconds": 0, "backoff_seconds": 0.01}


def fetch_all(
    config: FetchConfig, urls: list[str], lookup: Callable[[str, int], list[tuple[int, str]]] | None = None
) -> list[tuple[FetchOutcome, FetchedPage | None]]:
    async def work() -> list[tuple[FetchOutcome, FetchedPage | None]]:
        arguments = () if lookup is None else (lookup,)
        async with PageFetcher(config, *arguments) as fetcher:
            return [await fetcher.fetch(url) for url in urls]

    return asyncio.run(work())


def config_for(server: ScriptedServer, **settings: Any) -> FetchConfig:
    limits = settings.pop("limits", {})
    resources = {**FAST, **settings.pop("resources", {})}
    return FetchConfig(
        allow_private_hosts=(server.host,),
        limits=FetchLimits(**limits),
        resources=FetchResources(**resources),
        **settings,
    )


def fetch_one(handler: Handler, **settings: Any) -> tuple[FetchOutcome, FetchedPage | None, ScriptedServer]:
    with ScriptedServer({"/page": handler}) as server:
        [(outcome, fetched)] = fetch_all(config_for(server, **settings), [server.url("/page")])
        return outcome, fetched, server


def test_a_page_comes_with_its_facts() -> None:
    outcome, fetched, server = fetch_one(html(), user_agent="tester/2", contact="https://example.org/bot")
    assert outcome.reason == FetchReason.OK
    assert (outcome.status, outcome.num_requests, outcome.num_bytes) == (200, 1, len(page()))
    assert outcome.final_url == outcome.url == server.url("/page")
    assert fetched is not None and fetched.body == page()


def test_the_user_agent_names_a_contact() -> None:
    seen: list[dict[str, str]] = []

    async def handle(exchange: Exchange) -> None:
        seen.append(exchange.headers)
        await exchange.answer(200, {"Content-Type": "text/html"}, page())

    fetch_one(handle, user_agent="tester/2", contact="https://example.org/bot")
    assert seen[0]["User-Agent"] == "tester/2 (+https://example.org/bot)"


def _deflate(data: bytes, window: int) -> bytes:
    stream = zlib.compressobj(wbits=window)
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(page())),
        ("x-gzip", gzip.compress(page())),
        ("gzip", gzip.compress(page()[:20]) + gzip.compress(page()[20:])),
        ("gzip", gzip.compress(page()) + b"\0\0padding"),
        ("deflate", _deflate(page(), 15)),
        ("deflate", _deflate(page(), -15)),
        ("deflate, gzip", gzip.compress(_deflate(page(), 15))),
        ("identity", page()),
    ],
)
def test_encodings_are_undone(encoding: str, body: bytes) -> None:
    outcome, fetched, _ = fetch_one(html(body, Content_Encoding=encoding))
    assert outcome.reason == FetchReason.OK, outcome.detail
    assert fetched is not None and fetched.body == page()


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (html(gzip.compress(page() * 50)[:-10], Content_Encoding="gzip"), "truncated"),
        (html(gzip.compress(page())[:1], Content_Encoding="gzip"), "truncated"),
        (html(page(), Content_Encoding="gzip"), "bad_encoding"),
        (html(page(), Content_Encoding="br"), "bad_encoding"),
        (html(b"\x1f\x8b\x08" + b"\xff" * 60, Content_Encoding="gzip"), "bad_encoding"),
        (html(b""), "empty_body"),
        (html(b" \n "), "empty_body"),
        (html(b"%PDF-1.4 binary"), "content_type"),
        (answers(200, {"Content-Type": "application/pdf"}, b"%PDF-1.4"), "content_type"),
        (answers(200, {}, b"%PDF-1.4"), "content_type"),
        (answers(200, {}, b"just words"), "content_type"),
        (answers(200, {"Content-Type": "application/octet-stream"}, b"\0\1\2"), "content_type"),
        (answers(204), "http_error"),
        (answers(404, {"Content-Type": "text/html"}, page()), "http_error"),
        (answers(500), "http_error"),
        (answers(302), "bad_redirect"),
        (redirects("ftp://example.org/x"), "bad_redirect"),
        (redirects("http://user:secret@example.org/x"), "bad_redirect"),
        (redirects("http://[broken"), "bad_redirect"),
        (redirects("/page"), "redirect_loop"),
        (redirects("/page#part"), "redirect_loop"),
        (redirects("http://10.0.0.1/"), "private_host"),
        (redirects("http://[::ffff:7f00:1]/"), "private_host"),
        (html(X_Robots_Tag="noindex, noai"), "opted_out"),
    ],
)
def test_what_a_server_can_do_has_a_reason(handler: Handler, reason: str) -> None:
    outcome, fetched, server = fetch_one(handler)
    assert outcome.reason == reason, outcome.detail
    assert fetched is None
    assert server.counts["/page"] == 1


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, page()),
        ({"Content-Type": "application/octet-stream"}, page()),
        ({"Content-Type": "html"}, b"\n <!-- c --><p>words"),
        ({"Content-Type": "application/xhtml+xml; charset=utf-8"}, b"<?xml version='1.0'?>" + page()),
        ({"Content-Type": "TEXT/HTML;charset=x"}, b"words without any tag"),
        ({}, b"\xff\xfe" + page().decode().encode("utf-16-le")),
    ],
)
def test_pages_are_known_by_header_or_content(headers: dict[str, str], body: bytes) -> None:
    outcome, fetched, _ = fetch_one(answers(200, headers, body))
    assert outcome.reason == FetchReason.OK, outcome.detail
    assert fetched is not None and fetched.body == body


def test_a_body_shorter_than_its_length_is_truncated() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.answer(200, {"Content-Type": "text/html"}, page(), length=len(page()) + 50)
        exchange.close()

    assert fetch_one(handle)[0].reason == FetchReason.TRUNCATED


def test_a_chunked_body_without_its_last_chunk_is_truncated() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.answer(
            200, {"Content-Type": "text/html", "Transfer-Encoding": "chunked"}, b"5\r\n<html\r\n", length=-1
        )
        exchange.close()

    assert fetch_one(handle)[0].reason == FetchReason.TRUNCATED


def test_a_bomb_is_stopped_early() -> None:
    body = gzip.compress(b"<html>" + b"\x20" * (64 * MEGABYTE))
    outcome, _, _ = fetch_one(html(body, Content_Encoding="gzip"), limits={"max_page_bytes": MEGABYTE})
    assert outcome.reason == FetchReason.TOO_LARGE
    assert outcome.status == 200


@pytest.mark.parametrize("declares_length", [True, False])
def test_a_huge_body_is_too_large(declares_length: bool) -> None:
    async def handle(exchange: Exchange) -> None:
        length = 1 << 40 if declares_length else -1
        await exchange.answer(200, {"Content-Type": "text/html"}, b"<html>", length=length)
        while not declares_length:
            await exchange.raw(b"x" * 65_536)

    outcome, _, _ = fetch_one(handle, limits={"max_body_bytes": MEGABYTE})
    assert outcome.reason == FetchReason.TOO_LARGE


def test_large_pages_come_whole() -> None:
    body = page() + b"x" * (3 * MEGABYTE)
    outcome, fetched, _ = fetch_one(html(body))
    assert outcome.reason == FetchReason.OK
    assert fetched is not None and fetched.body == body


def test_a_dripping_server_cannot_stretch_the_deadline() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.answer(200, {"Content-Type": "text/html"}, b"<html>", length=100_000)
        while True:
            await exchange.raw(b"x")
            await asyncio.sleep(0.05)

    started = time.monotonic()
    outcome, _, server = fetch_one(handle, limits={"page_seconds": 0.5})
    assert outcome.reason == FetchReason.TIMEOUT
    assert time.monotonic() - started < 2
    assert server.counts["/page"] == 1, "a page that used up its time is not tried again"


def test_silence_is_a_timeout_and_tried_again() -> None:
    async def handle(exchange: Exchange) -> None:
        if exchange.number == 1:
            await asyncio.sleep(30)
        await exchange.answer(200, {"Content-Type": "text/html"}, page())

    outcome, _, server = fetch_one(handle, limits={"silence_seconds": 0.2})
    assert outcome.reason == FetchReason.OK
    assert outcome.num_requests == server.counts["/page"] == 2


def test_a_reset_is_tried_again_but_not_for_ever() -> None:
    async def handle(exchange: Exchange) -> None:
        exchange.reset()

    outcome, _, server = fetch_one(handle, limits={"retries": 1}, respect_robots=False)
    assert outcome.reason == FetchReason.CONNECTION_RESET
    assert outcome.num_requests == server.counts["/page"] == 2


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_after_the_time_it_names(status: int) -> None:
    async def handle(exchange: Exchange) -> None:
        if exchange.number == 1:
            await exchange.answer(status, {"Retry-After": "1"})
        else:
            await exchange.answer(200, {"Content-Type": "text/html"}, page())

    outcome, _, server = fetch_one(handle)
    assert outcome.reason == FetchReason.OK
    first, second = server.times("/page")
    assert second - first >= 1.0


def test_a_very_long_retry_after_is_capped() -> None:
    started = time.monotonic()
    outcome, _, server = fetch_one(
        answers(429, {"Retry-After": "86400"}), limits={"max_retry_after_seconds": 0.2, "retries": 2}
    )
    assert (outcome.reason, outcome.status) == (FetchReason.HTTP_ERROR, 429)
    assert server.counts["/page"] == 3
    assert 0.4 <= time.monotonic() - started < 5


def test_other_server_errors_are_not_tried_again() -> None:
    outcome, _, server = fetch_one(answers(500))
    assert (outcome.reason, outcome.status, server.counts["/page"]) == (FetchReason.HTTP_ERROR, 500, 1)


def test_what_is_not_http_is_a_bad_response() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.raw(b"SSH-2.0-server\r\n\r\n\r\n")
        exchange.close()

    assert fetch_one(handle)[0].reason == FetchReason.BAD_RESPONSE


def test_a_huge_header_is_a_bad_response() -> None:
    handler = answers(200, {"Content-Type": "text/html", "X-Long": "y" * 70_000}, page())
    assert fetch_one(handler)[0].reason == FetchReason.BAD_RESPONSE


def test_redirects_are_followed_and_counted() -> None:
    with ScriptedServer({"/a": redirects("b", 301), "/b": redirects("/c?q=1#f", 307), "/c?q=1": html()}) as server:
        [(outcome, _)] = fetch_all(config_for(server), [server.url("/a")])
        assert outcome.reason == FetchReason.OK
        assert outcome.final_url == server.url("/c?q=1")
        assert outcome.num_requests == 3


def test_endless_redirects_end() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.answer(302, {"Location": exchange.path + "x"})

    with ScriptedServer({}, default=handle) as server:
        [(outcome, _)] = fetch_all(config_for(server, limits={"max_redirects": 4}), [server.url("/a")])
        assert outcome.reason == FetchReason.TOO_MANY_REDIRECTS
        assert server.pages_requested == 5


@pytest.mark.parametrize(
    "url",
    ["http://[Imgur](http://i.example/x)", "ftp://example.org/", "words", "", "http://", "http://u:p@example.org/",
     "http://example.org/a\x01b", "http://" + "a" * 9000],
)  # fmt: skip
def test_bad_urls_are_refused_without_a_request(url: str) -> None:
    [(outcome, _)] = fetch_all(FetchConfig(respect_robots=False, resources=FetchResources(**FAST)), [url])
    assert (outcome.reason, outcome.num_requests) == (FetchReason.BAD_URL, 0)


def test_connection_refused() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
    config = FetchConfig(allow_private_hosts=(host,), respect_robots=False, resources=FetchResources(**FAST))
    [(outcome, _)] = fetch_all(config, [f"http://{host}/"])
    assert (outcome.reason, outcome.num_requests) == (FetchReason.CONNECTION_REFUSED, 1)


def test_a_dead_host_is_given_up_for_the_same_reason() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
    resources = FetchResources(**FAST, max_host_failures=3)
    config = FetchConfig(allow_private_hosts=(host,), respect_robots=False, resources=resources)
    outcomes = [outcome for outcome, _ in fetch_all(config, [f"http://{host}/{n}" for n in range(6)])]
    assert {outcome.reason for outcome in outcomes} == {FetchReason.CONNECTION_REFUSED}
    assert [outcome.num_requests for outcome in outcomes] == [1, 1, 1, 0, 0, 0]


def test_an_unknown_host_is_a_dns_failure() -> None:
    def lookup(host: str, port: int) -> list[tuple[int, str]]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    [(outcome, _)] = fetch_all(FetchConfig(resources=FetchResources(**FAST)), ["http://nowhere.example/"], lookup)
    assert outcome.reason == FetchReason.DNS_FAILURE


def test_a_temporary_dns_failure_is_tried_again() -> None:
    calls: list[str] = []
    with ScriptedServer({"/page": html()}) as server:

        def lookup(host: str, port: int) -> list[tuple[int, str]]:
            calls.append(host)
            if len(calls) == 1:
                raise socket.gaierror(socket.EAI_AGAIN, "try again")
            return [(socket.AF_INET, "127.0.0.1")]

        name = f"town.example:{server.port}"
        config = FetchConfig(allow_private_hosts=(name,), respect_robots=False, resources=FetchResources(**FAST))
        [(outcome, _)] = fetch_all(config, [f"http://{name}/page"], lookup)
    assert outcome.reason == FetchReason.OK
    assert len(calls) == 2


def test_no_tls_at_a_port_is_a_tls_error() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n" * 20)
        writer.close()

    async def work() -> FetchOutcome:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        config = FetchConfig(allow_private_hosts=(host,), respect_robots=False, resources=FetchResources(**FAST))
        async with server, PageFetcher(config) as fetcher:
            return (await fetcher.fetch(f"https://{host}/"))[0]

    assert asyncio.run(work()).reason == FetchReason.TLS_ERROR


def test_a_proxy_gets_the_request() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.answer(200, {"Content-Type": "text/html"}, page(title=exchange.path))

    with ScriptedServer({}, default=handle) as server:
        resources = FetchResources(**FAST, proxy=f"http://{server.host}")
        config = FetchConfig(respect_robots=False, resources=resources)
        results = fetch_all(config, ["http://town.example/x", "http://192.168.0.1/x"])
    assert [outcome.reason for outcome, _ in results] == [FetchReason.OK, FetchReason.PRIVATE_HOST]
    assert results[0][1] is not None and b"http://town.example/x" in results[0][1].body


def test_a_stale_connection_costs_no_attempt() -> None:
    """A connection that served a page before is closed when it is used again: the request goes out again at once."""

    async def reset_reused(exchange: Exchange) -> None:
        if exchange.number == 1:
            exchange.reset()
        else:
            await exchange.answer(200, {"Content-Type": "text/html"}, page())

    with ScriptedServer({"/a": html(), "/b": reset_reused}) as server:
        results = fetch_all(config_for(server, limits={"retries": 0}), [server.url("/a"), server.url("/b")])
        assert [outcome.reason for outcome, _ in results] == [FetchReason.OK, FetchReason.OK]
        assert server.counts["/b"] == 2
