"""MinHash signatures and LSH bands: which documents are worth a comparison.

A signature holds the least value of each of many hash functions over a document's n-grams (Broder 1997); two documents
agree in one place with the probability of their Jaccard similarity J. Documents that agree in all rows of a band are
candidates: with b bands of r rows that happens with probability 1 - (1 - J^r)^b (Leskovec, Rajaraman, Ullman, Mining
of Massive Datasets, 3.4). Candidates are compared by their true similarity before anything is dropped, so bands are
chosen for recall.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tasks.clean.languages import is_installed
from tasks.clean.shingles import Hashes, Offsets, mix

WANTED_RECALL = 0.995
Signatures = npt.NDArray[np.uint32]


def rows_per_band(threshold: float, num_hashes: int) -> int:
    """The most rows a band may have so that a pair at the threshold shares a band with probability WANTED_RECALL.

    1 when even that finds fewer: `num_hashes` is too small for the threshold.
    """
    return max(
        (rows for rows in range(1, num_hashes + 1) if recall(threshold, rows, num_hashes) >= WANTED_RECALL), default=1
    )


def recall(similarity: float, rows: int, num_hashes: int) -> float:
    """Probability that a pair of that Jaccard similarity shares at least one band."""
    return float(1.0 - (1.0 - similarity**rows) ** (num_hashes // rows))


def signatures(hashes: Hashes, offsets: Offsets, seed: int, num_hashes: int) -> Signatures:
    """uint32 [documents, num_hashes]; the rows of documents without n-grams mean nothing.

    Made by rensa where it is installed. The two ways have different hash functions and the same distribution.
    """
    if is_installed("rensa"):
        import rensa

        matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(
            hashes, offsets.astype(np.uint64), num_hashes, seed
        )
        return np.array(matrix.to_rows(), np.uint32).reshape(len(offsets) - 1, num_hashes)
    return numpy_signatures(hashes, offsets, seed, num_hashes)


def numpy_signatures(hashes: Hashes, offsets: Offsets, seed: int, num_hashes: int) -> Signatures:
    """The same without rensa: multiply-add-shift hash functions (Dietzfelbinger 1996) over 64-bit values."""
    draw = np.random.default_rng(seed)
    factors = draw.integers(0, 1 << 63, num_hashes, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    addends = draw.integers(0, 1 << 63, num_hashes, dtype=np.uint64)
    least = np.zeros((len(offsets) - 1, num_hashes), np.uint32)
    full = np.flatnonzero(np.diff(offsets))
    if not len(full):
        return least
    starts = offsets[:-1][full]
    for place in range(num_hashes):
        with np.errstate(over="ignore"):
            values = (hashes * factors[place] + addends[place]) >> np.uint64(32)
        least[full, place] = np.minimum.reduceat(values, starts)
    return least


def band_keys(values: Signatures, rows: int) -> Hashes:
    """uint64 [bands, documents]: documents with an equal key in a row are candidates."""
    num_documents, bands = len(values), values.shape[1] // rows
    grouped = values[:, : bands * rows].reshape(num_documents, bands, rows).astype(np.uint64)
    keys = np.zeros((num_documents, bands), np.uint64)
    with np.errstate(over="ignore"):
        for row in range(rows):
            keys = mix(keys + grouped[:, :, row])
    return np.ascontiguousarray(keys.T)
