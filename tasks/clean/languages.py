"""Names of languages: what the detectors know, and how their codes compare."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

# The 55 profiles that langdetect 1.0.9 carries; a test compares them with the installed package.
_LANGDETECT = """
    af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr ne nl no pa pl pt ro
    ru sk sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw
"""
# What pycld2 0.42 detects, without scripts and jokes (Gothic, Klingon, pig Latin); compared with the package as well.
_PYCLD2 = """
    aa ab af ak am ar as ay az ba be bg bh bi bn bo br bs ca ceb chr co crs cs cy da de dv dz el en eo es et eu fa fi
    fj fo fr fy ga gd gl gn gu gv ha haw he hi hmn hr ht hu hy ia id ie ig ik is it iu ja jv ka kha kk kl km kn ko ks
    ku ky la lb lg lif ln lo lt lv mfe mg mi mk ml mn mr ms mt my na ne nl nn no nr nso ny oc om or pa pl ps pt qu rm
    rn ro ru rw sa sco sd sg si sk sl sm sn so sq sr ss st su sv sw syr ta te tg th ti tk tl tn to tr ts tt ug uk ur
    uz ve vi vo war wo xh yi yo za zh-cn zh-tw zu
"""
LANGDETECT_CODES = tuple(_LANGDETECT.split())
PYCLD2_CODES = tuple(_PYCLD2.split())
DETECTOR_CODES = {"langdetect": LANGDETECT_CODES, "pycld2": PYCLD2_CODES}
# Withdrawn and doubled codes of ISO 639-1, and the one they stand for here.
_ALIASES = {"iw": "he", "in": "id", "ji": "yi", "jw": "jv", "nb": "no", "mo": "ro", "fil": "tl"}
# The two ways to write Chinese have one name each, whoever found them: langdetect's.
_CHINESE = {
    "zh-hans": "zh-cn", "zh-sg": "zh-cn", "zh-hant": "zh-tw", "zh-hk": "zh-tw", "zh-mo": "zh-tw",
}  # fmt: skip


def base_code(code: str) -> str:
    """The language of a code, without script or region: "zh-tw" and "zh-Hant" are "zh", "iw" is "he"."""
    base = code.lower().partition("-")[0]
    return _ALIASES.get(base, base)


def canonical_code(code: str) -> str:
    """One spelling a language: lower case, current codes, "zh-cn" for zh-Hans and "zh-tw" for zh-Hant."""
    lower = code.lower()
    return _CHINESE.get(lower) or _ALIASES.get(lower, lower)


def is_wanted(language: str, wanted: tuple[str, ...]) -> bool:
    """Whether a found language is among the wanted codes; a code without a region wants all regions."""
    found = canonical_code(language)
    return any(
        found == canonical_code(code) or ("-" not in code and base_code(found) == base_code(code)) for code in wanted
    )


@cache
def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not imported."""
    return find_spec(package) is not None
