"""The one place where exceptions of the HTTP client become reasons."""

from __future__ import annotations

import errno
import socket
import ssl

import aiohttp

from tasks.errors import TransientError
from tasks.scrape.address_guard import PrivateAddressError
from tasks.scrape.fetch_outcome import FetchFailure, FetchReason

RESET_ERRORS = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)
HTTP_ERRORS = (aiohttp.ClientError, OSError, ValueError)
"""What a request may raise: time-outs are OSErrors, a host that cannot be encoded is a ValueError."""


def explain(error: Exception) -> FetchFailure:
    """The failure that stands for an exception of HTTP_ERRORS. Raises TransientError when this machine is out of
    file descriptors: that says nothing about any page."""
    text = f"{type(error).__name__}: {error}"
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    number = inner.errno if isinstance(inner, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE):
        raise TransientError(
            "no file descriptors are left for connections; lower fetch.resources.max_requests or raise `ulimit -n`"
        ) from error
    if isinstance(inner, PrivateAddressError):
        return FetchFailure(FetchReason.PRIVATE_HOST, text)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        may_heal = number == socket.EAI_AGAIN
        return FetchFailure(FetchReason.DNS_FAILURE, text, may_heal=may_heal, is_connection=True)
    if isinstance(error, aiohttp.ClientSSLError) or isinstance(inner, (ssl.SSLError, ssl.CertificateError)):
        return FetchFailure(FetchReason.TLS_ERROR, text)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return FetchFailure(FetchReason.TIMEOUT, text, may_heal=True, is_connection=True)
    if isinstance(error, TimeoutError):
        return FetchFailure(FetchReason.TIMEOUT, text, may_heal=True)
    if isinstance(error, aiohttp.ClientPayloadError):
        return FetchFailure(FetchReason.TRUNCATED, text)
    if isinstance(error, aiohttp.ServerDisconnectedError) or number in RESET_ERRORS:
        return FetchFailure(FetchReason.CONNECTION_RESET, text, may_heal=True)
    if number == errno.ECONNREFUSED:
        return FetchFailure(FetchReason.CONNECTION_REFUSED, text, is_connection=True)
    if number == errno.ETIMEDOUT:
        return FetchFailure(FetchReason.TIMEOUT, text, may_heal=True, is_connection=True)
    if isinstance(error, aiohttp.ClientResponseError):
        return FetchFailure(FetchReason.BAD_RESPONSE, text)
    if isinstance(error, ValueError):  # the client refuses the URL (an empty host label, an unencodable name)
        return FetchFailure(FetchReason.BAD_URL, text)
    return FetchFailure(FetchReason.CONNECTION_FAILED, text, is_connection=True)
