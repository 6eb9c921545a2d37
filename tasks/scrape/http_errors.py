"""The one place where exceptions of the HTTP client become reasons."""

from __future__ import annotations

import errno
import socket
import ssl

from tasks.errors import TransientError
from tasks.scrape.address_guard import PrivateAddressError
from tasks.scrape.fetch_outcome import FetchFailure, FetchReason
from tasks.scrape.http_dial import ConnectTimeoutError
from tasks.scrape.http_message import BadResponseError, DeadlineError, TruncatedBodyError

RESET_ERRORS = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)
HTTP_ERRORS = (OSError, ValueError, BadResponseError, TruncatedBodyError)
"""What a request may raise: time-outs, TLS and lookups are OSErrors, a host that cannot be encoded is a ValueError."""


def explain(error: Exception) -> FetchFailure:
    """The failure that stands for an exception of HTTP_ERRORS. Raises TransientError when this machine is out of file
    descriptors: that says nothing about any page."""
    text = f"{type(error).__name__}: {error}"
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE):
        raise TransientError(
            "no file descriptors are left for connections; lower fetch.resources.max_requests or raise `ulimit -n`"
        ) from error
    if isinstance(error, PrivateAddressError):
        return FetchFailure(FetchReason.PRIVATE_HOST, text)
    if isinstance(error, socket.gaierror):
        may_heal = number == socket.EAI_AGAIN
        return FetchFailure(FetchReason.DNS_FAILURE, text, may_heal=may_heal, is_connection=True)
    if isinstance(error, ssl.SSLError):  # certificates are among them
        return FetchFailure(FetchReason.TLS_ERROR, text)
    if isinstance(error, DeadlineError):
        return FetchFailure(FetchReason.TIMEOUT, str(error))
    if isinstance(error, ConnectTimeoutError) or number == errno.ETIMEDOUT:
        return FetchFailure(FetchReason.TIMEOUT, text, may_heal=True, is_connection=True)
    if isinstance(error, TimeoutError):
        return FetchFailure(FetchReason.TIMEOUT, text, may_heal=True)
    if isinstance(error, TruncatedBodyError):
        return FetchFailure(FetchReason.TRUNCATED, text)
    if number == errno.ECONNREFUSED:
        return FetchFailure(FetchReason.CONNECTION_REFUSED, text, is_connection=True)
    if isinstance(error, ConnectionError) or number in RESET_ERRORS:
        return FetchFailure(FetchReason.CONNECTION_RESET, text, may_heal=True)
    if isinstance(error, BadResponseError):
        return FetchFailure(FetchReason.BAD_RESPONSE, text)
    if isinstance(error, ValueError):
        return FetchFailure(FetchReason.BAD_URL, text)
    return FetchFailure(FetchReason.CONNECTION_FAILED, text, is_connection=True)
