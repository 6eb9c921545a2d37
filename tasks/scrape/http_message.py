"""What an HTTP answer is made of, and the exceptions of a broken one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class BadResponseError(Exception):
    """The answer is not HTTP, or not within its limits."""


class TruncatedBodyError(Exception):
    """The connection ended before the body did."""


class ServerClosedError(ConnectionError):
    """The connection ended before the answer began."""


class SilenceError(TimeoutError):
    """The server sent nothing for too long."""


class DeadlineError(TimeoutError):
    """The time of the page is used up."""


class Headers:
    """Header fields as received, found by name without regard to case."""

    __slots__ = ("_by_name", "raw")

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        """`raw` are names and values in the order in which they came."""
        self.raw = raw
        self._by_name: dict[bytes, list[bytes]] | None = None

    def all(self, name: str) -> list[str]:
        """All values of a field; bytes that are no UTF-8 become half surrogates."""
        if self._by_name is None:
            self._by_name = {}
            for field, value in self.raw:
                self._by_name.setdefault(field.lower(), []).append(value)
        values = self._by_name.get(name.lower().encode("latin-1"), ())
        return [value.decode("utf-8", "surrogateescape") for value in values]

    def get(self, name: str, default: str = "") -> str:
        """The first value of a field."""
        values = self.all(name)
        return values[0] if values else default


@dataclass(slots=True)
class ResponseHead:
    """Status line and header fields of an answer."""

    status: int
    status_text: str
    headers: Headers
    content_length: int | None = None
    """Bytes of the body as announced; None when nothing was said, or the body comes in chunks."""
