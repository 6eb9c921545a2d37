"""Tokens to text, piece by piece: no half character is ever shown, and nothing after a stop string.

A byte-level token is a piece of UTF-8, not of text: an emoji spans two or three tokens. Bytes are held back until
the character is whole; only what is still broken at the very end becomes U+FFFD.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class StreamDecoder:
    """Text of a growing token sequence. `push` returns what is certain, `finish` the rest."""

    def __init__(self, token_bytes: Sequence[bytes], stop: Sequence[str] = ()) -> None:
        """`token_bytes[id]` are the bytes a token stands for (empty for a marker that is no text)."""
        self._token_bytes = token_bytes
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped = False
        """A stop string was reached; what comes after it is not text."""

    def push(self, token: int) -> str:
        """The text that this token makes certain; often empty. Raises ValueError for an id without a meaning."""
        if not 0 <= token < len(self._token_bytes):
            raise ValueError(f"token {token} is outside the vocabulary of {len(self._token_bytes)}")
        return self._advance(self._decoder.decode(self._token_bytes[token]), final=False)

    def finish(self) -> str:
        """The text still held back. The decoder is spent afterwards."""
        return self._advance(self._decoder.decode(b"", final=True), final=True)

    def _advance(self, piece: str, *, final: bool) -> str:
        if self.stopped:
            return ""
        text = self._held + piece
        if (end := first_stop(text, self._stop)) is not None:
            self.stopped, self._held = True, ""
            return text[:end]
        kept = 0 if final else possible_stop(text, self._stop)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]


def first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the text must be cut: the start of the stop string that is completed first (the longest, if several are).

    Counting by the end makes the answer the same however the text was cut into pieces.
    """
    found = [(start + len(word), start) for word in stop if (start := text.find(word)) >= 0]
    return min(found)[1] if found else None


def possible_stop(text: str, stop: Sequence[str]) -> int:
    """Characters at the end of `text` that may be the beginning of a stop string."""
    longest = min(len(text), max((len(word) - 1 for word in stop), default=0))
    for length in range(longest, 0, -1):
        if any(word.startswith(text[-length:]) for word in stop):
            return length
    return 0
