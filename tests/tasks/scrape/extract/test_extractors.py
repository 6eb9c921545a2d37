"""What every extractor promises, and quality floors on real pages where they are at hand."""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections import Counter
from pathlib import Path

import pytest
from warc_files import TEXT, article

from tasks.records import Page
from tasks.scrape.config import ExtractConfig
from tasks.scrape.extract import ExtractReason, extract_page
from tasks.scrape.extractors.contract import load_extractor
from tasks.scrape.extractors.names import EXTRACTOR_NAMES, MODULES
from tasks.scrape.extractors.nesting import flatten

URL = "http://example.com/harbour"


def page(html: str | bytes, kind: str = "text/html; charset=utf-8") -> Page:
    return Page("http://example.com/asked", URL, 200, kind, html.encode() if isinstance(html, str) else html)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError(f"an extractor asks the network: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize("name", EXTRACTOR_NAMES)
def test_main_text_title_and_language(name: str) -> None:
    document, reason = extract_page(page(article("Harbour notes")), ExtractConfig(extractor=name))
    assert reason is None and document is not None
    for sentence in TEXT:
        assert document.text.count(sentence) == 1
    assert "menu" not in document.text and "imprint" not in document.text
    if name == "best":
        assert document.extra.pop("branch") == "blocks"
    assert document.extra == {
        "title": "Harbour notes", "language": "en-GB", "requested_url": "http://example.com/asked", "extractor": name
    }  # fmt: skip
    assert document.url == URL


@pytest.mark.parametrize("name", EXTRACTOR_NAMES)
def test_same_page_same_result(name: str) -> None:
    config = ExtractConfig(extractor=name)
    first, other = (
        page(article("One")),
        page(article("Two", [*TEXT, "One more paragraph stands at the end of it all."])),
    )
    results = {extract_page(first, config)[0].to_json() for _ in range(4) if extract_page(other, config)}  # type: ignore[union-attr]
    assert len(results) == 1


@pytest.mark.parametrize("name", EXTRACTOR_NAMES)
@pytest.mark.parametrize(
    "html",
    ["<", "<html", "<p>", "<!--", "<script>", "&#0;&#xD800;", "<table><td>" * 50, "<a href='http://['>x</a>", "\x00", "]]>",
     "<html><head></head></html>", "<svg><math><p>a", "<p>" + "word " * 20_000, "<b>" * 3000 + "x"],
)  # fmt: skip
def test_odd_pages_end_in_a_document_or_a_reason(name: str, html: str) -> None:
    document, reason = extract_page(page(html), ExtractConfig(extractor=name))
    assert (document is None) != (reason is None)
    if document is not None:
        assert document.text.strip()
        document.to_json()


@pytest.mark.parametrize("name", EXTRACTOR_NAMES)
def test_deep_page(name: str) -> None:
    body = "".join(f"<p>{sentence}</p>" for sentence in TEXT)
    for depth in (200, 5000):
        document, reason = extract_page(
            page(f"<body>{'<div>' * depth}{body}{'</div>' * depth}"), ExtractConfig(extractor=name)
        )
        assert reason in (None, ExtractReason.EMPTY_TEXT)
        assert document is None or all(sentence in document.text for sentence in TEXT)
    assert flatten("<div>" * 5000).count("<div>") <= 151


def test_the_deep_page_comes_out_of_the_default_extractor() -> None:
    body = "".join(f"<p>{sentence}</p>" for sentence in TEXT)
    document, _ = extract_page(page(f"<body>{'<div>' * 5000}{body}{'</div>' * 5000}"), ExtractConfig())
    assert document is not None and all(sentence in document.text for sentence in TEXT)


REASONS = [
    (Page(URL, URL, 0, "", b""), ExtractReason.BAD_RECORD),
    (Page(URL, "", 200, "text/html", b"<p>x"), ExtractReason.BAD_RECORD),
    (Page(URL, URL, 404, "text/html", b"<p>x"), ExtractReason.HTTP_STATUS),
    (page(b"x" * 2000), ExtractReason.TOO_LARGE),
    (page(b" \n"), ExtractReason.EMPTY_TEXT),
    (page(b"%PDF-1.4 <html>"), ExtractReason.NOT_HTML),
    (page(b"<p>x</p>", "application/pdf"), ExtractReason.NOT_HTML),
    (page(b"just text", ""), ExtractReason.NOT_HTML),
    (page(b"<?xml version='1.0'?><rss></rss>", "text/xml"), ExtractReason.NOT_HTML),
    (page("<html><script>var a;</script></html>"), ExtractReason.EMPTY_TEXT),
    (page("<html><body><p>A few words only.</p></body></html>"), ExtractReason.TOO_SHORT),
]


@pytest.mark.parametrize(("bad", "reason"), REASONS)
def test_reasons(bad: Page, reason: ExtractReason) -> None:
    assert extract_page(bad, ExtractConfig(max_page_bytes=1000)) == (None, reason)


def test_error_of_a_parser_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(html: str, url: str) -> None:
        raise {"value": ValueError, "memory": MemoryError}["memory" if "memory" in html else "value"]

    module = __import__(f"tasks.scrape.extractors.{MODULES['resiliparse']}", fromlist=["EXTRACTORS"])
    monkeypatch.setitem(module.EXTRACTORS, "resiliparse", broken)
    config = ExtractConfig(extractor="resiliparse")
    assert extract_page(page("<p>x"), config) == (None, ExtractReason.PARSER_ERROR)
    assert extract_page(page("<p>memory"), config) == (None, ExtractReason.OUT_OF_MEMORY)


def test_xhtml_without_a_header_and_with_a_wrong_one() -> None:
    html = "<?xml version='1.0' encoding='iso-8859-1'?>" + article("Café")
    for kind in ("", "text/xml", "application/xhtml+xml", "application/octet-stream"):
        document, reason = extract_page(page(html, kind), ExtractConfig())
        assert document is not None, reason
        assert document.extra["title"] == "Café"


def test_unknown_extractor_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"Did you mean 'trafilatura'\? Known: beautifulsoup4, "):
        ExtractConfig(extractor="trafilature")


def shingle_score(name: str, folder: Path, num_pages: int) -> float:
    """F1 of 4-word shingles, mean precision and recall over the first pages of extraction-aeb."""
    truth = json.loads((folder / "ground-truth.json").read_text())
    precisions, recalls = [], []
    for key, item in sorted(truth.items())[:num_pages]:
        body = gzip.decompress((folder / "html" / f"{key}.html.gz").read_bytes())
        document, _ = extract_page(
            Page(item["url"], item["url"], 200, "text/html", body), ExtractConfig(extractor=name)
        )
        found, wanted = shingles(document.text if document else ""), shingles(item["articleBody"])
        hits = sum((found & wanted).values())
        if found:
            precisions.append(hits / found.total())
        recalls.append(hits / wanted.total())
    precision, recall = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    return 2 * precision * recall / (precision + recall)


def shingles(text: str) -> Counter[tuple[str, ...]]:
    words = re.findall(r"\w+", text)
    return Counter(tuple(words[place : place + 4]) for place in range(len(words) - 3))


@pytest.mark.parametrize(
    ("name", "num_pages", "floor"),
    [("trafilatura", 90, 0.96), ("resiliparse", 90, 0.905), ("newspaper3k", 25, 0.775),
     ("beautifulsoup4", 25, 0.8), ("trafilatura_full", 25, 0.955), ("trafilatura_precision", 25, 0.958)],
)  # fmt: skip
def test_quality_on_real_articles(shared_data: Path, name: str, num_pages: int, floor: float) -> None:
    score = shingle_score(name, shared_data / "extraction-aeb", num_pages)
    assert score >= floor, f"{name}: F1 {score:.4f}"


def test_quality_in_many_languages(shared_data: Path) -> None:
    """Snippets that must and must not be in the text, first 100 pages: F1 of the default extractor."""
    data = json.loads((shared_data / "extraction-trafi" / "evaldata.json").read_text())
    right = wrong = missed = 0
    for _, item in sorted(data.items())[:100]:
        body = gzip.decompress((shared_data / "extraction-trafi" / "html" / item["file"]).read_bytes())
        document, _ = extract_page(page(body, ""), ExtractConfig(min_text_characters=1))
        text = " ".join(document.text.split()) if document else ""
        for snippet in item["with"]:
            hit = " ".join(snippet.split()) in text
            right, missed = right + hit, missed + (not hit)
        wrong += sum(" ".join(snippet.split()) in text for snippet in item["without"])
    score = 2 * right / (2 * right + wrong + missed)
    assert score >= 0.92, f"F1 {score:.4f}"


def test_registry_is_complete() -> None:
    for name in EXTRACTOR_NAMES:
        assert callable(load_extractor(name))
