"""MinHash over word n-grams, LSH bands, and the true Jaccard similarity that decides.

Signatures: the least value of many hash functions over the n-grams (Broder 1997). Rows per band are chosen so that
pairs at the threshold are found almost surely; what is found beyond that is refuted by the true similarity.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache

import numpy as np
import numpy.typing as npt

WANTED_RECALL = 0.995
_WORD = re.compile(r"\w+")
Hashes = npt.NDArray[np.uint64]


def shingles(text: str, words_per_shingle: int) -> Hashes:
    """Sorted distinct 64-bit hashes of the text's word n-grams, lower case. A shorter text is one n-gram."""
    words = _WORD.findall(text.lower())
    if not words:
        return np.zeros(0, np.uint64)
    size = min(words_per_shingle, len(words))
    grams = {" ".join(words[start : start + size]) for start in range(len(words) - size + 1)}
    joined = b"".join(hashlib.blake2b(gram.encode(), digest_size=8).digest() for gram in grams)
    return np.unique(np.frombuffer(joined, "<u8"))


def jaccard(first: Hashes, second: Hashes) -> float:
    """Size of the intersection over size of the union; 0 for two empty sets, which have nothing in common."""
    common = len(np.intersect1d(first, second, assume_unique=True))
    union = len(first) + len(second) - common
    return common / union if union else 0.0


@cache
def _coefficients(seed: int, num_hashes: int) -> tuple[Hashes, Hashes]:
    draw = np.random.default_rng(seed)
    factors = draw.integers(1, 1 << 32, num_hashes, dtype=np.uint64) | np.uint64(1)
    return factors, draw.integers(0, 1 << 63, num_hashes, dtype=np.uint64)


def signature(hashes: Hashes, seed: int, num_hashes: int) -> npt.NDArray[np.uint32]:
    """uint32 [num_hashes]: the least value of each hash function over the set (multiply-shift, Dietzfelbinger 1996)."""
    factors, offsets = _coefficients(seed, num_hashes)
    folded = (hashes ^ (hashes >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    with np.errstate(over="ignore"):
        values = (folded[:, None] * factors[None, :] * np.uint64(0x9E3779B97F4A7C15) + offsets[None, :]) >> np.uint64(
            32
        )
    least: npt.NDArray[np.uint32] = values.min(axis=0).astype(np.uint32)
    return least


def rows_per_band(threshold: float, num_hashes: int) -> int:
    """The most rows a band may have so that a pair at the threshold shares a band with probability WANTED_RECALL."""
    best = 1
    for rows in range(1, num_hashes + 1):
        bands = num_hashes // rows
        if 1.0 - (1.0 - threshold**rows) ** bands >= WANTED_RECALL:
            best = rows
    return best


def band_keys(values: npt.NDArray[np.uint32], rows: int) -> list[bytes]:
    """One key a band: documents that share one are candidates. The band's number is part of its key."""
    bands = len(values) // rows
    return [index.to_bytes(2, "little") + values[index * rows : (index + 1) * rows].tobytes() for index in range(bands)]
