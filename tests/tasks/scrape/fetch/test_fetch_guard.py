"""Nothing private is connected to, however it is spelt and whenever it changes."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import ScriptedServer, html, redirects

from tasks.scrape.address_guard import AddressGuard, PrivateAddressError, is_public, literal_address
from tasks.scrape.fetch import PageFetcher
from tasks.scrape.fetch_config import FetchConfig, FetchResources
from tasks.scrape.fetch_outcome import FetchOutcome, FetchReason

PRIVATE = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.255",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.2.1",
    "192.168.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:10.0.0.1",
    "fc00::1",
    "fe80::1",
    "ff02::1",
    "2001:db8::1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("text", PRIVATE)
def test_special_addresses_are_not_public(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_ordinary_addresses_are_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "host",
    ["2130706433", "0177.0.0.1", "0x7f.1", "127.1", "[::1]", "127.0.0.1.", "localhost", "LOCALHOST.", "a.localhost"],
)
def test_disguises_are_refused(host: str) -> None:
    assert AddressGuard().refuses(host, 80)


@pytest.mark.parametrize("host", ["192.168.0.1.example.com", "example.com", "1e100.net", "8.8.8.8"])
def test_names_and_public_addresses_pass(host: str) -> None:
    assert not AddressGuard().refuses(host, 80)


@given(st.integers(0, 2**32 - 1))
def test_every_spelling_of_an_address_is_that_address(number: int) -> None:
    address = ipaddress.IPv4Address(number)
    high, low = number >> 24, number & 0xFFFFFF
    for spelling in (str(number) if number else "0", hex(number), f"0{number:o}", f"{high}.{low}", str(address)):
        assert literal_address(spelling) == address, spelling


@given(st.integers(0, 2**32 - 1))
def test_what_is_public_is_public_to_the_standard_library(number: int) -> None:
    address = ipaddress.IPv4Address(number)
    if is_public(address):
        assert not (address.is_private or address.is_loopback or address.is_multicast or address.is_reserved)


def test_allowed_hosts_count_by_port() -> None:
    guard = AddressGuard(("127.0.0.1:8000", "intranet", "[::1]:9"))
    assert guard.is_allowed("127.0.0.1", 8000)
    assert not guard.is_allowed("127.0.0.1", 8001)
    assert guard.is_allowed("intranet", 1)
    assert guard.is_allowed("::1", 9)


def _fetch(server: ScriptedServer, url: str, answers: list[list[str]], allowed: tuple[str, ...] = ()) -> FetchOutcome:
    """Fetch with a name server of our own: each lookup takes the next answer, the last one stays."""
    left = list(answers)

    def lookup(host: str, port: int) -> list[tuple[int, str]]:
        now = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET6 if ":" in text else socket.AF_INET, text) for text in now]

    async def work() -> FetchOutcome:
        resources = FetchResources(delay_seconds=0, backoff_seconds=0)
        config = FetchConfig(allow_private_hosts=allowed, respect_robots=False, resources=resources)
        async with PageFetcher(config, lookup) as fetcher:
            return (await fetcher.fetch(url))[0]

    return asyncio.run(work())


def test_a_name_with_a_private_address_is_refused() -> None:
    with ScriptedServer({"/": html()}) as server:
        outcome = _fetch(server, f"http://rebound.example:{server.port}/", [["127.0.0.1"]])
        assert outcome.reason == FetchReason.PRIVATE_HOST
        assert not server.requests


def test_a_redirect_to_a_name_with_a_private_address_is_refused() -> None:
    with ScriptedServer({}) as server:
        server.routes["/"] = redirects(f"http://inner.example:{server.port}/secret")
        name = f"outer.example:{server.port}"
        outcome = _fetch(server, f"http://{name}/", [["127.0.0.1"]], (name,))
        assert outcome.reason == FetchReason.PRIVATE_HOST
        assert server.counts["/secret"] == 0


def test_a_name_may_not_borrow_an_allowed_address() -> None:
    with ScriptedServer({"/": html()}) as server:
        outcome = _fetch(server, f"http://rebound.example:{server.port}/", [["127.0.0.1"]], (server.host,))
        assert outcome.reason == FetchReason.PRIVATE_HOST
        assert not server.requests


def test_private_addresses_of_a_mixed_name_are_left_out() -> None:
    async def work() -> list[str]:
        guard = AddressGuard(lookup=lambda host, port: [(socket.AF_INET, "10.0.0.1"), (socket.AF_INET, "8.8.8.8")])
        try:
            return [address for _, address in await guard.addresses("mixed.example", 80)]
        finally:
            await guard.close()

    assert asyncio.run(work()) == ["8.8.8.8"]


def test_the_last_look_is_at_the_socket() -> None:
    with pytest.raises(PrivateAddressError, match="private"):
        AddressGuard().open_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80)))
    opened = AddressGuard().open_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("8.8.8.8", 80)))
    opened.close()


def test_a_name_is_looked_up_once_for_all_who_ask_and_for_a_while() -> None:
    calls: list[str] = []

    def lookup(host: str, port: int) -> list[tuple[int, str]]:
        calls.append(host)
        time.sleep(0.05)
        return [(socket.AF_INET, "8.8.8.8")]

    async def work() -> None:
        guard = AddressGuard(lookup=lookup)
        first = asyncio.create_task(guard.addresses("town.example", 80))
        others = [asyncio.create_task(guard.addresses("town.example", 80)) for _ in range(5)]
        await asyncio.sleep(0.01)
        first.cancel()
        assert await asyncio.gather(*others) == [[(socket.AF_INET, "8.8.8.8")]] * 5
        assert await guard.addresses("town.example", 80) == [(socket.AF_INET, "8.8.8.8")]
        await guard.close()

    asyncio.run(work())
    assert calls == ["town.example"]


def test_a_name_without_address_is_a_failed_lookup_and_not_remembered() -> None:
    answers: list[list[tuple[int, str]]] = [[], [(socket.AF_INET, "8.8.8.8")]]

    async def work() -> None:
        guard = AddressGuard(lookup=lambda host, port: answers.pop(0))
        with pytest.raises(socket.gaierror):
            await guard.addresses("town.example", 80)
        assert await guard.addresses("town.example", 80) == [(socket.AF_INET, "8.8.8.8")]
        await guard.close()

    asyncio.run(work())
