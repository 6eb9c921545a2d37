"""What the command line refuses before any work, in one line and with exit code 2, and what it shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows import cli

EXIT_USER_ERROR = 2


@pytest.fixture
def url_list(tmp_path: Path) -> Path:
    path = tmp_path / "urls.txt"
    path.write_text("http://example.com/story\n")
    return path


@pytest.fixture(autouse=True)
def one_line_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setattr(cli, "error_console", Console(stderr=True, soft_wrap=True, width=500))


def refused(*arguments: str) -> str:
    """The message with which the command line refuses `arguments`."""
    result = CliRunner().invoke(cli.app, list(arguments))
    assert result.exit_code == EXIT_USER_ERROR, result.output
    return result.stderr


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--set", "train.optimizer.learning_rat=1"], ["train.optimizer.learning_rat", "'learning_rate'"]),
        (["--set", "trian.num_steps=1"], ["trian", "'train'"]),
        (["--until", "tokenise"], ["until", "'tokenise'", "'tokenize'"]),
        (["--only", "samples"], ["only", "'sample'"]),
        (["--refresh", "fetsh"], ["refresh", "'fetch'"]),
        (["--set", "train.num_steps=-3"], ["train.num_steps", "-3", "greater"]),
        (["--set", "train.num_steps"], ["--set", "a.b=value"]),
        (["--set", "train.model.hidden_size=97"], ["hidden_size", "97"]),
        (["--documents", "more.jsonl"], ["urls and documents", "keep one"]),
    ],
)
def test_wrong_settings_are_refused_with_path_value_and_nearest_name(
    url_list: Path, tmp_path: Path, arguments: list[str], parts: list[str]
) -> None:
    message = refused("run", "smoke", "--urls", str(url_list), "--store", str(tmp_path / "store"), *arguments)
    for part in parts:
        assert part in message, message
    assert message.count("\n") == 1, "one line"
    assert not (tmp_path / "store").exists(), "nothing was begun"


def test_inputs_that_are_not_there_or_empty_are_refused(tmp_path: Path) -> None:
    store = ["--store", str(tmp_path / "store")]
    assert "nothing to start from" in refused("run", "smoke", *store)
    assert "'smoke'" in refused("run", "smok", *store, "--urls", "x")
    assert "missing.txt" in refused("run", "smoke", *store, "--urls", str(tmp_path / "missing.txt"))
    (tmp_path / "empty.txt").write_text("\n \n")
    assert "empty" in refused("run", "smoke", *store, "--urls", str(tmp_path / "empty.txt"))
    assert ".bin does not exist" in refused("run", "smoke", *store, "--corpus", str(tmp_path / "corpus"))
    assert "config.json" in refused("sample", str(tmp_path))


def test_a_dry_run_names_the_stages_and_begins_nothing(url_list: Path, tmp_path: Path) -> None:
    arguments = ["run", "smoke", "--urls", str(url_list), "--store", str(tmp_path / "store"), "--until", "extract"]
    result = CliRunner().invoke(cli.app, [*arguments, "--dry-run", "--json"])
    assert result.exit_code == 0, result.output
    assert [stage["stage"] for stage in json.loads(result.stdout)["stages"]] == ["filter", "fetch", "extract"]
    assert not (tmp_path / "store").exists()
