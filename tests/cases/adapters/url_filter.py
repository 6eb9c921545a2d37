"""Adapter of the cases `filter_urls`: the stage itself, on a list of its own in a store of its own.

A setting, a sentence or an expectation that is not known here fails the case: nothing passes unlooked at.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tasks.adopt import adopt_urls
from tasks.errors import StageError
from tasks.progress import SilentProgress, StageReport
from tasks.scrape.config import FilterConfig
from tasks.scrape.filter_reasons import FilterReason
from tasks.scrape.filter_stage import FILTER
from tasks.scrape.filter_urls import UrlFilter
from tasks.store import ArtifactStore

Case = dict[str, Any]
PROJECT = Path(__file__).resolve().parents[3]
DATA_KEYS = {"do", "lines", "lines_json", "file_bytes_hex", "generate", "environments", "also_run_with"}
LIST_KEYS = {"blocked_domains", "blocked_extensions", "blocked_words"}
SETTINGS = {
    "max_per_domain": "max_urls_per_domain", "max_urls_per_domain": "max_urls_per_domain",
    "max_length": "max_url_characters", "max_url_length": "max_url_characters",
    "min_length": "min_url_characters", "min_url_length": "min_url_characters",
    "allow_private_hosts": "allow_private_hosts", "preset": "preset",
}  # fmt: skip
REASONS = {reason.value for reason in FilterReason}


class Run:
    """One run of the stage: what came out, the report, and everything that was written or said."""

    def __init__(self, data: bytes, config: FilterConfig, folder: Path) -> None:
        folder.mkdir()
        (folder / "list.txt").write_bytes(data)
        store, progress = ArtifactStore(folder / "store"), SilentProgress()
        adopted = adopt_urls(store, [folder / "list.txt"])
        self.said = ""
        try:
            made = store.run(FILTER, config, [adopted], progress)
        except StageError as error:
            self.output, self.report, self.said = b"", None, str(error)
        else:
            report = store.manifest_of(made).report
            assert report is not None
            self.output, self.report = (store.path_of(made) / "urls.txt").read_bytes(), report
            self.said = (store.path_of(made) / "manifest.json").read_text()
        self.said += "\n".join(progress.notes)
        self.num_read = adopted.num_urls
        # as a reader of one record a line sees it
        self.kept = self.output.decode().split("\n")[:-1]

    def checked_report(self) -> StageReport:
        assert self.report is not None, f"nothing was kept: {self.said}"
        return self.report


def _lines(given: Case) -> list[str]:
    lines = given.get("lines", given.get("lines_json"))
    if lines is None and "generate" in given:
        lines = _generated(given["generate"])
    if lines is None:
        lines = [line.strip() for line in bytes.fromhex(given["file_bytes_hex"]).decode("utf-8-sig").split("\n")]
        lines = [line for line in lines if line]
    return list(lines)


def _generated(sentence: str) -> list[str]:
    """ "N lines URL0 ... [/]URLn[, each written twice|three times[, second copy after all first copies]]"."""
    match = re.match(r"(\d+) lines (\S*?)(\d+) \.\.\. \S*?(\d+)(?:,\s*(.*))?$", sentence.strip())
    assert match is not None, f"unknown generator: {sentence}"
    num, prefix, first, last, more = match.groups()
    once = [f"{prefix}{number}" for number in range(int(first), int(last) + 1)]
    assert len(once) == int(num)
    if not more:
        return once
    times = re.match(r"each (?:written )?(twice|(?:three|3) times)", more)
    assert times is not None, f"unknown generator: {sentence}"
    copies = 2 if times.group(1) == "twice" else 3
    rest = more[times.end() :].strip(" ,.")
    if not rest or "after all" in rest:
        return once * copies
    assert "right after" in rest or "next to" in rest or "adjacent" in rest, f"unknown generator: {sentence}"
    return [line for line in once for _ in range(copies)]


def _data(given: Case) -> bytes:
    if "file_bytes_hex" in given:
        return bytes.fromhex(given["file_bytes_hex"])
    return "".join(f"{line}\n" for line in _lines(given)).encode("utf-8", "surrogatepass")


def _config(given: Case, folder: Path) -> FilterConfig:
    settings: dict[str, Any] = {}
    for name, value in given.items():
        if name in LIST_KEYS:
            path = folder / f"{name}.txt"
            path.write_text("".join(f"{entry}\n" for entry in value), encoding="utf-8")
            settings[f"{name}_file"] = path
        elif name in ("block_file", "block_file_text", "block_file_hex"):
            path = folder / "block_file.txt"
            path.write_bytes(bytes.fromhex(value) if name.endswith("hex") else value.encode())
            settings["blocked_domains_file"] = path
        elif name in SETTINGS:
            settings[SETTINGS[name]] = value
        else:
            assert name in DATA_KEYS, f"unknown setting of the case: {name}"
    return FilterConfig(**settings)


def _reason_alone(config: FilterConfig, line: str) -> str | None:
    """Why this line is dropped when it stands alone; None when it is not."""
    reason = UrlFilter(config).judge(line.encode("utf-8", "replace").decode()).reason
    return None if reason is None else reason.value


def _check_dropped(line: str, reason: str | None, config: FilterConfig, run: Run) -> None:
    assert line not in run.kept, f"{line!r} was kept"
    found = _reason_alone(config, line)
    if found is None:  # it is no bad line: it must be a duplicate or one too many of its site
        dropped = run.checked_report().dropped
        assert any(name.startswith("duplicate") or name == "domain_cap" for name in dropped), f"no reason for {line!r}"
    elif reason in REASONS:
        assert found == reason, f"{line!r}: {found}, not {reason}"


def adapter_filter_urls(case: Case, tmp_path: Path) -> None:
    """Run the stage over the lines and look at every expectation."""
    given, expect = case["input"], dict(case["expect"])
    expect.pop("applies_if", None)  # word lists, caps and the like: the product has them all
    config, lines = _config(given, tmp_path), _lines(given)
    run = Run(_data(given), config, tmp_path / "run")
    also = given.get("also_run_with")
    if expect.pop("same_result_for_also_run_with", False):
        (tmp_path / "also").mkdir()
        settings = {name: value for name, value in given.items() if name in DATA_KEYS} | also
        again = Run(_data(given), _config(settings, tmp_path / "also"), tmp_path / "also-run")
        assert again.output == run.output
    elif also:
        raise AssertionError("also_run_with without same_result_for_also_run_with")
    if expect.pop("byte_identical_across_environments", False):
        outputs = {_output_under(environment, _data(given), tmp_path) for environment in given["environments"]}
        assert outputs == {run.output}
    for name, value in expect.items():
        _check(name, value, run, config, lines)
    if run.report is not None:
        run.report.check_balance()
        assert run.report.num_in == run.num_read


def _check(name: str, value: Any, run: Run, config: FilterConfig, lines: list[str]) -> None:
    kept = run.kept
    num_dropped = run.num_read - len(kept)
    if name == "kept":
        assert kept == value
    elif name == "kept_is_one_of":
        assert kept in value
    elif name == "kept_must_include":
        assert set(value) <= set(kept)
    elif name in ("dropped", "dropped_must_include"):
        for line in value:
            _check_dropped(line, value[line] if isinstance(value, dict) else None, config, run)
    elif name == "dropped_all_others":
        for line in lines:
            if line not in kept:
                _check_dropped(line, value, config, run)
    elif name == "dropped_count":
        assert num_dropped == value
    elif name in ("output_lines", "kept_count"):
        assert len(kept) == value
    elif name == "one_record_per_output_line":
        assert all(len(line.splitlines()) == 1 for line in kept) and run.output.endswith(b"\n")
    elif name == "read":
        assert run.num_read == value and run.checked_report().num_in == value
    elif name == "blank_lines_are_not_records":
        assert value is True and all(line.strip() for line in kept)
    elif name == "no_output_or_log_contains":
        for text in value:
            assert text not in run.said and text.encode() not in run.output
    elif name == "order":
        assert value == "first seen"
        places = [lines.index(line) for line in kept]
        assert places == sorted(places)
    elif name == "must_share_one_record":
        for group in value:
            keys = {UrlFilter(config).judge(lines[index]).key for index in group}
            assert len(keys) == 1 and "" not in keys
            assert sum(lines[index] in kept for index in group) == 1
    elif name == "must_stay_separate":
        for group in value:
            keys = [UrlFilter(config).judge(lines[index]).key for index in group]
            assert len(set(keys)) == len(group) and "" not in keys
    elif name == "first_seen_is_kept":
        first: dict[str, str] = {}
        for line in lines:
            verdict = UrlFilter(config).judge(line)
            if verdict.reason is None:
                first.setdefault(verdict.key, verdict.url)
        assert kept == list(first.values())
    elif name == "exit_code":
        assert value == (0 if run.report is not None else 1)
    else:
        raise AssertionError(f"unknown expectation: {name}")


SCRIPT = """
import sys
from pathlib import Path
from tasks.adopt import adopt_urls
from tasks.scrape.config import FilterConfig
from tasks.scrape.filter_stage import FILTER
from tasks.store import ArtifactStore
store = ArtifactStore(Path(sys.argv[2]))
made = store.run(FILTER, FilterConfig(), [adopt_urls(store, [sys.argv[1]])])
sys.stdout.buffer.write((store.path_of(made) / "urls.txt").read_bytes())
"""


def _output_under(environment: dict[str, str], data: bytes, folder: Path) -> bytes:
    name = re.sub(r"\W+", "-", json.dumps(environment))
    (folder / f"list{name}.txt").write_bytes(data)
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder / f"list{name}.txt"), str(folder / f"store{name}")],
        check=True, stdout=subprocess.PIPE, cwd=PROJECT, env={**os.environ, **environment},
    ).stdout  # fmt: skip


ADAPTERS = {"filter_urls": adapter_filter_urls}
