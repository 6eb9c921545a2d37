"""The guard that keeps the fetcher off private addresses: it looks at the address that is connected to.

A name is looked up once, its addresses are judged, and the connection goes to a judged address: a name that
changes its address in between (DNS rebinding) gains nothing. Addresses written as numbers in a URL are judged
in every notation the socket library takes (decimal, octal, hexadecimal, short).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from aiohttp.abc import AbstractResolver, ResolveResult

LOOKUP_THREADS = 32
LOOKUP_CACHE_SECONDS = 300.0
MAX_REMEMBERED_HOSTS = 10_000

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# IANA's special-purpose address registries, multicast and reserved ranges. Written out, because `is_private` and
# `is_global` of the standard library differ between Python versions and call 224.0.0.0/4 global.
SPECIAL_NETWORKS_4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
GLOBAL_UNICAST_6 = ipaddress.IPv6Network("2000::/3")
SPECIAL_NETWORKS_6 = tuple(
    ipaddress.IPv6Network(text)
    for text in ("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20", "5f00::/16")
)
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")


class PrivateAddressError(OSError):
    """The host has no address that may be connected to."""


def literal_address(host: str) -> IPAddress | None:
    """The address that a URL's host spells in digits, in any notation; None for a name."""
    text = host.strip("[]").split("%", 1)[0].rstrip(".")
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        pass
    if not text or text[0] not in "0123456789":
        return None
    try:
        # inet_aton takes 2130706433, 0177.1, 0x7f.1 as the C library does, but also text after a space
        return ipaddress.IPv4Address(socket.inet_aton(text)) if " " not in text else None
    except (OSError, UnicodeError):
        return None


def is_public(address: IPAddress) -> bool:
    """True when the address is one of the public internet, looking through IPv4 inside IPv6 (mapped, NAT64, 6to4)."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in SPECIAL_NETWORKS_4)
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    if address in NAT64:
        return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if address in SIX_TO_FOUR:
        return is_public(ipaddress.IPv4Address((int(address) >> 80) & 0xFFFFFFFF))
    return address in GLOBAL_UNICAST_6 and not any(address in network for network in SPECIAL_NETWORKS_6)


Lookup = Callable[[str, int], list[tuple[int, str]]]
"""`lookup(host, port)` returns (address family, address) pairs or raises OSError. It may block."""


def system_lookup(host: str, port: int) -> list[tuple[int, str]]:
    """The addresses the operating system knows for a host name."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(int(family), str(address[0])) for family, _, _, _, address in found]


class AddressGuard(AbstractResolver):
    """Resolver and judge in one: aiohttp gets addresses from here only, and only such as may be connected to.

    What a name led to is remembered for LOOKUP_CACHE_SECONDS, and several that ask at once share one lookup.
    """

    def __init__(self, allowed: Iterable[str] = (), lookup: Lookup = system_lookup, max_seconds: float = 10.0) -> None:
        """`allowed` are "host" or "host:port" that may have private addresses; a lookup may take `max_seconds`."""
        self._allowed = {item.lower() for item in allowed}
        self._lookup = lookup
        self._max_seconds = max_seconds
        self._refused: dict[tuple[str, int], bool] = {}
        self._admitted: set[tuple[str, int]] = set()
        self._known: OrderedDict[tuple[str, int], tuple[float, list[tuple[int, str]]]] = OrderedDict()
        self._asking: dict[tuple[str, int], asyncio.Future[list[tuple[int, str]]]] = {}
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="url2lm-dns")

    def is_allowed(self, host: str, port: int) -> bool:
        """True when the user let this host in by name."""
        name = host.lower().rstrip(".")
        if ":" in name and not name.startswith("["):
            name = f"[{name}]"
        return name in self._allowed or f"{name}:{port}" in self._allowed

    def refuses(self, host: str, port: int) -> bool:
        """True when the URL itself already names a private place: a private address in digits, or localhost."""
        known = self._refused.get((host, port))
        if known is None:
            if len(self._refused) >= MAX_REMEMBERED_HOSTS:
                self._refused.clear()
            known = self._refused[host, port] = self._judge(host, port)
        return known

    def _judge(self, host: str, port: int) -> bool:
        if self.is_allowed(host, port):
            return False
        name = host.lower().rstrip(".")
        if name == "localhost" or name.endswith(".localhost"):  # RFC 6761, section 6.3
            return True
        address = literal_address(host)
        return address is not None and not is_public(address)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """What `addresses` finds, in aiohttp's form; raises what it raises."""
        results: list[ResolveResult] = []
        for found_family, text in await self.addresses(host, port):
            if family not in (socket.AF_UNSPEC, found_family):
                continue
            entry: ResolveResult = {
                "hostname": host,
                "host": text,
                "port": port,
                "family": socket.AddressFamily(found_family),
                "proto": socket.IPPROTO_TCP,
                "flags": socket.AI_NUMERICHOST,
            }
            results.append(entry)
        return results

    async def addresses(self, host: str, port: int) -> list[tuple[int, str]]:
        """(family, address) pairs of `host`, private ones left out.

        Raises PrivateAddressError when none is left, TimeoutError when the answer takes too long, and the gaierror
        of the lookup.
        """
        loop = asyncio.get_running_loop()
        key = (host, port)
        known = self._known.get(key)
        if known is not None and known[0] > loop.time():
            self._known.move_to_end(key)
            return known[1]
        if (asking := self._asking.get(key)) is None:
            asking = self._asking[key] = loop.run_in_executor(self._threads, self._lookup, host, port)
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        async with asyncio.timeout(self._max_seconds):
            # the page that asks first may be cancelled; the others still wait for the answer
            found = await asyncio.shield(asking)
        results = [(family, text) for family, text in found if self._may_connect(host, port, text)]
        if not results:
            if found:
                raise PrivateAddressError(f"{host} has only private addresses")
            raise socket.gaierror(socket.EAI_NONAME, f"{host} has no address")
        self._known[key] = (loop.time() + LOOKUP_CACHE_SECONDS, results)
        while len(self._known) > MAX_REMEMBERED_HOSTS:
            self._known.popitem(last=False)
        return results

    def _may_connect(self, host: str, port: int, text: str) -> bool:
        if self.is_allowed(host, port):
            self._admitted.add((text, port))
            return True
        return is_public(ipaddress.ip_address(text.split("%", 1)[0]))

    def open_socket(
        self, address_info: tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[object, ...]]
    ) -> socket.socket:
        """The last look, at the address itself, just before the connection. Raises PrivateAddressError."""
        family, kind, protocol, _, target = address_info
        host, port = str(target[0]), int(str(target[1]))
        address = literal_address(host)
        known = (host, port) in self._admitted or self.is_allowed(host, port)
        if not known and (address is None or not is_public(address)):
            raise PrivateAddressError(f"{host} is a private address")
        opened = socket.socket(family, kind, protocol)
        opened.setblocking(False)
        return opened

    async def close(self) -> None:
        """Let the lookup threads go; one that still waits for an answer ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)
