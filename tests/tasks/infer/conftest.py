"""A small Hugging Face directory with a byte-level tokenizer, and artifacts made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

VOCAB_SIZE, EOD, CONTEXT = 257, 256, 64
torch.set_num_threads(1)  # small tensors: threads that wait for each other only cost time


def write_tokenizer(directory: Path) -> tokenizers.Tokenizer:
    """One token a byte, and the end-of-document token as the last id."""
    vocabulary = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    return tokenizer


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers: Any = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=VOCAB_SIZE, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4, bos_token_id=EOD, eos_token_id=EOD,
        attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0,
    )  # fmt: skip
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
    directory = tmp_path_factory.mktemp("model")
    model.save_pretrained(directory)
    write_tokenizer(directory)
    return directory
