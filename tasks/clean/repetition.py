"""How much of a text repeats itself (Gopher, arXiv 2112.11446, table A1), each as a fraction of its characters.

An n-gram of words can only be repeated where both (n-1)-grams in it are, so that each length looks at the places that
the length before left: most texts are done after two or three lengths.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

TOP_LENGTHS = (2, 3, 4)
REPEATED_LENGTHS = (5, 6, 7, 8, 9, 10)
_PARAGRAPH = re.compile("\n{2,}")
_LINE = re.compile("\n+")


def repeated_pieces(pieces: Sequence[str]) -> tuple[int, int]:
    """How many pieces stood before in the sequence, and how many characters those have."""
    if len(set(pieces)) == len(pieces):
        return 0, 0
    seen: set[str] = set()
    number = characters = 0
    for piece in pieces:
        if piece in seen:
            number += 1
            characters += len(piece)
        else:
            seen.add(piece)
    return number, characters


def line_repetition(text: str) -> dict[str, float]:
    """Fractions of repeated lines and paragraphs, by number and by characters of the text."""
    stripped = text.strip()
    paragraphs, lines = _PARAGRAPH.split(stripped), _LINE.split(stripped)
    found: dict[str, float] = {}
    for kind, pieces in (("paragraph", paragraphs), ("line", lines)):
        number, characters = repeated_pieces(pieces)
        found[f"repeated_{kind}_fraction"] = number / len(pieces)
        found[f"repeated_{kind}_characters"] = characters / len(text) if text else 0.0
    return found


def word_repetition(words: Sequence[str], num_characters: int) -> dict[str, float]:
    """Characters in the most frequent 2- to 4-gram, and in repeated 5- to 10-grams, as fractions of the text.

    The characters of a frequent n-gram count with the blanks between its words, those of repeated ones without; a
    repeated n-gram is passed as a whole, so that no character counts twice for one length.
    """
    found: dict[str, float] = dict.fromkeys(
        [f"top_{n}_gram_characters" for n in TOP_LENGTHS] + [f"repeated_{n}_gram_characters" for n in REPEATED_LENGTHS],
        0.0,
    )
    if num_characters == 0:
        return found
    number_of: dict[str, int] = {}
    ids = [number_of.setdefault(word, len(number_of)) for word in words]
    lengths = [len(word) for word in words]
    size = len(number_of)
    # Places at which a repeated n-gram begins, and its key there; at first single words.
    keys = ids
    counts = Counter(keys)
    places = [place for place, key in enumerate(keys) if counts[key] > 1]
    for n in range(2, REPEATED_LENGTHS[-1] + 1):
        if n in TOP_LENGTHS and len(words) >= n:
            found[f"top_{n}_gram_characters"] = sum(lengths[:n]) + n - 1  # every n-gram once: the first one counts
        here = set(places)
        candidates = [place for place in places if place + 1 in here and place + n <= len(words)]
        # A key is the pair (key of the (n-1)-gram, last word), renumbered so that it stays small.
        numbers: dict[int, int] = {}
        renumbered: dict[int, int] = {
            place: numbers.setdefault(keys[place] * size + ids[place + n - 1], len(numbers)) for place in candidates
        }
        counts = Counter(renumbered.values())
        places = [place for place in candidates if counts[renumbered[place]] > 1]
        if n in TOP_LENGTHS:
            if places:
                top = max(counts.values())
                # Counter.most_common gives the first of equals, in order of first appearance.
                first = next(place for place in places if counts[renumbered[place]] == top)
                found[f"top_{n}_gram_characters"] = (sum(lengths[first : first + n]) + n - 1) * top
            found[f"top_{n}_gram_characters"] /= num_characters
        elif n in REPEATED_LENGTHS and places:
            found[f"repeated_{n}_gram_characters"] = (
                _repeated_characters(places, renumbered, lengths, n) / num_characters
            )
        if not places:
            for later in TOP_LENGTHS:
                if later > n and len(words) >= later:
                    found[f"top_{later}_gram_characters"] = (sum(lengths[:later]) + later - 1) / num_characters
            break
        keys = [0] * len(words)
        for place in places:
            keys[place] = renumbered[place]
    return found


def _repeated_characters(places: Sequence[int], keys: dict[int, int], lengths: Sequence[int], n: int) -> int:
    seen: set[int] = set()
    characters = free = 0
    for place in places:
        if place < free:
            continue
        if keys[place] in seen:
            characters += sum(lengths[place : place + n])
            free = place + n
        else:
            seen.add(keys[place])
    return characters
