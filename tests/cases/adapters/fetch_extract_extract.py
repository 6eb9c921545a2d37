"""Adapters of the cases `extract`, `extract_repeat` and `install_and_import`.

Pages go the product's own way: the process with limits that the stage uses, with the default settings. A key, a
sentence or an expectation that is not known here fails the case: nothing passes unlooked at.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tasks.records import Document, Page
from tasks.scrape.config import ExtractConfig
from tasks.scrape.extract import ExtractReason
from tasks.scrape.page_process import PageProcess

Case = dict[str, Any]
PROJECT = Path(__file__).resolve().parents[3]
URL = "http://example.com/page"
SENTENCES = (
    "The harbour master opened the gate at dawn and counted every boat twice. By noon the market was full of people. "
    "Nobody remembered who had lost the small brass key."
)
PAGE_KEYS = {"do", "page", "html", "html_json", "body_hex", "generate", "encode", "variants", "content_type", "headers",
             "meta_charset", "extractor", "times", "in_one_process", "bom"}  # fmt: skip


def plain_html(page: dict[str, Any], meta: str = "") -> str:
    """The page that a case describes by title and paragraphs."""
    paragraphs = "".join(f"<p>{html.escape(text, quote=False)}</p>" for text in page["paragraphs"])
    title = html.escape(page.get("title", ""))
    return f"<html><head>{meta}<title>{title}</title></head><body><article><h1>{title}</h1>{paragraphs}</article></body></html>"


def generated(sentence: str) -> list[str]:
    """ "<html> + '<div>'*N + <p>three sentences</p> + '</div>'*N for N in 200, 300": one page for each number."""
    recipe, _, numbers = sentence.partition(" for N in ")
    counts = [int(number.replace("_", "")) for number in re.findall(r"\d[\d_]*", numbers)] or [1]
    pages = []
    for count in counts:
        text = ""
        for part in recipe.split(" + "):
            repeated = re.fullmatch(r"""\s*(['"])(.*)\1\s*\*\s*(N|\d+)\s*""", part)
            if repeated:
                text += repeated.group(2) * (count if repeated.group(3) == "N" else int(repeated.group(3)))
            else:
                text += part.strip().strip("'\"")
        assert "three sentences" in text or "sentences" in text, f"unknown generator: {sentence}"
        pages.append(re.sub(r"(?:three )?sentences", SENTENCES, text, count=1))
    return pages


def pages_of(given: Case) -> Iterator[tuple[str, bytes]]:
    """(Content-Type, body) of every page or variant of a case."""
    unknown = set(given) - PAGE_KEYS
    assert not unknown, f"unknown keys of the case: {sorted(unknown)}"
    variants = given.get("variants") or [{}]
    for variant in variants:
        settings = {**given, **variant}
        unknown = set(variant) - {"content_type", "meta_charset", "encode", "headers", "meta_http_equiv", "bom"}
        assert not unknown, f"unknown keys of a variant: {sorted(unknown)}"
        headers = {name.lower(): value for name, value in settings.get("headers", {}).items()}
        kind = settings.get("content_type", headers.get("content-type", "text/html"))
        encoding = settings.get("encode", "utf-8")
        meta = f'<meta charset="{settings["meta_charset"]}">' if settings.get("meta_charset") else ""
        if settings.get("meta_http_equiv"):
            meta = f'<meta http-equiv="Content-Type" content="{settings["meta_http_equiv"]}">'
        if "body_hex" in given:
            yield kind, bytes.fromhex(given["body_hex"])
            continue
        if "page" in given:
            texts = [plain_html(given["page"], meta)]
        elif "generate" in given:
            texts = generated(given["generate"])
        else:
            texts = [given["html"] if "html" in given else given["html_json"]]
        for text in texts:
            mark = "\ufeff" if settings.get("bom") else ""
            yield kind, (mark + text).encode(encoding, "surrogatepass" if encoding.startswith("utf") else "strict")


class Outcome:
    """What came of one page."""

    def __init__(self, process: PageProcess, kind: str, body: bytes) -> None:
        started = time.monotonic()
        result = process.extract(Page(URL, URL, 200, kind, body))
        self.seconds = time.monotonic() - started
        self.document: Document | None = result[0]
        self.reason = result[1]

    @property
    def text(self) -> str:
        return self.document.text if self.document else ""


def outcomes_of(given: Case) -> list[Outcome]:
    process = PageProcess(ExtractConfig(**({"extractor": given["extractor"]} if "extractor" in given else {})))
    try:
        process.extract(Page(URL, URL, 200, "text/html", f"<p>{SENTENCES}</p>".encode()))  # the start is not measured
        times = int(given.get("times", 1))
        return [Outcome(process, kind, body) for kind, body in pages_of(given) for _ in range(times)]
    finally:
        process.close()


def adapter_extract(case: Case) -> None:
    """Every page of the case, against every expectation."""
    outcomes = outcomes_of(case["input"])
    for name, value in case["expect"].items():
        for outcome in outcomes:
            _check(name, value, outcome)


def _check(name: str, value: Any, outcome: Outcome) -> None:
    text, reason = outcome.text, outcome.reason
    if name in ("every_variant_contains", "contains"):
        for part in value:
            assert part in text, f"{part!r} not in {text!r} ({reason})"
    elif name == "contains_once":
        for part in value:
            assert text.count(part) == 1, f"{part!r} {text.count(part)} times in {text!r} ({reason})"
    elif name in ("never_contains", "not_contains"):
        for part in value:
            assert part not in text, f"{part!r} in {text!r}"
    elif name == "no_characters_in":
        row = outcome.document.to_json().decode() if outcome.document else ""
        assert not set(value) & set(text), f"control characters in {text!r}"
        assert not any(f"\\u{ord(character):04x}" in row for character in value), row
    elif name == "exception":
        assert value is None and reason not in (ExtractReason.PARSER_ERROR, ExtractReason.PARSER_CRASH), reason
    elif name == "each":
        failed = value.partition("failed:")[2].strip(" .")
        if outcome.document is None:
            assert failed and str(reason) == failed, f"{reason}, where the case says: {value}"
        else:
            assert "returned" in value and SENTENCES in " ".join(text.split()), text
    elif name == "never":
        for word in [value] if isinstance(value, str) else value:
            _check_never(word, outcome)
    elif name in ("max_seconds_each", "max_seconds"):
        assert outcome.seconds <= value, f"{outcome.seconds:.1f} s"
    elif name == "status":
        assert value == ("ok" if outcome.document else "failed"), reason
    elif name == "reason":
        assert str(reason) == value
    elif name == "title":
        assert outcome.document is not None and outcome.document.extra.get("title") == value
    else:
        raise AssertionError(f"unknown expectation: {name}")


def _check_never(word: str, outcome: Outcome) -> None:
    if word in ("crash", "hang", "timeout"):
        assert outcome.reason not in (ExtractReason.PARSER_CRASH, ExtractReason.TIMEOUT), outcome.reason
    elif word in ("recursion error", "exception", "error"):
        assert outcome.reason is not ExtractReason.PARSER_ERROR
    elif word == "success with empty text":
        assert outcome.document is None or outcome.text.strip()
    elif word == "empty":
        assert outcome.text.strip(), outcome.reason
    else:
        raise AssertionError(f"unknown expectation: never {word}")


def adapter_extract_repeat(case: Case) -> None:
    """The same page several times in one process."""
    assert case["input"].get("in_one_process", True), "only one process is known"
    outcomes = outcomes_of(case["input"])
    for name, value in case["expect"].items():
        if name == "distinct_results":
            results = {(outcome.document and outcome.document.to_json(), outcome.reason) for outcome in outcomes}
            assert len(results) == value, results
        else:
            for outcome in outcomes:
                _check(name, value, outcome)


def _requirements() -> list[Requirement]:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [Requirement(text) for text in project["dependencies"]]


def _installed_closure() -> set[str]:
    """Distributions that the project's requirements lead to for a pip that compares names of extras letter by letter.

    pip before 24 does not find the extra `html-clean` when `lxml[html_clean]` is asked for, and leaves it out.
    """
    found: set[str] = set()
    waiting = [(requirement, frozenset(requirement.extras)) for requirement in _requirements()]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement, extras = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        known = frozenset(distribution.metadata.get_all("Provides-Extra") or ())
        for text in distribution.requires or ():
            inner = Requirement(text)
            chosen = [{"extra": extra} for extra in extras & known] or [{"extra": ""}]
            if inner.marker is None or any(inner.marker.evaluate(environment) for environment in chosen):
                waiting.append((inner, frozenset(inner.extras)))
    return found


IMPORTED = {"newspaper3k": "newspaper", "newspaper4k": "newspaper", "lxml": "lxml.etree", "beautifulsoup4": "bs4"}


def adapter_install_and_import(case: Case) -> None:
    """What any network would be needed for is looked up instead: which packages each pip would install.

    The packages of this environment were installed from the pinned file; here every named one must import in a fresh
    interpreter, and everything that the imports need must follow from the requirements even for an old pip.
    """
    given, expect = case["input"], dict(case["expect"])
    unknown = set(given) - {"do", "packages", "pip", "python"}
    assert not unknown, f"unknown keys of the case: {sorted(unknown)}"
    closure = _installed_closure()
    names = []
    for entry in given["packages"]:
        choices = [canonicalize_name(choice) for choice in re.split(r"\s+or\s+", entry)]
        chosen = [choice for choice in choices if choice in closure]
        assert chosen, f"none of {choices} follows from the requirements"
        names.append(chosen[0])
    if expect.pop("import_ok", False):
        modules = ", ".join(IMPORTED.get(name, name.replace("-", "_")) for name in names)
        done = subprocess.run([sys.executable, "-c", f"import {modules}"], capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stderr
        assert "lxml-html-clean" in closure, "newspaper3k and justext import lxml.html.clean, which left lxml at 5.2"
    if expect.pop("documented_install_command_works", False):
        _check_install_command(names)
    assert not expect, f"unknown expectations: {sorted(expect)}"


def _check_install_command(names: list[str]) -> None:
    """The command of the README is `make`, which installs the project from the pins; the pins hold every package."""
    assert "make demo" in (PROJECT / "README.md").read_text(encoding="utf-8")
    steps = subprocess.run(["make", "-n", "-B", "demo"], cwd=PROJECT, capture_output=True, text=True)
    assert steps.returncode == 0, steps.stderr
    assert "pip install" in steps.stdout and "-c constraints.txt" in steps.stdout
    pins = (PROJECT / "constraints.txt").read_text(encoding="utf-8").lower().replace("_", "-")
    for name in [*names, "lxml-html-clean"]:
        match = re.search(rf"^{re.escape(name)}==(\S+)", pins, re.MULTILINE)
        assert match, f"{name} is not pinned"
        assert match.group(1) == metadata.version(name), f"{name} is {metadata.version(name)}, pinned {match.group(1)}"


ADAPTERS = {
    "extract": adapter_extract,
    "extract_repeat": adapter_extract_repeat,
    "install_and_import": adapter_install_and_import,
}
