"""The language of a text, decided the same way in every process, order and run.

One function a detector: text to language code and how sure it is (0 to 1); ("", 0.0) for text without a feature,
such as digits alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tasks.errors import UserError, nearest

if TYPE_CHECKING:
    from tasks.clean.language_profiles import ProfileDetector

SAMPLED_CHARACTERS = 1000
NUM_SAMPLES = 10
Detector = Callable[[str], tuple[str, float]]


def sample_of(text: str) -> str:
    """At most about SAMPLED_CHARACTERS characters, taken evenly: a long preface does not decide alone."""
    if len(text) <= SAMPLED_CHARACTERS:
        return text
    length = SAMPLED_CHARACTERS // NUM_SAMPLES
    step = (len(text) - length) / (NUM_SAMPLES - 1)
    return "\n".join(text[int(index * step) : int(index * step) + length] for index in range(NUM_SAMPLES))


@cache
def _profiles() -> ProfileDetector:
    # Imported here: the package costs a third of a second and 90 MB, and not every run asks for it.
    from tasks.clean.language_profiles import ProfileDetector, sorted_factory

    return ProfileDetector(sorted_factory())


def detect_with_langdetect(text: str) -> tuple[str, float]:
    """langdetect's n-gram profiles of 55 languages, over a sample of the whole text."""
    return _profiles().detect(sample_of(text))


def detect_with_pycld2(text: str) -> tuple[str, float]:
    """Compact Language Detector 2 over the whole text; its share of the text is the probability."""
    pycld2: Any = import_module("pycld2")

    # It refuses control characters and half surrogate pairs; repaired text has neither.
    plain = "".join(char if char.isprintable() else " " for char in text)
    try:
        reliable, _, details = pycld2.detect(plain.encode("utf-8", "replace"), isPlainText=True)
    except pycld2.error:
        return "", 0.0
    _, code, percent, _ = details[0]
    return ("", 0.0) if code == "un" or not reliable else (str(code).lower(), float(percent) / 100)


DETECTORS: dict[str, Detector] = {"langdetect": detect_with_langdetect, "pycld2": detect_with_pycld2}


def detect_language(text: str, detector: str = "langdetect") -> tuple[str, float]:
    """Language code and probability by the named detector. Raises UserError for an unknown name."""
    if detector not in DETECTORS:
        raise UserError("language_detector", detector, "there is no such detector", nearest(detector, DETECTORS))
    return DETECTORS[detector](text)
