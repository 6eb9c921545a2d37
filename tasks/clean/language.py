"""The language of a text, decided the same way in every process, order and run."""

from __future__ import annotations

from functools import cache
from typing import Any

SAMPLED_CHARACTERS = 1500
NUM_SAMPLES = 10
SEED = 0


def sample_of(text: str) -> str:
    """At most about SAMPLED_CHARACTERS characters, taken evenly: a long preface does not decide alone."""
    if len(text) <= SAMPLED_CHARACTERS:
        return text
    length = SAMPLED_CHARACTERS // NUM_SAMPLES
    step = (len(text) - length) / (NUM_SAMPLES - 1)
    return "\n".join(text[int(index * step) : int(index * step) + length] for index in range(NUM_SAMPLES))


@cache
def _langdetect() -> Any:
    import langdetect
    from langdetect import detector_factory

    langdetect.DetectorFactory.seed = SEED
    detector_factory.init_factory()
    return langdetect, detector_factory


def detect_language(text: str) -> tuple[str, float]:
    """Language code and how sure it is (0 to 1); ("", 0.0) for text without a feature, such as digits alone.

    langdetect draws at random; it is seeded for every text anew, so that the answer depends on the text alone.
    """
    langdetect, factory = _langdetect()
    detector = factory._factory.create()
    detector.seed = SEED
    try:
        detector.append(sample_of(text))
        found = detector.get_probabilities()
    except langdetect.LangDetectException:
        return "", 0.0
    return (str(found[0].lang), float(found[0].prob)) if found else ("", 0.0)
