"""The files of a Hugging Face directory, written whole and with the same bytes every time."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import tokenizers
from safetensors.torch import save_file
from torch import Tensor

from tasks.errors import UserError

WEIGHTS_NAME = "model.safetensors"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Indented JSON with sorted names; the file appears whole."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """UTF-8 text; the file appears whole."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def write_weights(directory: Path, tensors: dict[str, Tensor]) -> None:
    """model.safetensors, tensors in the order of their names, with the metadata that transformers asks for."""
    temporary = directory / f"{WEIGHTS_NAME}.tmp"
    ordered = {name: tensors[name].contiguous() for name in sorted(tensors)}
    save_file(ordered, str(temporary), metadata={"format": "pt"})
    temporary.replace(directory / WEIGHTS_NAME)


def copy_tokenizer(source: Path, target: Path, num_positions: int, eod_token_id: int) -> None:
    """The tokenizer's files, its configuration completed by what the model knows: context and end marker.

    Raises UserError when there is no tokenizer.json, or it has no such id.
    """
    if not (source / "tokenizer.json").is_file():
        raise UserError("tokenizer", str(source), "it holds no tokenizer.json", "Give a tokenizer directory.")
    eod_token = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json")).id_to_token(eod_token_id)
    if eod_token is None:
        remedy = "Give the tokenizer that made the training corpus."
        raise UserError("tokenizer", str(source), f"it has no token with the id {eod_token_id}", remedy)
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    path = target / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    settings.setdefault("tokenizer_class", "GPT2Tokenizer")
    for name in ("bos_token", "eos_token", "unk_token"):
        settings.setdefault(name, eod_token)
    settings["model_max_length"] = num_positions
    write_json(path, settings)
