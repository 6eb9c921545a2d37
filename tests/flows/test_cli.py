"""What the command line refuses before any work, in one line and with exit code 2, and what it shows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows import cli
from flows.config import build_config

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
        (["--until", "tokenise"], ["until", "'tokenise'", "Did you mean 'tokenize'"]),
        (["--set", "filter.allow_private_hosts=h:80"], ["it takes a list", '["h:80"]']),
        (["--only", "samples"], ["only", "Did you mean 'sample'"]),
        (["--refresh", "fetsh"], ["refresh", "Did you mean 'fetch'"]),
        (["--set", "train.num_steps=-3"], ["train.num_steps", "-3", "greater"]),
        (["--set", "train.num_steps"], ["--set", "a.b=value"]),
        (["--set", "train.model.hidden_size=97"], ["hidden_size", "97"]),
        (["--set", "train.optimizer.learning_rate=inf"], ["train.optimizer.learning_rate", "finite"]),
        (["--set", "clean.min_tokens=3\nfoo=1"], ["--set", "more than one thing"]),
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
    assert "names no folder" in refused("run", "smoke", "--set", "store=' '", "--urls", "x")
    assert "no file is named" in refused("run", "smoke", *store, "--urls", "")
    assert "cannot be looked up" in refused("run", "smoke", *store, "--urls", "~nobody-of-that-name/x")
    (tmp_path / "bad.toml").write_text("a = " + "[" * 5000)
    assert "not valid TOML" in refused("run", str(tmp_path / "bad.toml"), *store, "--urls", "x")
    assert "empty" in refused("run", "smoke", *store, "--urls", str(tmp_path / "empty.txt"))
    assert ".bin does not exist" in refused("run", "smoke", *store, "--corpus", str(tmp_path / "corpus"))
    assert "config.json" in refused("sample", str(tmp_path))


def test_a_dry_run_names_the_stages_and_begins_nothing(url_list: Path, tmp_path: Path) -> None:
    arguments = ["run", "smoke", "--urls", str(url_list), "--store", str(tmp_path / "store"), "--until", "extract"]
    result = CliRunner().invoke(cli.app, [*arguments, "--dry-run", "--json"])
    assert result.exit_code == 0, result.output
    stages = json.loads(result.stdout)["stages"]
    assert [stage["stage"] for stage in stages] == ["filter", "fetch", "extract"]
    assert {stage["outlook"] for stage in stages} == {"would run"}
    assert not (tmp_path / "store").exists()


def test_names_that_look_like_markup_are_names(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a [/red] b"
    folder.mkdir(parents=True)
    (folder / "urls.txt").write_text("http://example.com/story\n")
    out = folder / "out [bold]"
    arguments = ["stage", "filter", "--in", str(folder / "urls.txt"), "--out", str(out)]
    result = CliRunner().invoke(cli.app, [*arguments, "--store", str(folder / "store")])
    assert result.exit_code == 0, result.output
    assert str(out) in capfd.readouterr().out + result.stdout
    from rich.console import Console

    from flows.display import Display

    Display(Console()).stage("filter").note("[/x] again")
    assert "[/x] again" in capfd.readouterr().out


def test_what_was_left_out_of_a_user_s_own_rows_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = "The harbour master wrote the number of the lamp in the green book. " * 4
    (tmp_path / "own.jsonl").write_text(json.dumps({"text": text}) + '\n[1]\n{"text": 3}\n')
    arguments = ["stage", "clean", "--in", str(tmp_path / "own.jsonl"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(
        cli.app,
        [*arguments, "--store", str(tmp_path / "store"), "--set", "min_tokens=8", "--set", "resources.workers=1"],
    )
    assert result.exit_code == 0, result.output
    assert "adopted: 1 documents" in (said := capfd.readouterr().out + result.stdout) and "2 dropped" in said


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_that_is_told_to_end_says_so(tmp_path: Path, number: signal.Signals, exit_code: int) -> None:
    (tmp_path / "urls.txt").write_text("http://127.0.0.1:9/story\n")
    child = subprocess.Popen(
        [sys.executable, "-c", "import time, flows.cli as cli\n"
         "cli.app.command('wait')(lambda: cli.guarded(lambda: (print('here', flush=True), time.sleep(60))))\ncli.main()",
         "wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == "here\n"
    child.send_signal(number)
    _, said = child.communicate(timeout=30)
    assert child.returncode == exit_code and "stopped" in said and "Traceback" not in said


def test_damaged_files_and_full_disks_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "c.idx").write_bytes(b"MMIDIDX")
    (tmp_path / "c.bin").write_bytes(b"")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("[]")
    for path in ("c.idx", "model"):
        result = CliRunner().invoke(cli.app, ["inspect", str(tmp_path / path)])
        assert result.exit_code == 1 and "damaged" in result.stderr, result.output
    command = [sys.executable, "-m", "flows.cli", "inspect", "--json", str(tmp_path / "ok.jsonl")]
    (tmp_path / "ok.jsonl").write_text('{"text": "x"}\n')
    with Path("/dev/full").open("w") as full:
        child = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in child.stderr and "space" in child.stderr and child.returncode == 1


def test_a_server_that_does_not_answer_is_named(
    url_list: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    message = refused("run", "smoke", "--urls", str(url_list), "--store", str(tmp_path / "store"))
    assert "PREFECT_API_URL" in message and "unset" in message


def test_what_the_filter_lets_through_the_fetcher_may_ask() -> None:
    given = {"filter": {"allow_private_hosts": ["127.0.0.1:80"]}}
    assert build_config(given).fetching.allow_private_hosts == ("127.0.0.1:80",)
    own = build_config(given | {"fetch": {"allow_private_hosts": ["10.0.0.1"]}})
    assert own.fetching.allow_private_hosts == ("10.0.0.1",)


def test_a_reader_that_has_seen_enough_is_no_fault(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"text": "x" * 300, "url": f"http://example.com/{n}"}) + "\n" for n in range(400))
    (tmp_path / "own.jsonl").write_text(rows)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "flows.cli", "inspect", "--json", str(tmp_path / "own.jsonl")]
    child = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert child.stderr == "" and child.returncode == 1
