"""langdetect's answers, computed with numpy: same profiles, same n-grams, same draws, same stop rule.

langdetect (Nakatani Shuyo's library in Python) multiplies the probabilities of n-grams drawn at random until one
language is sure, seven times, and takes the mean. Its seed is fixed here, so the stream of random words is the same
for every text: it is made once, and a whole trial is a few array operations instead of a loop over 55 languages for
each draw. A test compares the answers with the package's own.
"""

from __future__ import annotations

import math
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from langdetect.detector import Detector
from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory
from langdetect.lang_detect_exception import LangDetectException
from langdetect.utils.ngram import NGram

SEED = 0
NUM_TRIALS = 7
# A trial looks for certainty after draw 1, 6, 11 ...; most trials end within the first few dozen.
STEP = 5
FIRST_DRAWS = (1 + 6 * STEP, 1 + 20 * STEP)
NUM_WORDS = 1 << 16
MOST_CACHED_WORDS = 200_000
_BLANKS = re.compile(" {2,}")
_LATIN = re.compile("[A-z]")
# The package means to leave out Latin Extended Additional, but compares a number with a name: all of it counts.
_NOT_LATIN = re.compile("[\u0300-\U0010ffff]")
Rows = npt.NDArray[np.int64]


class _Normal(dict[int, str]):
    """Character to what n-grams have in its place, as str.translate asks for it; filled as characters come."""

    def __missing__(self, code: int) -> str:
        self[code] = normal = str(NGram.normalize(chr(code)))
        return normal


@cache
def _random_words() -> npt.NDArray[np.uint32]:
    """The 32-bit words that the seeded generator gives, one after another: enough for seven trials to their limit."""
    generator = random.Random(SEED)
    return np.array([generator.getrandbits(32) for _ in range(NUM_WORDS)], np.uint32)


def _uniform(first: int, second: int) -> float:
    """What random() makes of two words (Matsumoto, genrand_res53)."""
    return ((first >> 5) * 67108864.0 + (second >> 6)) * (1.0 / 9007199254740992.0)


def sorted_factory() -> Any:
    """langdetect's factory with all its profiles, seeded.

    The package itself reads its folder in the order of the file system, on which sums and ties would depend.
    """
    profiles = sorted(path for path in Path(PROFILES_DIRECTORY).iterdir() if not path.name.startswith("."))
    factory = DetectorFactory()
    texts = [path.read_text(encoding="utf-8") for path in profiles]
    try:
        factory.load_json_profile(texts)
    except LangDetectException as error:
        cause = error.__context__
        if cause is not None and not isinstance(cause, Exception):
            raise cause from None  # the package takes Ctrl-C and the like for a fault of the profile
        raise
    factory.set_seed(SEED)
    return factory


class ProfileDetector:
    """Languages by the profiles of a langdetect factory."""

    def __init__(self, factory: Any) -> None:
        """The factory's table is taken over as one array [n-grams, languages]."""
        self.languages = [str(name) for name in factory.langlist]
        self._rows = {gram: row for row, gram in enumerate(factory.word_lang_prob_map)}
        self._table = np.array(list(factory.word_lang_prob_map.values()), np.float64)
        self._normal = _Normal()
        self._words: dict[tuple[str, bool], list[int]] = {}

    def probabilities(self, text: str) -> npt.NDArray[np.float64] | None:
        """Probability of each language, or None for a text without a feature."""
        grams = self.grams(text)
        if not grams:
            return None
        table, words = np.array(grams, np.int64), _random_words()
        shift = np.uint32(32 - len(grams).bit_length())
        place, second_deviate = 0, None
        mean = np.zeros(len(self.languages))
        for _ in range(NUM_TRIALS):
            # Normal deviates come in pairs: every other trial takes four words before its draws.
            if second_deviate is None:
                first, second, third, fourth = (int(word) for word in words[place : place + 4])
                angle = _uniform(first, second) * 2.0 * math.pi
                radius = math.sqrt(-2.0 * math.log(1.0 - _uniform(third, fourth)))
                deviate, second_deviate = math.cos(angle) * radius, math.sin(angle) * radius
                place += 4
            else:
                deviate, second_deviate = second_deviate, None
            weight = (Detector.ALPHA_DEFAULT + deviate * Detector.ALPHA_WIDTH) / Detector.BASE_FREQ
            probability, used = self._trial(table, words[place:], shift, weight)
            mean += probability / NUM_TRIALS
            place += used
        return mean

    def _trial(
        self, grams: Rows, words: npt.NDArray[np.uint32], shift: np.uint32, weight: float
    ) -> tuple[npt.NDArray[np.float64], int]:
        """Probabilities when one language is sure or the draws are at their limit, and the random words used."""
        most = Detector.ITERATION_LIMIT + 1
        for draws in (*FIRST_DRAWS, most):
            # A draw takes the upper bits of a word, and the next word while they are too large.
            values = (words[: 4 * draws] >> shift).astype(np.int64)
            accepted = np.flatnonzero(values < len(grams))[:draws]
            factors = self._table[grams[values[accepted]]] + weight
            if draws == FIRST_DRAWS[0]:
                # So few factors of about 10^-5 to 10^-1 stay within the range of a double when each is scaled.
                looks = np.multiply.accumulate(factors * Detector.BASE_FREQ, axis=0)[::STEP]
            else:
                looks = np.add.accumulate(np.log(factors), axis=0)[::STEP]
                looks = np.exp(looks - looks.max(axis=1, keepdims=True))
            looks /= looks.sum(axis=1, keepdims=True)
            sure = np.flatnonzero(looks.max(axis=1) > Detector.CONV_THRESHOLD)
            if len(sure):
                return looks[sure[0]], int(accepted[sure[0] * STEP]) + 1
        return looks[-1], int(accepted[(len(looks) - 1) * STEP]) + 1

    def grams(self, text: str) -> list[int]:
        """Rows of the text's known n-grams of one to three characters, in order."""
        if "http" in text:
            text = Detector.URL_RE.sub(" ", text)
        if "@" in text:
            text = Detector.MAIL_RE.sub(" ", text)
        if not text.isascii():
            text = _BLANKS.sub(" ", NGram.normalize_vi(text))
            if 2 * len(_LATIN.findall(text)) < len(_NOT_LATIN.findall(text)):
                text = _LATIN.sub("", text)
        pieces = text.translate(self._normal).split(" ")
        found: list[int] = []
        for word in pieces[:-1]:
            if word:
                found += self._words.get((word, True)) or self._grams_of(word, True)
        if pieces[-1]:
            found += self._grams_of(pieces[-1], False)
        return found

    def _grams_of(self, word: str, blank_follows: bool) -> list[int]:
        padded = f" {word} " if blank_follows else f" {word}"
        shouted = not word[1:].islower() and any(map(str.isupper, word[1:]))
        grams: list[str] = []
        for end in range(1, len(padded)):
            if shouted and padded[end].isupper() and padded[end - 1].isupper():
                continue
            grams += (padded[end], padded[end - 1 : end + 1], padded[end - 2 : end + 1] if end > 1 else "")
        # The blank alone is no n-gram; the empty one is in no profile.
        known = self._rows.get
        found = [row for gram in grams if gram != " " and (row := known(gram)) is not None]
        if blank_follows:
            if len(self._words) >= MOST_CACHED_WORDS:
                self._words.clear()
            self._words[word, True] = found
        return found

    def detect(self, text: str) -> tuple[str, float]:
        """The likeliest language and its probability; ("", 0.0) when there is none."""
        probabilities = self.probabilities(text)
        if probabilities is None:
            return "", 0.0
        best = int(np.argmax(probabilities))
        if probabilities[best] <= Detector.PROB_THRESHOLD:
            return "", 0.0
        return self.languages[best], float(probabilities[best])
