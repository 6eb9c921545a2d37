"""One spelling for each page: the form in which URLs are compared. What is kept and fetched is the original.

RFC 3986 section 6.2 (syntax-based and scheme-based normalisation), the WHATWG URL standard for what browsers take
(numbers as hosts, backslashes, percent signs in hosts), UTS 46 without transitional processing for host names.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import idna

DEFAULT_PORTS = {"http": "80", "https": "443"}
MAX_HOST_CHARACTERS = 253
MAX_PORT = 65_535
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
HEAD = re.compile(r"(https?)://([^/?#\\]*)", re.IGNORECASE)
_LABELS = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})?")
_UNSAFE = re.compile('[^!-~]|["<>\\\\^`{|}]')
_SAFE = re.compile(r"[!#$&-;=?-\[\]_a-z~]*")
UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class Authority(NamedTuple):
    """What stands between `//` and the path."""

    has_credentials: bool
    host: str
    """As written; an IPv6 address in brackets."""
    port: str
    """Digits without leading zeros, or empty."""


def split_authority(text: str) -> Authority:
    """User information, host and port. Raises ValueError for a port that is none."""
    user, at, place = text.rpartition("@")
    del user
    if place.startswith("["):
        host, bracket, port = place.partition("]")
        host += bracket
        if port and not port.startswith(":"):
            raise ValueError("text after an IPv6 address")
        port = port[1:]
    else:
        host, _, port = place.partition(":")
    if port:
        if not (port.isascii() and port.isdigit()) or int(port) > MAX_PORT:
            raise ValueError("no port number")
        port = str(int(port))
    return Authority(bool(at), host, port)


def canonical_host(host: str) -> str:
    """Lower-case ASCII name without root dot, dotted IPv4 or bracketed IPv6 address. Raises ValueError.

    Numbers are read as the C library reads them (decimal, octal, hexadecimal, short), so that 2130706433 is 127.0.0.1.
    """
    if host.startswith("["):
        return f"[{ipaddress.IPv6Address(host[1:-1]).compressed}]" if host.endswith("]") else _no_host()
    if "%" in host:
        host = re.sub("(?:%[0-9A-Fa-f]{2})+", lambda match: bytes.fromhex(match[0].replace("%", "")).decode(), host)
    host = host.lower() if host.isascii() else _to_ascii(host)
    host = host.removesuffix(".")
    if len(host) > MAX_HOST_CHARACTERS or not _LABELS.fullmatch(host):
        _no_host()
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        try:
            return socket.inet_ntoa(socket.inet_aton(host))
        except OSError:
            raise ValueError("a number that is no address") from None
    if "xn--" in host:
        for label in host.split("."):
            if label.startswith("xn--"):
                decoded = label[4:].encode().decode("punycode")
                if decoded.isascii() or CONTROLS.search(decoded):
                    _no_host()
    return host


def _no_host() -> str:
    raise ValueError("no host name")


def _to_ascii(host: str) -> str:
    """A name with letters beyond ASCII as browsers send it. Labels that IDNA 2008 refuses (emoji) are encoded as is."""
    labels = idna.uts46_remap(host, std3_rules=False, transitional=False).split(".")
    return ".".join(_label_to_ascii(label) for label in labels)


def _label_to_ascii(label: str) -> str:
    if label.isascii():
        return label
    try:
        return idna.alabel(label).decode()
    except idna.IDNAError:
        return "xn--" + label.encode("punycode").decode()


@dataclass(frozen=True)
class CanonicalRules:
    """What more than the standards' equivalences counts as one page."""

    ignore_scheme: bool = False
    """http and https."""
    ignore_www: bool = False
    """A host with and without www in front."""
    ignore_trailing_slash: bool = False
    """A path with and without a slash at its end."""
    is_tracking: Callable[[str], bool] | None = None
    """Says of a `name=value` that it does not decide which page is shown."""


STRICT = CanonicalRules()


def canonical_head(scheme: str, host: str, port: str, rules: CanonicalRules) -> str:
    """Scheme, host and port; `scheme` in lower case, `host` and `port` in canonical form."""
    if port == DEFAULT_PORTS[scheme]:
        port = ""
    if rules.ignore_www:
        while host.startswith("www.") and "." in host[4:]:
            host = host[4:]
    if rules.ignore_scheme:
        scheme = "http"
        if port == DEFAULT_PORTS[scheme]:
            port = ""
    return f"{scheme}://{host}:{port}" if port else f"{scheme}://{host}"


def canonical_rest(rest: str, rules: CanonicalRules) -> str:
    """Path and query; the fragment names no other page. The path is `/` when empty, unless slashes are ignored."""
    path, mark, query = rest.partition("#")[0].partition("?")
    path = _without_dots(_escaped(path.replace("\\", "/")))
    if rules.ignore_trailing_slash:
        path = path.rstrip("/")
    if not mark:
        return path
    parameters = [_escaped(item) for item in query.split("&") if item]
    if rules.is_tracking is not None:
        parameters = [item for item in parameters if not rules.is_tracking(item)]
    return f"{path}?{'&'.join(parameters)}" if parameters else path


def _escaped(text: str) -> str:
    """Percent escapes in one spelling: none where none is needed, upper-case digits, a lone `%` as `%25`."""
    if _SAFE.fullmatch(text):  # the usual case, and ten times as fast as finding nothing to escape
        return text
    if "%" in text:
        text = _ESCAPE.sub(_escape_again, text)
    return _UNSAFE.sub(_escape, text)


def _escape_again(match: re.Match[str]) -> str:
    digits = match.group(1)
    if digits is None:
        return "%25"
    character = chr(int(digits, 16))
    return character if character in UNRESERVED else f"%{digits.upper()}"


def _escape(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match.group().encode("utf-8", "surrogateescape"))


def _without_dots(path: str) -> str:
    """RFC 3986 section 5.2.4, for an absolute path."""
    if "/." not in path:
        return path or "/"
    kept: list[str] = []
    segments = path.split("/")[1:]
    for index, segment in enumerate(segments):
        if segment in (".", ".."):
            if segment == ".." and kept:
                kept.pop()
            if index == len(segments) - 1:
                kept.append("")
        else:
            kept.append(segment)
    return "/" + "/".join(kept)


def canonical_url(url: str, rules: CanonicalRules = STRICT) -> str:
    """The spelling in which `url` is compared; it is its own canonical form. Raises ValueError for no http(s) URL.

    User information is left out. With the strict rules only spellings that every server must treat alike are joined.
    """
    url = url.strip()
    match = HEAD.match(url)
    if match is None or CONTROLS.search(url):
        raise ValueError("no http or https URL")
    authority = split_authority(match.group(2))
    head = canonical_head(match.group(1).lower(), canonical_host(authority.host), authority.port, rules)
    return head + canonical_rest(url[match.end() :], rules)
