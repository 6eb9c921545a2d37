"""Digests: the same for a text wherever it stands and whatever stands beside it; other texts have others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.scrape.filter_digest import FEW, PADDING, digest, digests_of, joined, words_of_buffer


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5), st.binary(max_size=9))
def test_a_text_has_one_digest(texts: list[bytes], before: bytes) -> None:
    alone = [tuple(int(chain[0]) for chain in digests_of([text])) for text in texts]
    among_many = digests_of(texts + [b"x" * 50] * FEW * 2)
    assert [(int(high), int(low)) for high, low in zip(*among_many, strict=True)][: len(texts)] == alone
    buffer = before + texts[0] + PADDING
    high, low = digest(words_of_buffer(buffer), np.array([len(before)]), np.array([len(texts[0])]))
    assert (int(high[0]), int(low[0])) == alone[0]


def test_texts_that_are_nearly_the_same_differ() -> None:
    texts = [
        b"",
        b"\0",
        b"\0\0",
        b"\0" * 8,
        b"\0" * 9,
        b"a",
        b"a\0",
        b"ab",
        b"ba",
        b"12345678",
        b"123456789",
        b"87654321",
    ]
    texts += [b"http://example.com/" + str(number).encode() for number in range(20_000)]
    texts += [b"z" * length for length in range(40, 2000, 7)]
    for chain in digests_of(texts):
        assert len(np.unique(chain)) == len(texts)
    high, low = digests_of(texts)
    assert len(np.unique(joined(high, low))) == len(texts)
    assert not np.array_equal(joined(high, low), joined(low, high))


def test_every_bit_of_a_digest_depends_on_the_text() -> None:
    high, low = digests_of([str(number).encode() * 3 for number in range(4096)])
    for chain in (high, low):
        for bit in range(64):
            share = float(np.mean(chain >> np.uint64(bit) & np.uint64(1)))
            assert 0.45 < share < 0.55, (bit, share)
