"""A global shuffle with bounded memory: documents are dealt into buckets by random keys, each bucket is sorted by key.

The key of a document is a hash of (seed, its number in the input), so the order depends on nothing else: not on
workers, not on the number of buckets, not on memory.
"""

from __future__ import annotations

import hashlib
import struct

_KEY = struct.Struct(">QQ")


def order_key(seed: int, number: int) -> bytes:
    """16 bytes: a hash of seed and number, then the number, so that no two keys are equal."""
    digest = hashlib.blake2b(_KEY.pack(seed, number), digest_size=8).digest()
    return digest + number.to_bytes(8, "big")


def bucket_of(key: bytes, num_buckets: int) -> int:
    """Buckets cut the range of keys in order: sorting each sorts all."""
    return int.from_bytes(key[:8], "big") * num_buckets >> 64
