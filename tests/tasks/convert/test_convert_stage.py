"""A checkpoint to a Hugging Face directory, in the child process, as a user loads it afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors import safe_open

from tasks.convert.config import ConvertConfig
from tasks.convert.stage import CONVERT, check_belong_together
from tasks.errors import UserError
from trainer.models.gpt.model import GPT

TOKENS = (torch.arange(2 * 24).reshape(2, 24) * 31 + 5) % 257


def test_the_published_model_is_the_trained_one(make: Callable[..., Any], trainer_model: Callable[..., GPT]) -> None:
    import transformers

    store, checkpoint, tokenizer = make()
    model = store.run(CONVERT, ConvertConfig(), [checkpoint, tokenizer])
    directory = store.path_of(model)
    assert model.num_parameters == checkpoint.num_parameters
    assert model.max_logit_difference is not None
    assert model.max_logit_difference < 1e-4

    loaded = transformers.AutoModelForCausalLM.from_pretrained(directory).eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(TOKENS).logits, trainer_model()(TOKENS), atol=1e-4, rtol=0)
    assert loaded.config.vocab_size == loaded.get_input_embeddings().weight.shape[0] == 257
    assert loaded.generation_config.eos_token_id == 256
    reader = transformers.AutoTokenizer.from_pretrained(directory)
    assert reader.eos_token_id == 256
    assert reader.model_max_length == 24
    with safe_open(directory / "model.safetensors", framework="pt") as stream:
        assert stream.metadata() == {"format": "pt"}
        assert "lm_head.weight" not in stream.keys()  # noqa: SIM118
    record = json.loads((directory / "parity.json").read_text())
    assert record["tokenizer_fingerprint"] == tokenizer.fingerprint
    assert record["step"] == 3
    assert json.loads((directory / "logs" / "parity_measured.json").read_text())["large"]["largest"] < 1e-9
    assert "3 steps" in (directory / "README.md").read_text()


def test_a_tokenizer_of_another_corpus_is_refused(make: Callable[..., Any]) -> None:
    store, checkpoint, tokenizer = make(tokenizer_fingerprint="ab" * 32)
    with pytest.raises(UserError, match="the checkpoint was trained with the tokenizer abababababab"):
        store.run(CONVERT, ConvertConfig(), [checkpoint, tokenizer])
    store, checkpoint, tokenizer = make(eod_token_id=0)
    with pytest.raises(UserError, match=r"tokenizer\.eod_token_id = 256: the checkpoint was trained with 0"):
        store.run(CONVERT, ConvertConfig(), [checkpoint, tokenizer])


def test_the_right_tokenizer_is_accepted(make: Callable[..., Any]) -> None:
    _, _, tokenizer = make()
    _, checkpoint, tokenizer = make(tokenizer_fingerprint=tokenizer.fingerprint)
    check_belong_together(checkpoint, tokenizer)
