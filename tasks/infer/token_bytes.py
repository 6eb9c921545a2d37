"""The bytes each token of a byte-level tokenizer stands for, so that text can be decoded one token at a time.

Byte-level BPE writes each byte as one printable character: bytes that print as themselves stay, the other 68 are
counted upwards from U+0100 (GPT-2's encoder, OpenAI 2019).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import tokenizers

from tasks.errors import UserError


@cache
def byte_of_character() -> dict[str, int]:
    """The byte that each of the 256 characters of the byte-level alphabet stands for."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return table | {chr(0x100 + index): byte for index, byte in enumerate(others)}


def load_tokenizer(directory: Path) -> tokenizers.Tokenizer:
    """tokenizer.json of a model directory; special tokens in a text are plain text, as in the corpus.

    Raises UserError when there is none, or it is not byte-level.
    """
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise UserError("model", str(directory), "it holds no tokenizer.json", "Save the tokenizer beside the weights.")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:
        raise UserError("tokenizer", str(path), f"it cannot be read ({error})", "Save the tokenizer again.") from error
    if not _is_byte_level(json.loads(tokenizer.to_str()).get("decoder")):
        rule = "only byte-level tokenizers (GPT-2's kind) can be decoded token by token"
        raise UserError("tokenizer", str(path), rule, "Give a model with a byte-level tokenizer.")
    tokenizer.encode_special_tokens = True
    return tokenizer


def _is_byte_level(decoder: object) -> bool:
    if not isinstance(decoder, dict):
        return False
    if decoder.get("type") == "Sequence":
        return any(_is_byte_level(part) for part in decoder.get("decoders", ()))
    return decoder.get("type") == "ByteLevel"


def token_bytes(tokenizer: tokenizers.Tokenizer, vocab_size: int) -> list[bytes]:
    """Bytes of the ids 0 .. vocab_size - 1; empty for special tokens, which are no text, and for ids without a token.

    Raises UserError when the tokenizer has more ids than the model.
    """
    added = tokenizer.get_added_tokens_decoder()
    alphabet = byte_of_character()
    table = [b""] * vocab_size
    for token, token_id in tokenizer.get_vocab(with_added_tokens=True).items():
        if token_id >= vocab_size:
            rule = f"the tokenizer has the id {token_id}, the model has {vocab_size} ids"
            raise UserError("tokenizer", token, rule, "Give the tokenizer that the model was trained with.")
        if token_id in added:
            table[token_id] = b"" if added[token_id].special else token.encode()
        else:
            table[token_id] = bytes(alphabet[character] for character in token)
    return table
