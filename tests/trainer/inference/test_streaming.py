"""Tokens to text, piece by piece."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.inference.streaming import StreamDecoder, first_stop, possible_stop

BYTES = [bytes([value]) for value in range(256)]


def pieces(text: bytes, stop: tuple[str, ...] = ()) -> list[str]:
    decoder = StreamDecoder(BYTES, stop)
    return [decoder.push(value) for value in text] + [decoder.finish()]


def test_a_character_comes_when_its_last_byte_does() -> None:
    assert pieces("é€😀".encode()) == ["", "é", "", "", "€", "", "", "", "😀", ""]


def test_an_unfinished_character_is_replaced_at_the_very_end_only() -> None:
    assert pieces("😀".encode()[:3]) == ["", "", "", "�"]


def test_an_invalid_byte_does_not_hold_back_what_follows() -> None:
    assert "".join(pieces(b"a\xffb")) == "a�b"


@given(st.text(), st.integers(1, 7))
def test_text_survives_any_cut(text: str, size: int) -> None:
    data = text.encode("utf-8", "replace")
    table = [data[start : start + size] for start in range(0, len(data), size)]
    decoder = StreamDecoder(table)
    joined = "".join(decoder.push(token) for token in range(len(table))) + decoder.finish()
    assert joined == data.decode()


@given(st.binary())
def test_bytes_decode_as_at_once(data: bytes) -> None:
    assert "".join(pieces(data)) == data.decode("utf-8", "replace")


def test_a_stop_string_is_never_shown_not_even_its_beginning() -> None:
    got = pieces(b"one. END two", ("END",))
    assert "".join(got) == "one. "
    assert got[6:] == [""] * 7
    assert "".join(pieces(b"one. EN", ("END",))) == "one. EN"


def test_the_decoder_says_that_it_stopped() -> None:
    decoder = StreamDecoder([b"a", b"b\nc", b"d"], ("\n",))
    assert decoder.push(0) == "a"
    assert not decoder.stopped
    assert decoder.push(1) == "b"
    assert decoder.stopped
    assert decoder.push(2) == ""
    assert decoder.finish() == ""


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_a_stop_string_cuts_at_the_same_place_however_the_text_comes(text: str, stop: list[str]) -> None:
    whole = StreamDecoder([text.encode()], tuple(stop))
    at_once = whole.push(0) + whole.finish()
    assert "".join(pieces(text.encode(), tuple(stop))) == at_once
    assert all(word not in at_once for word in stop)


def test_overlapping_stop_strings() -> None:
    assert first_stop("xabcd", ("abcd", "bc")) == 2
    assert first_stop("xab", ("ab", "b")) == 1
    assert first_stop("x", ("y",)) is None
    assert possible_stop("xab", ("abc", "bcd")) == 2
    assert possible_stop("x", ("abc",)) == 0


def test_an_id_without_a_meaning_is_refused() -> None:
    with pytest.raises(ValueError, match="token 256 is outside the vocabulary of 256"):
        StreamDecoder(BYTES).push(256)
