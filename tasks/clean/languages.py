"""Names of languages: what the detectors know, and how their codes compare."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

# The 55 profiles that langdetect 1.0.9 carries; a test compares them with the installed package.
_CODES = """
    af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr ne nl no pa pl pt ro
    ru sk sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw
"""
LANGDETECT_CODES = tuple(_CODES.split())
# Withdrawn and doubled codes of ISO 639-1, and the one they stand for here.
_ALIASES = {"iw": "he", "in": "id", "ji": "yi", "jw": "jv", "nb": "no", "mo": "ro", "fil": "tl"}


def base_code(code: str) -> str:
    """The language of a code, without script or region: "zh-tw" and "zh-Hant" are "zh", "iw" is "he"."""
    base = code.lower().partition("-")[0]
    return _ALIASES.get(base, base)


def is_wanted(language: str, wanted: tuple[str, ...]) -> bool:
    """Whether a found language is among the wanted codes; a code without a region wants all regions."""
    found = language.lower()
    return any(found == code.lower() or ("-" not in code and base_code(found) == base_code(code)) for code in wanted)


@cache
def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not imported."""
    return find_spec(package) is not None
