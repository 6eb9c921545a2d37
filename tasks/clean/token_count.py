"""Whether a text has enough GPT-2 tokens: exact, and counted only where cheap bounds do not decide."""

from __future__ import annotations

import re

from tasks.gpt2_vocabulary import gpt2_tokenizer

# GPT-2's pre-tokenizer always cuts here, and no token reaches over a cut: before a single blank between two other
# characters, and between a letter of Chinese or Japanese and punctuation.
_SURE_CUT = re.compile(
    "(?<=\\S) (?=\\S)"
    "|(?<=[\u3041-\u3094\u30a1-\u30fa\u4e00-\u9fa5])(?=[!,.:;?\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f])"
)
# Characters looked at first; on English a token has about 4.5 characters, so most texts are decided by the first piece.
CHARACTERS_PER_TOKEN = 8


def has_tokens(text: str, minimum: int) -> bool:
    """Whether the text has at least `minimum` GPT-2 tokens, end-of-document token not counted."""
    if minimum <= 0:
        return True
    # No token is empty: there are no more tokens than UTF-8 bytes.
    if len(text) < minimum and len(text.encode("utf-8", "surrogatepass")) < minimum:
        return False
    # A token that holds a character other than white space holds no white space after it, so each word begins one.
    if len(text.split(None, minimum - 1)) >= minimum:
        return True
    return _count_piecewise(text, minimum)


def _count_piecewise(text: str, minimum: int) -> bool:
    tokenizer, place, counted = gpt2_tokenizer(), 0, 0
    while place < len(text):
        cut = _SURE_CUT.search(text, place + (minimum - counted) * CHARACTERS_PER_TOKEN)
        end = cut.start() if cut else len(text)
        counted += len(tokenizer.encode(text[place:end], add_special_tokens=False))
        if counted >= minimum:
            return True
        place = end
    return False
