from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tasks.configuration import Resources, StageConfig, plain
from tasks.errors import UserError, nearest


class ListConfig(StageConfig):
    """Settings with a list file."""

    blocked: Path | None = None
    """A file of blocked hosts."""
    limit: int | float | bool | None = 1
    """Any number."""


def test_a_path_counts_by_its_content(tmp_path: Path) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("a")
    two.write_text("a")
    assert ListConfig(blocked=one).meaning() == ListConfig(blocked=two).meaning()
    two.write_text("b")
    assert ListConfig(blocked=one).meaning() != ListConfig(blocked=two).meaning()


def test_a_missing_path_is_refused_by_field(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="blocked = '.*nowhere': there is no such file"):
        ListConfig(blocked=tmp_path / "nowhere").meaning()


def test_resources_are_no_part_of_the_meaning() -> None:
    assert ListConfig(resources=Resources(workers=1)).meaning() == ListConfig(resources=Resources(workers=9)).meaning()


def test_values_count_by_value_and_type() -> None:
    import json

    texts = {json.dumps(plain(value, "x")) for value in (1, True, 1.0, "1", None)}
    assert len(texts) == 5
    assert plain({"a": 1, "b": 2}, "x") == plain({"b": 2, "a": 1}, "x")


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(TypeError, match="x: object cannot be part of a cache key"):
        plain(object(), "x")


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        ListConfig.model_validate({"blokced": "x"})


def test_every_field_has_its_sentence() -> None:
    assert ListConfig.model_fields["blocked"].description == "A file of blocked hosts."


def test_the_nearest_name_is_said() -> None:
    assert nearest("tain", ["train", "clean"]).startswith("Did you mean 'train'?")
