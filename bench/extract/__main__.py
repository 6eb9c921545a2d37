"""Extractors on real pages with known text: F1 and pages a second of one core, side by side.

    python -m bench.extract DATA [--extractors trafilatura newspaper3k ...]

DATA holds the folders extraction-aeb and extraction-trafi. Quality on the first is F1 of 4-word shingles, mean
precision and recall over pages (metric of the article-extraction benchmark); on the second F1 of snippets that must
and must not be in the text. The speed is that of the whole way from bytes to document: charset, parsing, extraction,
facts of the page; CPU seconds of this process. The last three columns are ratios of speed in the same run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.records import Page
from tasks.scrape.config import ExtractConfig
from tasks.scrape.extract import extract_page
from tasks.scrape.extractors.names import EXTRACTOR_NAMES

SHINGLE = 4
PEERS = ("newspaper3k", "trafilatura", "resiliparse")
"""Extractors to whose speed that of each is compared."""


@dataclass(frozen=True)
class Score:
    """Quality and cost of one extractor on one set."""

    f1: float
    num_pages: int
    num_empty: int
    cpu_seconds: float


def text_of(extractor: str, body: bytes, url: str) -> str:
    """The text of one page, empty when there is none."""
    page = Page(url, url, 200, "text/html", body)
    document, _ = extract_page(page, ExtractConfig(extractor=extractor, min_text_characters=1))
    return document.text if document else ""


def shingles(text: str) -> Counter[tuple[str, ...]]:
    """Bag of runs of four words; of all words where there are fewer."""
    words = re.findall(r"\w+", text)
    if len(words) < SHINGLE:
        return Counter([tuple(words)] if words else [])
    return Counter(tuple(words[place : place + SHINGLE]) for place in range(len(words) - SHINGLE + 1))


def articles(folder: Path) -> Iterator[tuple[str, bytes, str]]:
    """URL, page and text of each article of extraction-aeb."""
    truth = json.loads((folder / "ground-truth.json").read_text(encoding="utf-8"))
    for name, item in sorted(truth.items()):
        yield item["url"], gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes()), item["articleBody"]


def score_articles(extractor: str, folder: Path) -> Score:
    """F1 of shingles: counts of each page are divided by their sum, so that long pages weigh no more than others."""
    precisions, recalls = [], []
    empty = pages = 0
    given = list(articles(folder))
    text_of(extractor, given[0][1], given[0][0])  # imports and tables are not measured
    started = time.process_time()
    texts = [(text_of(extractor, body, url), truth) for url, body, truth in given]
    seconds = time.process_time() - started
    for text, truth in texts:
        pages += 1
        empty += not text
        found, wanted = shingles(text), shingles(truth)
        hits = sum((found & wanted).values())
        if found:
            precisions.append(hits / found.total())
        if wanted:
            recalls.append(hits / wanted.total())
    precision, recall = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    return Score(2 * precision * recall / (precision + recall), pages, empty, seconds)


def score_snippets(extractor: str, folder: Path, max_pages: int | None = None) -> Score:
    """F1 of snippets over all pages of extraction-trafi, white space apart."""
    right = wrong = missed = empty = pages = 0
    seconds = 0.0
    data = json.loads((folder / "evaldata.json").read_text(encoding="utf-8"))
    for url, item in sorted(data.items())[:max_pages]:
        body = gzip.decompress((folder / "html" / item["file"]).read_bytes())
        started = time.process_time()
        text = " ".join(text_of(extractor, body, url if url.startswith("http") else "http://example.org/").split())
        seconds += time.process_time() - started
        pages += 1
        empty += not text
        for snippet in item["with"]:
            hit = " ".join(snippet.split()) in text
            right, missed = right + hit, missed + (not hit)
        wrong += sum(" ".join(snippet.split()) in text for snippet in item["without"])
    return Score(2 * right / (2 * right + wrong + missed), pages, empty, seconds)


def main() -> None:
    """Print a line for each extractor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--extractors", nargs="*", default=list(EXTRACTOR_NAMES), choices=EXTRACTOR_NAMES)
    parser.add_argument("--max-pages", type=int, help="of extraction-trafi")
    arguments = parser.parse_args()
    rates: dict[str, float] = {}
    lines: dict[str, str] = {}
    for name in arguments.extractors:
        first = score_articles(name, arguments.data / "extraction-aeb")
        second = score_snippets(name, arguments.data / "extraction-trafi", arguments.max_pages)
        rates[name] = (first.num_pages + second.num_pages) / (first.cpu_seconds + second.cpu_seconds)
        empty = first.num_empty + second.num_empty
        lines[name] = f"{name:<24}{first.f1:>8.3f}{second.f1:>10.3f}{empty:>7}{rates[name]:>9.1f}"
    peers = [name for name in PEERS if name in rates]
    head = "".join(f"{'x ' + name:>15}" for name in peers)
    print(f"{'extractor':<24}{'F1 aeb':>8}{'F1 trafi':>10}{'empty':>7}{'pages/s':>9}{head}")
    for name, line in lines.items():
        print(line + "".join(f"{rates[name] / rates[peer]:>15.2f}" for peer in peers))


if __name__ == "__main__":
    main()
