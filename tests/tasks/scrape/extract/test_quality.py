"""Quality gate of our own extractor: pages that are always here, and floors on real pages where they are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.extract.__main__ import score_articles, score_snippets
from tasks.records import Page
from tasks.scrape.config import ExtractConfig, ExtractResources
from tasks.scrape.extract import ExtractReason, extract_page
from tasks.scrape.extractors.box_names import Verdict, verdict_of
from tasks.scrape.extractors.contract import load_extractor
from tasks.scrape.extractors.page_blocks import Kind, page_blocks, parse
from tasks.scrape.page_process import PageProcess

URL = "http://example.com/ferry"
FIRST = "The ferry leaves the quay at seven in the morning, and by eight the whole village knows who was on board."
SECOND = (
    "Nobody has counted the steps to the lighthouse, although every guide book gives a number and each number differs."
)
THIRD = "In winter the keeper writes letters to his sister, who answers each of them within a week and never asks why."
BODY = "".join(f"<p>{text}</p>" for text in (FIRST, SECOND, THIRD))
MENU = "<li><a href='/{0}'>Menu entry number {0}</a></li>"
FRAME = (
    "<html><head><title>The ferry at seven - Coast Paper</title></head><body>"
    "<nav><ul>" + "".join(MENU.format(n) for n in range(8)) + "</ul></nav>{}<footer><p>Imprint of the paper, "
    "which nobody reads, with an address and a telephone number.</p></footer></body></html>"
)
PAGES = {
    "plain": BODY,
    "article": f"<article><h1>The ferry at seven</h1>{BODY}</article>",
    "divs without names": f"<div><div><div>{BODY}</div></div><div><a href='/x'>BESIDE</a></div></div>",
    "side bar": f"<div class='sidebar'><p>BESIDE {SECOND} Again.</p></div><div class='post-content'>{BODY}</div>",
    "comments": f"<div class='entry-content'>{BODY}</div><ol class='commentlist'><li>BESIDE I liked it, says one.</li></ol>",
    "share buttons": f"<article>{BODY}<div class='share-buttons'>BESIDE share it with friends</div></article>",
    "related": f"<article>{BODY}<section class='related-posts'><h3>BESIDE</h3><p>BESIDE {FIRST} More.</p></section></article>",
    "taxonomy": f"<article class='post category-social tag-share has-sidebar'>{BODY}</article>",
    "hidden": f"<article>{BODY}<div style='display: none'>BESIDE {THIRD} Hidden.</div></article>",
    "newsletter": f"<article>{BODY}<p>Sign up for our newsletter, BESIDE.</p></article>",
    "lines": "<div id=content>" + "<br><br>".join((FIRST, SECOND, THIRD)) + "</div>",
    "layout table": f"<table><tr><td><a href='/a'>BESIDE</a></td><td>{BODY}</td></tr></table>",
    "pieces": "".join(f"<div class='text-module article-text'><p>{text}</p></div>" for text in (FIRST, SECOND, THIRD)),
    "form around all": f"<form id='aspnetForm'><div class='main'>{BODY}</div></form>",
    "deep": "<div>" * 140 + BODY + "</div>" * 140,
}


def text_of(html: str, extractor: str = "best") -> str:
    document, reason = extract_page(Page(URL, URL, 200, "text/html", html.encode()), ExtractConfig(extractor=extractor))
    assert document is not None, reason
    return document.text


@pytest.mark.parametrize("name", PAGES)
def test_best_on_our_own_pages(name: str) -> None:
    lines = [line for line in text_of(FRAME.format(PAGES[name])).split("\n") if line != "The ferry at seven"]
    assert lines == [FIRST, SECOND, THIRD]


def test_summary_between_headline_and_text_belongs_to_it() -> None:
    html = FRAME.format(
        "<main><header><h1>The ferry at seven</h1><p class='lead'>A village that needs no newspaper, because it has "
        f"a quay.</p><p class='byline'>By a reporter, on Monday.</p></header><div class='article-body'>{BODY}</div></main>"
    )
    assert text_of(html).split("\n")[0] == "A village that needs no newspaper, because it has a quay."
    assert "reporter" not in text_of(html)


def test_first_of_several_articles_is_the_page() -> None:
    others = "".join(f"<article><h2>Other {n}</h2><p>BESIDE {n} {FIRST * 3}</p></article>" for n in range(4))
    assert "BESIDE" not in text_of(FRAME.format(f"<article><h1>The ferry at seven</h1>{BODY}</article>{others}"))


def test_page_of_links_goes_to_the_careful_extractor() -> None:
    config = ExtractConfig(extractor="best", min_text_characters=1)
    html = FRAME.format(
        f"<div class='comment'><p>{FIRST}</p></div>" + "<p><a href='/x'>A link of some length</a></p>" * 5
    )
    document, _ = extract_page(Page(URL, URL, 200, "text/html", html.encode()), config)
    assert document is not None and document.extra["branch"] in ("blocks", "trafilatura", "trafilatura_full")
    assert load_extractor("best")("<p>One line.</p>", URL).metrics == {"branch": "blocks"}


def test_blocks_know_their_kind_links_and_box() -> None:
    page = page_blocks(parse("<body><h2>Head</h2><ul><li>one <a href='/'>link</a></ul><pre>a\n  b</pre><div>rest"))
    assert page.texts == ["Head", "one link", "a\n  b", "rest"]
    assert page.kinds == [Kind.HEADING, Kind.ITEM, Kind.PRE, Kind.OTHER]
    assert page.levels[0] == 2 and page.link_lengths == [0, 4, 0, 0]
    for number, owner in enumerate(page.owners):
        assert page.boxes[owner].first <= number < page.boxes[owner].end


@pytest.mark.parametrize(
    ("html", "verdict"),
    [("<div class='site-footer'>", Verdict.BOILERPLATE), ("<div class='entry-content'>", Verdict.BODY),
     ("<div itemprop='articleBody'>", Verdict.BODY), ("<div hidden>", Verdict.HIDDEN), ("<div>", Verdict.NONE),
     ("<div class='has-comments'>", Verdict.NONE), ("<div class='standfirst'>", Verdict.LEAD),
     ("<div id='how-to-share-a-file-with-others'>", Verdict.NONE), ("<article class='widget'>", Verdict.CONTENT)],
)  # fmt: skip
def test_what_names_say(html: str, verdict: Verdict) -> None:
    element = parse(f"<body>{html}x").find("body")[0]
    assert verdict_of(element, element.tag)[0] is verdict


def test_floors_on_real_pages(shared_data: Path) -> None:
    """best above all others; their floors are in test_extractors."""
    articles = score_articles("best", shared_data / "extraction-aeb")
    assert articles.f1 >= 0.975 and articles.num_empty == 0, articles
    snippets = score_snippets("best", shared_data / "extraction-trafi", max_pages=200)
    assert snippets.f1 >= 0.94, snippets


def test_limits_of_a_page_hold() -> None:
    """Too much memory for one page costs that page and one start; the next page is read."""
    resources = ExtractResources(page_memory_bytes=64 << 20)
    process = PageProcess(ExtractConfig(extractor="best", resources=resources))
    try:
        # small elements are many nodes of the tree: hundreds of bytes each
        huge = Page(URL, URL, 200, "text/html", b"<p><b>x</b></p>" * 600_000)
        assert process.extract(huge) == (None, ExtractReason.OUT_OF_MEMORY)
        document, reason = process.extract(Page(URL, URL, 200, "text/html", FRAME.format(BODY).encode()))
        assert reason is None and document is not None and FIRST in document.text
        assert process.num_starts == 2
    finally:
        process.close()
