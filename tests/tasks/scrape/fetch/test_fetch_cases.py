"""The adapters themselves: what they generate, and that they fail when the product would be wrong."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CASES = Path(__file__).parents[3] / "cases"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_adapters", CASES / "adapters" / "fetch_extract_fetch.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["fetch_adapters"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ADAPTER = _load()


@pytest.mark.parametrize(
    ("sentence", "plain"),
    [
        ("gzip of '<html>' + 'x'*1000", b"<html>" + b"x" * 1000),
        ("gzip of 2 MB of zeros", bytes(2_000_000)),
        ("gzip of '<p>' + 1 KiB of 'ab'", b"<p>" + b"ab" * 512),
    ],
)
def test_sentences_become_bodies(sentence: str, plain: bytes) -> None:
    assert gzip.decompress(ADAPTER.generated_body(sentence)) == plain
    shortened = ADAPTER.generated_body(sentence + ", last 10 bytes removed, Content-Length of the shortened body")
    assert shortened == ADAPTER.generated_body(sentence)[:-10]


def test_other_encodings_and_unknown_sentences() -> None:
    assert zlib.decompress(ADAPTER.generated_body("deflate of 'ab'*3")) == b"ababab"
    assert ADAPTER.generated_body("'ab'*3") == b"ababab"
    with pytest.raises(AssertionError, match="no way"):
        ADAPTER.generated_body("something nobody wrote down")


def _cases() -> list[dict[str, Any]]:
    path = CASES / "fetch_extract.json"
    if not path.exists():
        return []
    return [case for case in json.loads(path.read_text(encoding="utf-8")) if case["input"]["do"] in ADAPTER.ADAPTERS]


WRONG = {"status": "ok", "reason": "nothing_like_it", "documents_written": 7, "results": ["ok", "ok", "ok"]}


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case["id"])
def test_a_wrong_expectation_fails(case: dict[str, Any], tmp_path: Path) -> None:
    expect = {name: WRONG[name] for name in case["expect"] if name in WRONG and case["expect"][name] != WRONG[name]}
    if not expect:
        expect = {"requests_seen_by_server": 99}
    with pytest.raises(AssertionError):
        ADAPTER.ADAPTERS[case["input"]["do"]]({**case, "expect": expect}, tmp_path)


@pytest.mark.parametrize(
    ("limits", "serve", "expect", "message"),
    [
        ({"speed": 1}, {}, {}, "unknown limit"),
        ({}, {"colour": 1}, {}, "unknown keys"),
        ({}, {"body": "<p>x"}, {"colour": 1}, "unknown expectation"),
    ],
)
def test_unknown_words_fail_a_case(
    limits: dict[str, Any], serve: dict[str, Any], expect: dict[str, Any], message: str, tmp_path: Path
) -> None:
    case = {"input": {"do": "fetch", "serve": serve, "limits": limits}, "expect": expect}
    with pytest.raises(AssertionError, match=message):
        ADAPTER.adapter_fetch(case, tmp_path)


@pytest.mark.parametrize(
    ("limits", "serve", "expect"),
    [
        ({"max_bytes": 1000},
         {"generate": "'<html>' + 2 MB of spaces", "headers": {"Content-Type": "text/html"}},
         {"status": "failed", "reason": "too_large", "document_written": False}),
        ({"max_page_bytes": 1_000_000},
         {"generate": "gzip of 200 MB of zeros", "headers": {"Content-Type": "text/html", "Content-Encoding": "gzip"}},
         {"reason": "too_large", "max_seconds": 10, "max_rss_increase_mb": 100}),
        ({"total_seconds": 0.5},
         {"body": "<html>" * 100, "drip_seconds": 0.05, "headers": {"Content-Type": "text/html"}},
         {"reason": {"one_of": ["timeout", "deadline"]}, "max_seconds": 2}),
        ({"retries": 0}, {"reset": True}, {"reason": "connection_reset", "requests_seen_by_server": 1}),
        ({}, {"status": 302, "headers": {"Location": "http://169.254.169.254/latest"}}, {"reason": "private_host"}),
        ({}, {"status": 404}, {"reason": "http_404", "requests_seen_by_server": 1}),
        ({}, {"body": "<html>" * 50, "close_after_bytes": 20, "headers": {"Content-Type": "text/html"}},
         {"reason": "truncated"}),
    ],
)  # fmt: skip
def test_cases_of_the_same_kinds(
    limits: dict[str, Any], serve: dict[str, Any], expect: dict[str, Any], tmp_path: Path
) -> None:
    ADAPTER.adapter_fetch({"input": {"do": "fetch", "serve": serve, "limits": limits}, "expect": expect}, tmp_path)
