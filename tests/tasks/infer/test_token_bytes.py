"""The bytes of tokens, against the tokenizer's own decoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from tasks.errors import UserError
from tasks.gpt2_vocabulary import EOD_TOKEN, GPT2_VOCAB_SIZE, gpt2_tokenizer
from tasks.infer.token_bytes import byte_of_character, load_tokenizer, token_bytes

TEXT = "Hello, wörld! 日本語 😀\n\n  def f(x):\treturn x  # don't"


def test_the_alphabet_is_the_256_bytes() -> None:
    assert sorted(byte_of_character().values()) == list(range(256))
    assert set(byte_of_character()) == set(pre_tokenizers.ByteLevel.alphabet())


def test_bytes_of_tokens_join_to_the_text() -> None:
    table = token_bytes(gpt2_tokenizer(), GPT2_VOCAB_SIZE)
    assert b"".join(table[token] for token in gpt2_tokenizer().encode(TEXT).ids).decode() == TEXT


def test_every_gpt2_token_decodes_as_the_tokenizer_says() -> None:
    table = token_bytes(gpt2_tokenizer(), GPT2_VOCAB_SIZE)
    for token in range(0, GPT2_VOCAB_SIZE, 7):
        assert table[token].decode("utf-8", "replace") == gpt2_tokenizer().decode([token], skip_special_tokens=False)


def byte_level(path: Path) -> tokenizers.Tokenizer:
    vocabulary = {character: index for index, character in enumerate(sorted(byte_of_character()))}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([EOD_TOKEN])
    tokenizer.save(str(path / "tokenizer.json"))
    return tokenizer


def test_a_special_token_is_no_text_and_is_not_read_from_text(tmp_path: Path) -> None:
    byte_level(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert token_bytes(tokenizer, 257)[256] == b""
    assert 256 not in tokenizer.encode(f"a{EOD_TOKEN}b").ids


def test_ids_beyond_the_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the tokenizer has the id 256, the model has 256 ids"):
        token_bytes(byte_level(tmp_path), 256)


def test_a_model_may_have_more_ids_than_the_tokenizer(tmp_path: Path) -> None:
    assert token_bytes(byte_level(tmp_path), 260)[257:] == [b""] * 3


def test_a_missing_damaged_or_foreign_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no tokenizer\.json"):
        load_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(UserError, match="cannot be read"):
        load_tokenizer(tmp_path)
    tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(path))
    with pytest.raises(UserError, match="only byte-level tokenizers"):
        load_tokenizer(tmp_path)
