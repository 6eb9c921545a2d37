"""The n-grams of benchmark files, and which words of documents match them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from tasks.clean.config import DecontaminateConfig
from tasks.clean.shingles import Hashes, Places, Words, encode, roll, words_of
from tasks.errors import UserError
from tasks.records import read_lines

TEXT_SUFFIXES = (".txt", ".txt.gz", ".txt.zst", ".txt.xz")
# Places of the table for each n-gram: one of so many others passes and is looked up.
TABLE_FACTOR = 32
MOST_TABLE_BITS = 28


def benchmark_texts(path: Path, fields: tuple[str, ...]) -> Iterator[str]:
    """The texts of one benchmark file. Raises UserError for a row that is no JSON object and for a missing field."""
    if path.name.endswith(TEXT_SUFFIXES):
        paragraph: list[str] = []
        for line in (*read_lines(path), b""):
            if line.strip():
                paragraph.append(line.decode("utf-8", "replace"))
            elif paragraph:
                yield "\n".join(paragraph)
                paragraph = []
        return
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row: Any = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise _bad_row(path, number, f"it is not valid JSON ({error})") from error
        if not isinstance(row, dict):
            raise _bad_row(path, number, "it is not a JSON object")
        missing = [field for field in fields if field not in row]
        if missing:
            raise _bad_row(path, number, f"it has no field {missing[0]!r}, but {', '.join(row)}")
        yield from _strings([row[field] for field in fields] if fields else row)


def _bad_row(path: Path, number: int, rule: str) -> UserError:
    return UserError("benchmarks", f"{path}:{number}", rule, "Mend the file, or name other benchmark_fields.")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def benchmark_ngrams(config: DecontaminateConfig) -> list[tuple[int, Hashes]]:
    """For each number of words that occurs the distinct hashes of the n-grams that match, sorted; shortest first.

    Raises UserError when no file is given, or when the files hold no text that is long enough.
    """
    if not config.benchmarks:
        raise UserError("benchmarks", (), "there is nothing to look for", "Give the benchmark files.")
    found: dict[int, list[Hashes]] = {}
    for path in config.benchmarks:
        for text in benchmark_texts(path, config.benchmark_fields):
            words = words_of([encode(text)]).hashes
            size = min(len(words), config.ngram_words)
            if size >= config.min_ngram_words:
                found.setdefault(size, []).append(roll(words, size))
    if not found:
        rule = f"they hold no text of {config.min_ngram_words} words or more"
        raise UserError("benchmarks", ", ".join(map(str, config.benchmarks)), rule, "Lower min_ngram_words.")
    return [(size, np.unique(np.concatenate(found[size]))) for size in sorted(found)]


@dataclass(frozen=True)
class Matches:
    """Matches in several texts, by text and place."""

    texts: Places
    begins: Places
    """Byte of the text at which the first word begins."""
    ends: Places
    """Byte after the last word."""
    ngrams: Places
    """Number of the n-gram, counted through all lengths."""


class Finder:
    """Finds n-grams of benchmarks: one look into a table of bits for each word, and a search for what passes."""

    def __init__(self, ngrams: list[tuple[int, Hashes]]) -> None:
        self._ngrams = ngrams
        total = sum(len(hashes) for _, hashes in ngrams)
        bits = min(MOST_TABLE_BITS, max(16, (total * TABLE_FACTOR).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._tables: list[npt.NDArray[np.bool_]] = []
        for _, hashes in ngrams:
            table = np.zeros(1 << bits, bool)
            table[hashes >> self._shift] = True
            self._tables.append(table)

    def find(self, words: Words) -> Matches:
        """All matches in these texts, sorted by text, first byte, and longest first."""
        columns: list[npt.NDArray[np.int64]] = [np.zeros((4, 0), np.int64)]
        first_number = 0
        for (size, hashes), table in zip(self._ngrams, self._tables, strict=True):
            grams = roll(words.hashes, size)
            places = np.flatnonzero(table[grams >> self._shift])
            numbers = np.minimum(np.searchsorted(hashes, grams[places]), len(hashes) - 1)
            texts = np.searchsorted(words.bounds, places, side="right") - 1
            # An n-gram that begins in one text and ends in the next is none.
            real = (hashes[numbers] == grams[places]) & (places + size <= words.bounds[texts + 1])
            places, texts = places[real], texts[real]
            starts = words.starts[texts]
            columns.append(
                np.stack(
                    [
                        texts,
                        words.begins[places] - starts,
                        words.ends[places + size - 1] - starts,
                        numbers[real] + first_number,
                    ]
                )
            )
            first_number += len(hashes)
        found = np.concatenate(columns, axis=1)
        found = found[:, np.lexsort((-found[2], found[1], found[0]))]
        return Matches(*found)
