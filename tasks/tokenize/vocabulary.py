"""Where a tokenizer comes from: GPT-2's files, a Hugging Face directory, or the documents themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from tasks.errors import UserError
from tasks.gpt2_vocabulary import EOD_TOKEN, byte_level_bpe, gpt2_files
from tasks.records import Document
from tasks.tokenize.bpe_training import sample_documents, train_bpe
from tasks.tokenize.config import VocabularyConfig
from tasks.tokenize.tokenizer_directory import (
    TOKENIZER_NAME,
    copy_huggingface,
    declared_eos_token,
    load_tokenizer,
    num_token_ids,
    write_byte_level,
)


@dataclass(frozen=True)
class WrittenTokenizer:
    """What a later stage must know of a tokenizer directory."""

    vocab_size: int
    """Number of token ids: one more than the highest."""
    eod_token_id: int


def write_vocabulary(
    directory: Path, config: VocabularyConfig, documents: Iterable[Document], num_text_bytes: int
) -> WrittenTokenizer:
    """Write the wanted tokenizer into `directory`. `documents`, of `num_text_bytes` in all, are read only to learn.

    Raises UserError for files that are absent, damaged, or lack an end-of-document token.
    """
    if config.name == "huggingface":
        assert config.path is not None
        eod_token = _write_huggingface(directory, config.path, config.eod_token)
    else:
        if config.name == "bpe":
            sample = sample_documents(documents, config.sample_bytes / max(1, num_text_bytes), config.seed)
            tokenizer = train_bpe((document.text for document in sample), config.vocab_size, config.min_frequency)
        else:
            tokenizer = read_bpe_files(*_gpt2_paths(config))
        eod_token = EOD_TOKEN
        write_byte_level(directory, tokenizer)
    written = load_tokenizer(directory / TOKENIZER_NAME)
    eod_token_id = written.token_to_id(eod_token)
    assert eod_token_id is not None
    return WrittenTokenizer(num_token_ids(written), eod_token_id)


def _gpt2_paths(config: VocabularyConfig) -> tuple[Path, Path]:
    if config.vocab_path is None or config.merges_path is None:
        return gpt2_files()
    return config.vocab_path, config.merges_path


def read_bpe_files(vocab_path: Path, merges_path: Path) -> tokenizers.Tokenizer:
    """A GPT-2 style tokenizer from vocab.json (encoder.json) and merges.txt (vocab.bpe).

    Raises UserError when they cannot be read, do not belong together, lack a byte, or have no end-of-document token.
    """
    remedy = "Give the vocab.json and merges.txt of one GPT-2 style vocabulary."
    try:
        vocabulary = json.loads(vocab_path.read_text(encoding="utf-8"))
        lines = merges_path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise UserError("vocabulary.vocab_path", str(vocab_path), f"it cannot be read ({error})", remedy) from error
    if not isinstance(vocabulary, dict) or not all(isinstance(token_id, int) for token_id in vocabulary.values()):
        raise UserError("vocabulary.vocab_path", str(vocab_path), "it is no object of token: id", remedy)
    if lines and lines[0].startswith("#version"):
        lines = lines[1:]
    merges = [(left, right) for left, _, right in (line.rstrip("\r").partition(" ") for line in lines) if left]
    missing = set(tokenizers.pre_tokenizers.ByteLevel.alphabet()) - set(vocabulary)
    if missing:
        rule = f"{len(missing)} of the 256 bytes have no token"
        raise UserError("vocabulary.vocab_path", str(vocab_path), rule, remedy)
    if EOD_TOKEN not in vocabulary:
        raise UserError("vocabulary.vocab_path", str(vocab_path), f"it has no token {EOD_TOKEN}", remedy)
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        rule = f"its {len(vocabulary)} ids are not 0 to {len(vocabulary) - 1}, each once"
        raise UserError("vocabulary.vocab_path", str(vocab_path), rule, remedy)
    try:
        return byte_level_bpe(vocabulary, merges)
    except Exception as error:
        raise UserError(
            "vocabulary.merges_path", str(merges_path), f"it does not belong to {vocab_path.name} ({error})", remedy
        ) from error


def _write_huggingface(directory: Path, source: Path, eod_token: str | None) -> str:
    if not (source / TOKENIZER_NAME).is_file():
        raise UserError(
            "vocabulary.path", str(source), f"it holds no {TOKENIZER_NAME}", "Give a folder that holds one."
        )
    tokenizer = load_tokenizer(source / TOKENIZER_NAME)
    token = eod_token or declared_eos_token(source) or EOD_TOKEN
    if tokenizer.token_to_id(token) is None:
        rule = "the tokenizer has no such token"
        raise UserError("vocabulary.eod_token", token, rule, "Name the token that ends a document.")
    copy_huggingface(source, directory, token)
    return token
