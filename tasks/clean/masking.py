"""E-mail addresses, IP addresses and telephone numbers replaced by a mark, and counted. Idempotent."""

from __future__ import annotations

import ipaddress
import re
from typing import Literal, get_args

MaskedKind = Literal["email", "ip", "phone"]
MASKED_KINDS: tuple[str, ...] = get_args(MaskedKind)
MARKS = {"email": "<EMAIL>", "ip": "<IP>", "phone": "<PHONE>"}
LEAST_PHONE_DIGITS, MOST_PHONE_DIGITS = 8, 15  # E.164 allows 15; shorter groups of digits are dates, prices, scores

# The usual subset of RFC 5321: no quoted local parts, no address literals.
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+'-]{1,64}+@(?:[A-Za-z0-9][A-Za-z0-9-]{0,62}+\.)+[A-Za-z]{2,24}+(?![\w@-])")
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])")
# International (+49 30 901820), North American (212-555-0123, (212) 555-0123), or with a leading zero (030 / 901820).
_PHONE = re.compile(
    r"(?<![\w.+])(?:\+\d{1,3}(?:[ .\-/]?\(?\d{1,5}\)?){2,6}"
    r"|(?:1[ .-])?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}"
    r"|0\d{1,5}[ ]?[/-][ ]?\d{3,}(?:[ -]\d{2,}){0,3})(?![\w]|[.,]\d)"
)


def _is_public(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_global
    except ValueError:
        return False


def mask(text: str, kinds: tuple[str, ...]) -> tuple[str, dict[str, int]]:
    """The text with the kinds replaced by their marks, and how many of each. Private and reserved IPs stay."""
    counts = dict.fromkeys(kinds, 0)

    def count(kind: str) -> str:
        counts[kind] += 1
        return MARKS[kind]

    if "email" in kinds and "@" in text:
        text = _EMAIL.sub(lambda _: count("email"), text)
    if "ip" in kinds:
        for pattern, sign in ((_IPV4, "."), (_IPV6, ":")):
            if sign in text:
                text = pattern.sub(lambda found: count("ip") if _is_public(found[0]) else found[0], text)
    if "phone" in kinds:

        def phone(found: re.Match[str]) -> str:
            digits = sum(map(str.isdigit, found[0]))
            return count("phone") if LEAST_PHONE_DIGITS <= digits <= MOST_PHONE_DIGITS else found[0]

        text = _PHONE.sub(phone, text)
    return text, {kind: number for kind, number in counts.items() if number}
