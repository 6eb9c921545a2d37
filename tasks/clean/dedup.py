"""Which documents survive: the first in input order, whatever the number of workers.

A document is dropped only for a survivor that is the same or similar enough: copies of copies do not swallow a chain.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from tasks.clean.config import DedupConfig
from tasks.clean.minhash import Hashes, band_keys, jaccard, rows_per_band, shingles, signature

_SPACE = re.compile(r"\s+")
EXACT_DIGEST_BYTES = 16


class DedupReason(StrEnum):
    """Why a document is a copy."""

    EXACT = "exact_duplicate"
    NEAR = "near_duplicate"


@dataclass(frozen=True)
class Trait:
    """What is compared of a document."""

    exact: bytes
    """16 bytes: hash of the normalised text."""
    shingles: Hashes
    signature: npt.NDArray[np.uint32]


def exact_digest(text: str) -> bytes:
    """Hash of the text in NFC with runs of white space as one space and none at the ends; letter case counts."""
    normal = _SPACE.sub(" ", unicodedata.normalize("NFC", text)).strip()
    return hashlib.blake2b(normal.encode("utf-8", "surrogatepass"), digest_size=EXACT_DIGEST_BYTES).digest()


def trait_of(text: str, config: DedupConfig) -> Trait:
    """Everything that is needed to compare a document with others."""
    grams = shingles(text, config.shingle_words) if config.near else np.zeros(0, np.uint64)
    values = signature(grams, config.seed, config.num_hashes) if len(grams) else np.zeros(0, np.uint32)
    return Trait(exact_digest(text), grams, values)


def verdicts(traits: Iterable[Trait], config: DedupConfig) -> Iterator[tuple[str, int]]:
    """For each document in order: "" and -1 when it survives, else the reason and the number of the survivor."""
    rows = rows_per_band(config.threshold, config.num_hashes)
    exact: dict[bytes, int] = {}
    buckets: dict[bytes, list[int]] = {}
    survivors: dict[int, Hashes] = {}
    for number, trait in enumerate(traits):
        if config.exact and trait.exact in exact:
            yield DedupReason.EXACT, exact[trait.exact]
            continue
        keys = band_keys(trait.signature, rows) if config.near and len(trait.signature) else []
        candidates = sorted({other for key in keys for other in buckets.get(key, ())})
        similar = next(
            (other for other in candidates if jaccard(trait.shingles, survivors[other]) >= config.threshold), None
        )
        if similar is not None:
            # Its text stands for itself no longer: an exact copy of it is a copy of the survivor too.
            exact.setdefault(trait.exact, similar)
            yield DedupReason.NEAR, similar
            continue
        exact.setdefault(trait.exact, number)
        for key in keys:
            buckets.setdefault(key, []).append(number)
        if keys:
            survivors[number] = trait.shingles
        yield "", -1
