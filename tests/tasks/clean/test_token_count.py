from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.clean.token_count import _count_piecewise, has_tokens
from tasks.gpt2_vocabulary import gpt2_tokenizer

WORDS = (
    "the",
    "harbour",
    "x",
    "it's",
    "don't ",
    "42",
    "...",
    "\n\n",
    "  ",
    "é",
    "中文",
    "😀",
    "'",
    "'ll",
    "_",
    "A",
    "=====",
    "港の,",
    "カ。",
    "a\x1cb",
    "!\x1c!",
    "\u3000",
    "\xa0",
    "\u2028",
    ".",
)
texts = st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join) | st.lists(st.sampled_from(WORDS), max_size=30).map(
    "".join
)


@given(texts, st.integers(-1, 70))
@settings(max_examples=300, deadline=None)
def test_it_is_the_tokenizers_own_count(text: str, minimum: int) -> None:
    number = len(gpt2_tokenizer().encode(text, add_special_tokens=False))
    assert has_tokens(text, minimum) == (number >= minimum)
    if minimum > 0:
        assert _count_piecewise(text, minimum) == (number >= minimum)


@pytest.mark.parametrize("number", [127, 128, 129])
def test_at_the_border(number: int) -> None:
    assert has_tokens("the" + " the" * (number - 1), 128) == (number >= 128)


def test_few_long_tokens_do_not_pass_by_their_characters() -> None:
    # One token of GPT-2's vocabulary is 128 blanks, dashes or the like: 8 characters a token is no bound.
    text = ("-" * 64 + "\n") * 40
    number = len(gpt2_tokenizer().encode(text))
    assert len(text) > 8 * number
    assert has_tokens(text, number)
    assert not has_tokens(text, number + 1)
