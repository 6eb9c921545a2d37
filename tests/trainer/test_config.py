"""Settings: sizes as published, refusals that name both numbers."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainer.config import ModelConfig, TrainConfig


def gpt(layers: int, hidden: int, heads: int) -> ModelConfig:
    return ModelConfig(num_layers=layers, hidden_size=hidden, num_attention_heads=heads)


@pytest.mark.parametrize(
    ("shape", "positions", "vocab_size", "number"),
    [
        ((12, 768, 12), 1024, 50257, 124_439_808),
        ((24, 1024, 16), 1024, 50257, 354_823_168),
        ((36, 1280, 20), 1024, 50257, 774_030_080),
        ((48, 1600, 25), 1024, 50257, 1_557_611_200),
        ((12, 768, 12), 1024, 32768, 111_008_256),
        ((32, 2560, 32), 2048, 50257, 2_651_553_280),
    ],
)
def test_numbers_of_parameters_are_the_published_ones(
    shape: tuple[int, int, int], positions: int, vocab_size: int, number: int
) -> None:
    assert gpt(*shape).num_parameters(vocab_size, positions) == number


def test_the_vocabulary_is_padded_as_in_megatron() -> None:
    model = ModelConfig()
    assert [model.padded_vocab_size(50257, size) for size in (1, 2, 4, 8)] == [50304, 50432, 50688, 51200]


@pytest.mark.parametrize(
    ("settings", "numbers"),
    [
        ({"global_batch_size": 10, "micro_batch_size": 2, "parallel": {"data_parallel_size": 4}}, ("10", "2", "4")),
        ({"model": {"num_layers": 6}, "parallel": {"pipeline_parallel_size": 4}}, ("6", "4")),
        (
            {"model": {"num_attention_heads": 6, "hidden_size": 24}, "parallel": {"tensor_parallel_size": 4}},
            ("6", "4"),
        ),
        ({"model": {"hidden_size": 10, "num_attention_heads": 4}}, ("10", "4")),
        ({"seq_length": 64, "model": {"max_position_embeddings": 32}}, ("64", "32")),
        ({"optimizer": {"learning_rate": 0.1, "min_learning_rate": 0.2}}, ("0.1", "0.2")),
        ({"split": "90,-5,5"}, ("90,-5,5",)),
        ({"split": "0,0,0"}, ("0,0,0",)),
        ({"split": "1,2,3,4"}, ("1,2,3,4",)),
        ({"split": "nine"}, ("nine",)),
    ],
)
def test_what_does_not_fit_is_refused_with_both_numbers(settings: dict[str, Any], numbers: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError) as caught:
        TrainConfig.model_validate(settings)
    message = caught.value.errors()[0]["msg"]
    assert all(number in message for number in numbers), message


def test_defaults_fill_in() -> None:
    train = TrainConfig(seq_length=256, model=gpt(2, 64, 4), micro_batch_size=2, global_batch_size=8, num_steps=5)
    assert (train.num_positions, train.model.ffn_size, train.num_micro_batches, train.num_samples) == (256, 256, 4, 40)


def test_every_setting_has_a_sentence() -> None:
    def descriptions(schema: Any) -> list[tuple[str, str]]:
        models = [schema, *schema.get("$defs", {}).values()]
        return [(name, field.get("description", "")) for model in models for name, field in model["properties"].items()]

    for name, text in descriptions(TrainConfig.model_json_schema()):
        assert text.endswith("."), f"{name}: {text!r}"
