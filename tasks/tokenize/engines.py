"""Engines that turn texts into token numbers. `tokenizers` is the reference; any other must give the same numbers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tasks.errors import UserError
from tasks.tokenize.probes import probe_texts
from tasks.tokenize.tokenizer_directory import load_tokenizer

EngineName = Literal["tokenizers", "fastokens"]
SpecialTokens = Literal["text", "parse"]
Encoded = tuple[NDArray[np.uint32], NDArray[np.int64]]
"""Token ids of all texts, back to back, and how many each text has."""
Encode = Callable[[Sequence[str]], Encoded]
REFERENCE: EngineName = "tokenizers"
WORTH_CHECKING_BYTES = 2_000_000
"""Below this much text the reference is done before another engine has passed its check."""
REFERENCE_BATCH = 256
"""Texts given to the reference at a time: its result objects are 37 bytes for each byte of text."""


@dataclass(frozen=True)
class EngineChoice:
    """Which engine encodes, and why it is not the faster one."""

    name: EngineName
    reason: str = ""


def open_engine(name: EngineName, tokenizer_path: Path, special_tokens: SpecialTokens) -> Encode:
    """The encode function of an engine, opened once a process and file.

    No engine adds anything around a text. With `special_tokens` "text", special tokens in a text are plain text.
    Raises UserError when tokenizer.json cannot be read or the engine does not take it.
    """
    status = tokenizer_path.stat()
    return _open(name, tokenizer_path, special_tokens, (status.st_ino, status.st_size, status.st_mtime_ns))


@lru_cache(maxsize=2)
def _open(name: EngineName, tokenizer_path: Path, special_tokens: SpecialTokens, stamp: tuple[int, ...]) -> Encode:
    del stamp  # another file under the same path is another engine
    return (_open_tokenizers if name == REFERENCE else _open_fastokens)(tokenizer_path, special_tokens)


def _open_tokenizers(tokenizer_path: Path, special_tokens: SpecialTokens) -> Encode:
    tokenizer = load_tokenizer(tokenizer_path)
    tokenizer.encode_special_tokens = special_tokens == "text"

    def encode(texts: Sequence[str]) -> Encoded:
        parts: list[NDArray[np.uint32]] = [np.empty(0, dtype=np.uint32)]
        for start in range(0, len(texts), REFERENCE_BATCH):
            found = tokenizer.encode_batch_fast(list(texts[start : start + REFERENCE_BATCH]), add_special_tokens=False)
            parts += [np.array(encoding.ids, dtype=np.uint32) for encoding in found]
        return np.concatenate(parts), np.fromiter(map(len, parts[1:]), dtype=np.int64, count=len(parts) - 1)

    return encode


def _open_fastokens(tokenizer_path: Path, special_tokens: SpecialTokens) -> Encode:
    from fastokens import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(tokenizer_path))
    except Exception as error:
        raise UserError("tokenize.resources.engine", "fastokens", f"it does not take this tokenizer ({error})",
                        "Use the engine tokenizers.") from error  # fmt: skip
    tokenizer.no_truncation()
    tokenizer.no_padding()
    as_text = special_tokens == "text"

    def encode(texts: Sequence[str]) -> Encoded:
        ids, offsets = tokenizer.encode_batch_flat(list(texts), add_special_tokens=False, split_special_tokens=as_text)
        borders = np.frombuffer(offsets, dtype="<u8").astype(np.int64)
        return np.frombuffer(ids, dtype="<u4"), borders[1:] - borders[:-1]

    return encode


def first_difference(name: EngineName, tokenizer_path: Path, special_tokens: SpecialTokens) -> str | None:
    """The first probe text that an engine does not encode as the reference does, or None."""
    texts = probe_texts()
    ids, lengths = open_engine(name, tokenizer_path, special_tokens)(texts)
    wanted_ids, wanted_lengths = open_engine(REFERENCE, tokenizer_path, special_tokens)(texts)
    if np.array_equal(ids, wanted_ids) and np.array_equal(lengths, wanted_lengths):
        return None
    if len(lengths) != len(texts):
        return texts[0]
    starts, wanted_starts = np.cumsum(lengths) - lengths, np.cumsum(wanted_lengths) - wanted_lengths
    for index, text in enumerate(texts):
        found = ids[starts[index] : starts[index] + lengths[index]]
        wanted = wanted_ids[wanted_starts[index] : wanted_starts[index] + wanted_lengths[index]]
        if not np.array_equal(found, wanted):
            return text
    return texts[-1]


def choose_engine(
    wanted: str, tokenizer_path: Path, special_tokens: SpecialTokens, num_text_bytes: int
) -> EngineChoice:
    """The engine to use. With "auto": fastokens where it is installed and gives the reference's tokens on the probes.

    Raises UserError when fastokens is asked for by name and cannot be used.
    """
    if wanted == "tokenizers" or (wanted == "auto" and num_text_bytes < WORTH_CHECKING_BYTES):
        return EngineChoice(REFERENCE)
    if importlib.util.find_spec("fastokens") is None:
        reason = "fastokens is not installed"
    else:
        try:
            text = first_difference("fastokens", tokenizer_path, special_tokens)
            reason = "" if text is None else f"fastokens differs from tokenizers on {text[:40]!r}"
        except (UserError, ImportError, AttributeError, TypeError) as error:
            reason = f"fastokens cannot be used: {error}"
    if not reason:
        return EngineChoice("fastokens")
    if wanted == "fastokens":
        remedy = "Install it (pip install 'fastokens>=0.3.5,<0.4'), or use the engine tokenizers."
        raise UserError("tokenize.resources.engine", wanted, reason, remedy)
    return EngineChoice(REFERENCE, reason)
