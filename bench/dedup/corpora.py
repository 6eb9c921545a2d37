"""Documents with known near copies, and what is true about them."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

WORD = re.compile(r"\w+")
EDIT_FRACTIONS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.04)
COPIED_FRACTION = 0.15
VOWELS = "aeiou"
Row = dict[str, str]


def varied(rows: list[Row], most: int) -> list[Row]:
    """The rows, and the same ones in other words (vowels moved on) until there are `most` or five of each."""
    found = list(rows)
    for turn in range(1, len(VOWELS)):
        if len(found) >= most:
            break
        table = str.maketrans(VOWELS, VOWELS[turn:] + VOWELS[:turn])
        found += [{**row, "text": row["text"].translate(table)} for row in rows]
    return found[:most]


def with_near_copies(rows: list[Row], seed: int) -> tuple[list[Row], list[tuple[str, str]]]:
    """The documents with near copies of some of them, in random order, and the URLs of each pair."""
    draw = random.Random(seed)
    pairs, copies = [], []
    for place, row in enumerate(rows):
        row["url"] = f"http://example.com/{place}"
        if draw.random() < COPIED_FRACTION:
            words = row["text"].split(" ")
            for _ in range(round(draw.choice(EDIT_FRACTIONS) * len(words))):
                words[draw.randrange(len(words))] = f"w{draw.randrange(10**6)}"
            copies.append({"url": f"{row['url']}/copy", "text": " ".join(words)})
            pairs.append((row["url"], copies[-1]["url"]))
    mixed = rows + copies
    draw.shuffle(mixed)
    return mixed, pairs


def grams_of(text: str) -> set[tuple[str, ...]]:
    """Word 5-grams in lower case, the plain way."""
    words = WORD.findall(text.lower())
    return {tuple(words[at : at + 5]) for at in range(max(1, len(words) - 4))}


def true_similarity(first: str, second: str) -> float:
    """Jaccard similarity of word 5-grams."""
    one, two = grams_of(first), grams_of(second)
    return len(one & two) / len(one | two)


def false_merges(texts: dict[str, str], survivors: set[str], pairs: list[tuple[str, str]], threshold: float) -> int:
    """Dropped documents to which no survivor is similar: not the known ones, nor any that shares an n-gram."""
    partners: dict[str, list[str]] = {}
    for one, two in pairs:
        partners.setdefault(one, []).append(two)
        partners.setdefault(two, []).append(one)
    doubtful = {
        url: grams_of(text)
        for url, text in texts.items()
        if url not in survivors
        and not any(
            other in survivors and true_similarity(text, texts[other]) >= threshold for other in partners.get(url, ())
        )
    }
    holders: dict[tuple[str, ...], list[str]] = {}
    for url, grams in doubtful.items():
        for gram in grams:
            holders.setdefault(gram, []).append(url)
    cleared: set[str] = set()
    for survivor in survivors if doubtful else ():
        own = grams_of(texts[survivor])
        shared = Counter(url for gram in own for url in holders.get(gram, ()))
        cleared |= {
            url for url, count in shared.items() if count / (len(own) + len(doubtful[url]) - count) >= threshold
        }
    return len(doubtful) - len(cleared)


def neardup_rows(folder: Path, name: str) -> tuple[list[Row], list[tuple[int, int]]]:
    """Texts of a file of the near-duplicate data, and the places of those that belong together."""

    def rows(file: str) -> Iterator[dict[str, str]]:
        with gzip.open(folder / file, "rt", encoding="utf-8") as stream:
            yield from map(json.loads, stream)

    texts = list(rows(f"{name}.jsonl.gz"))
    field = "cluster" if name == "articles" else "base"
    groups: dict[str, list[int]] = {}
    for place, row in enumerate(texts):
        groups.setdefault(row[field], []).append(place)
    pairs = [(one, two) for group in groups.values() for at, one in enumerate(group) for two in group[at + 1 :]]
    return [{"url": f"http://example.com/{place}", "text": row["text"]} for place, row in enumerate(texts)], pairs


def write_small_documents(path: Path, number: int, seed: int) -> int:
    """A file of many short documents, one in ten a near copy of one of the 1,000 before it; returns its bytes."""
    draw = random.Random(seed)
    vocabulary = [f"{draw.choice('bcdfghklmnprst')}{draw.choice(VOWELS)}{draw.randrange(10**4)}" for _ in range(50_000)]
    recent: list[list[str]] = []
    with path.open("w", encoding="utf-8") as stream:
        for place in range(number):
            if place % 10 == 9:
                words = list(draw.choice(recent))
                words[draw.randrange(len(words))] = "changed"
            else:
                words = draw.choices(vocabulary, k=40)
            recent = [*recent[-999:], words] if place % 100 == 0 else [*recent, words]
            stream.write(f'{{"id":"{place}","url":"http://example.com/{place}","text":"{" ".join(words)}"}}\n')
        return stream.tell()
