"""A tokenizer directory: what is written into a Tokenizer artifact, and how it is opened again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tokenizers

from tasks.errors import UserError
from tasks.gpt2_vocabulary import EOD_TOKEN

TOKENIZER_NAME = "tokenizer.json"
CONFIG_NAME = "tokenizer_config.json"
COMPANIONS = (
    CONFIG_NAME,
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
"""Files of a Hugging Face tokenizer beside tokenizer.json."""


def load_tokenizer(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer in a tokenizer.json, without truncation and padding. Raises UserError when it cannot be read."""
    # The library raises nothing more special than Exception.
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:
        raise UserError(
            "tokenizer", str(path), f"it cannot be read ({error})", "Give a valid tokenizer.json."
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def num_token_ids(tokenizer: tokenizers.Tokenizer) -> int:
    """One more than the highest id, added tokens included: what a model's embedding must hold."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def merge_pairs(merges: Iterable[str | list[str]]) -> Iterator[tuple[str, str]]:
    """The merges of a tokenizer.json, which has them as "left right" or as [left, right], by its age."""
    for merge in merges:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        yield left, right


def write_byte_level(directory: Path, tokenizer: tokenizers.Tokenizer) -> None:
    """Write a GPT-2 style tokenizer: tokenizer.json, tokenizer_config.json, vocab.json and merges.txt.

    The four say the same, so that `tokenizers`, transformers and older readers all get the same numbers.
    """
    tokenizer.add_special_tokens([tokenizers.AddedToken(EOD_TOKEN, special=True, normalized=False)])
    model = json.loads(tokenizer.to_str())["model"]
    vocabulary = dict(sorted(model["vocab"].items(), key=lambda item: item[1]))
    merges = "".join(f"{left} {right}\n" for left, right in merge_pairs(model["merges"]))
    _write(directory / "vocab.json", json.dumps(vocabulary, ensure_ascii=False, separators=(",", ":")))
    _write(directory / "merges.txt", f"#version: 0.2\n{merges}")
    _write(directory / CONFIG_NAME, _json(_config(EOD_TOKEN)))
    _write(directory / TOKENIZER_NAME, tokenizer.to_str(pretty=False))


def copy_huggingface(source: Path, directory: Path, eod_token: str) -> None:
    """Copy a Hugging Face tokenizer as it is; a tokenizer_config.json is written where there is none."""
    for name in (TOKENIZER_NAME, *COMPANIONS):
        if (source / name).is_file():
            shutil.copyfile(source / name, directory / name)
    if not (directory / CONFIG_NAME).is_file():
        _write(directory / CONFIG_NAME, _json(_config(eod_token) | {"tokenizer_class": "PreTrainedTokenizerFast"}))


def declared_eos_token(source: Path) -> str | None:
    """eos_token of tokenizer_config.json or special_tokens_map.json, if one of them names it."""
    for name in (CONFIG_NAME, "special_tokens_map.json"):
        if (source / name).is_file():
            try:
                token = json.loads((source / name).read_text(encoding="utf-8")).get("eos_token")
            except (ValueError, AttributeError) as error:
                raise UserError("path", str(source / name), f"it is no JSON object ({error})", "Mend it.") from error
            if isinstance(token, dict):
                token = token.get("content")
            if isinstance(token, str):
                return token
    return None


def _config(eod_token: str) -> dict[str, Any]:
    return {
        "tokenizer_class": "GPT2Tokenizer",
        "add_prefix_space": False,
        "bos_token": eod_token,
        "eos_token": eod_token,
        "unk_token": eod_token,
        "clean_up_tokenization_spaces": False,
    }


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
