from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.tokenize.config import TokenizeConfig, TokenizeResources, VocabularyConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "gtp2"}, "Did you mean 'gpt2'.*Known: bpe, gpt2, huggingface"),
        ({"name": "gpt2", "vocab_size": 4096}, "vocab_size belongs to name = 'bpe', and the name is 'gpt2'"),
        ({"name": "bpe", "path": Path("x")}, "path belongs to name = 'huggingface'"),
        ({"name": "gpt2", "vocab_path": Path("x")}, "vocab_path and merges_path belong together"),
        ({"name": "huggingface"}, "needs path"),
        ({"name": "bpe", "vocab_size": 256}, "greater than 256"),
        ({"name": "bpe", "vocabsize": 300}, "Extra inputs are not permitted"),
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        VocabularyConfig(**values)


@pytest.mark.parametrize("values", [{}, {"name": "bpe", "vocab_size": 400}, {"name": "huggingface", "path": "folder"}])
def test_a_config_survives_being_written_down(values: dict[str, Any]) -> None:
    config = VocabularyConfig(**values)
    assert VocabularyConfig.model_validate_json(config.model_dump_json()) == config


def test_engines_and_checks_are_no_part_of_the_meaning() -> None:
    one = TokenizeConfig(resources=TokenizeResources(engine="tokenizers", checked_fraction=0.5, workers=1))
    assert one.meaning() == TokenizeConfig().meaning() == {"append_eod": True, "special_tokens": "text"}


@pytest.mark.parametrize("model", [VocabularyConfig, TokenizeConfig, TokenizeResources])
def test_every_setting_has_its_sentence(model: type[VocabularyConfig]) -> None:
    assert all(field.description for field in model.model_fields.values())
