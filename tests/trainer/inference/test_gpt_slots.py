"""Our decoder against transformers, with and without its cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainer.config import ModelConfig
from trainer.inference.gpt_slots import GptSlots
from trainer.models.gpt.hf import from_hf, shape_of_config
from trainer.models.gpt.model import GPT

TOKENS = (torch.arange(2 * 48).reshape(2, 48) * 31 + 5) % 97


def test_logits_are_those_of_transformers(reference: Any, slots: GptSlots) -> None:
    with torch.no_grad():
        wanted = reference(TOKENS).logits
    assert wanted.abs().max() > 10, "the weights are large enough to show a mistake"
    torch.testing.assert_close(slots.logits(TOKENS), wanted, atol=1e-4, rtol=1e-5)


def test_the_exact_gelu_would_show(reference: Any, slots: GptSlots, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.nn.functional.gelu
    monkeypatch.setattr("trainer.inference.gpt_slots.F.gelu", lambda x, approximate: plain(x))
    with torch.no_grad():
        assert (slots.logits(TOKENS) - reference(TOKENS).logits).abs().max() > 1e-3


def test_the_cache_changes_nothing(slots: GptSlots) -> None:
    row = TOKENS[0].tolist()
    whole = slots.logits(TOKENS[:1])[0]
    slots.reserve(3, 48)
    torch.testing.assert_close(slots.read_prompt(1, row[:5]), whole[4], atol=1e-5, rtol=1e-5)
    for position in range(5, 48):
        logits = slots.read_tokens([0, row[position], 0], [0, position, 0])
        torch.testing.assert_close(logits[1], whole[position], atol=1e-4, rtol=1e-5)


def test_slots_do_not_see_each_other(slots: GptSlots) -> None:
    slots.reserve(2, 48)
    alone = slots.read_prompt(0, [1, 2, 3])
    first = slots.read_tokens([4, 0], [3, 0])[0]
    slots.reserve(2, 48)
    assert torch.equal(slots.read_prompt(0, [1, 2, 3]), alone)
    slots.read_prompt(1, list(range(40)))
    assert torch.equal(slots.read_tokens([4, 9], [3, 40])[0], first)


def test_padding_of_the_vocabulary_has_no_logit(reference: Any) -> None:
    shape = shape_of_config(reference.config.to_dict())
    state = from_hf(reference.state_dict(), shape, padded_vocab_size=128)
    assert state["wte.weight"].shape[0] == 128
    state["wte.weight"][97:] = 50.0
    model = GptSlots(state, shape)
    assert model.logits(TOKENS).shape[-1] == 97
    torch.testing.assert_close(
        model.logits(TOKENS), GptSlots(from_hf(reference.state_dict(), shape), shape).logits(TOKENS)
    )


def test_logits_are_those_of_the_trainer_s_model(reference: Any, slots: GptSlots) -> None:
    shape = slots.shape
    config = ModelConfig(
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.num_attention_heads,
        ffn_hidden_size=shape.ffn_hidden_size,
    )
    model = GPT(config, vocab_size=shape.vocab_size, num_positions=shape.max_position_embeddings)
    model.load_state_dict(from_hf(reference.state_dict(), shape, model.padded_vocab_size), strict=True)
    with torch.no_grad():
        torch.testing.assert_close(slots.logits(TOKENS), model(TOKENS), atol=1e-5, rtol=1e-5)
