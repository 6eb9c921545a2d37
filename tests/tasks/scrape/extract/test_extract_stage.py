"""The stage `extract`: shards, one document a URL, processes that hang or die, reruns, the same bytes every time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from warc_files import TEXT, article, record, response, write_warc

from tasks.adopt import adopt_pages
from tasks.artifacts import DocumentShards
from tasks.errors import CorruptInputError, StageError
from tasks.progress import StageReport
from tasks.records import Document, Page, read_rows
from tasks.scrape import extract_stage
from tasks.scrape.config import ExtractConfig, ExtractResources
from tasks.scrape.extract import ExtractReason
from tasks.scrape.extract_stage import EXTRACT, extract_shard
from tasks.scrape.page_process import PageProcess
from tasks.store import ArtifactStore

FAST = "resiliparse"  # starts in half the time
URL = "http://example.com/a"


def config(workers: int = 1, **resources: float) -> ExtractConfig:
    return ExtractConfig(extractor=FAST, resources=ExtractResources(workers=workers, **resources))  # type: ignore[arg-type]


def page_record(url: str, title: str, requested: str = "") -> bytes:
    return record(url, response(article(title).encode()), requested=requested)


def two_files(folder: Path) -> list[Path]:
    first = [
        page_record("http://example.com/c", "C", requested="http://example.com/a"),
        page_record("http://example.com/c#part", "C again", requested="http://example.com/b"),
        page_record("http://example.com/d", "D"),
        record("http://example.com/pdf", response(b"%PDF-1.4", "application/pdf")),
    ]
    second = [page_record("http://EXAMPLE.com:80/d", "D again"), page_record("http://example.com/e", "E")]
    return [write_warc(folder / "one.warc.gz", first), write_warc(folder / "two.warc", second)]


def run(
    store: ArtifactStore, files: list[Path], settings: ExtractConfig
) -> tuple[DocumentShards, list[Document], StageReport]:
    made = store.run(EXTRACT, settings, [adopt_pages(store, files)])
    documents = [
        row.document
        for path in sorted(store.path_of(made).glob("documents-*.jsonl.zst"))
        for row in read_rows(path)
        if row.document is not None
    ]
    report = store.manifest_of(made).report
    assert report is not None
    return made, documents, report


def test_one_document_for_each_final_url(tmp_path: Path) -> None:
    made, documents, report = run(ArtifactStore(tmp_path / "store"), two_files(tmp_path), config())
    assert [document.extra["title"] for document in documents] == ["C", "D", "E"]
    assert documents[0].url == "http://example.com/c"
    assert documents[0].extra["requested_url"] == "http://example.com/a"
    assert len({document.id for document in documents}) == 3
    assert report.dropped == {"duplicate_url": 2, "not_html": 1}
    assert (report.num_in, report.num_out, made.num_documents) == (6, 3, 3)
    assert made.num_text_bytes == sum(len(document.text.encode()) for document in documents)
    assert [entry.name for entry in made.files] == ["documents-00000.jsonl.zst", "documents-00001.jsonl.zst"]


def test_same_bytes_for_any_number_of_workers(tmp_path: Path) -> None:
    fingerprints = set()
    for workers in (1, 2):
        made, _, _ = run(
            ArtifactStore(tmp_path / str(workers)), two_files(tmp_path), config(workers, pages_per_process=1 + workers)
        )
        fingerprints.add(made.fingerprint)
    assert len(fingerprints) == 1


def test_finished_shards_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, files = ArtifactStore(tmp_path / "store"), two_files(tmp_path)
    whole, _, _ = run(ArtifactStore(tmp_path / "whole"), files, config())
    worked: list[str] = []

    def breaks(shard: tuple[str, int, ExtractConfig], directory: Path) -> tuple[list[str], StageReport]:
        worked.append(Path(shard[0]).name)
        if len(worked) == 2:
            raise KeyboardInterrupt
        return extract_shard(shard, directory)

    monkeypatch.setattr(extract_stage, "extract_shard", breaks)
    with pytest.raises(KeyboardInterrupt):
        run(store, files, config())
    again, _, _ = run(store, files, config())
    assert worked == ["pages-00000.warc.gz", "pages-00001.warc", "pages-00001.warc"]
    assert again.fingerprint == whole.fingerprint


def test_no_document_is_an_error(tmp_path: Path) -> None:
    files = [write_warc(tmp_path / "a.warc.gz", [record(URL, response(b"<p>short</p>"))])]
    with pytest.raises(StageError, match="none of 1 pages gave a document: 1 too_short"):
        run(ArtifactStore(tmp_path / "store"), files, config())


def test_damaged_file_is_an_error(tmp_path: Path) -> None:
    store, files = ArtifactStore(tmp_path / "store"), two_files(tmp_path)
    pages = adopt_pages(store, files[:1])
    path = store.path_of(pages) / "pages-00000.warc.gz"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CorruptInputError, match="cut short"):
        extract_shard((str(path), 0, config()), tmp_path)
    assert not list(tmp_path.glob("documents-*"))
    extract_stage._close_processes()


def page(number: int = 0) -> Page:
    return Page(URL, f"{URL}{number}", 200, "text/html", article(f"Page {number}").encode())


def child_of(process: PageProcess) -> int:
    assert process._child is not None
    return process._child.pid


def test_page_that_hangs_costs_one_page() -> None:
    process = PageProcess(config(page_seconds=0.5))
    try:
        assert process.extract(page())[0] is not None
        os.kill(child_of(process), signal.SIGSTOP)
        assert process.extract(page(1)) == (None, ExtractReason.TIMEOUT)
        document, _ = process.extract(page(2))
        assert document is not None and TEXT[0] in document.text
        assert process.num_starts == 2
    finally:
        process.close()


def test_page_that_crashes_costs_one_page() -> None:
    process = PageProcess(config())
    try:
        assert process.extract(page())[0] is not None
        os.kill(child_of(process), signal.SIGSEGV)
        assert process.extract(page(1)) == (None, ExtractReason.PARSER_CRASH)
        assert process.extract(page(2))[0] is not None
    finally:
        process.close()


def test_page_that_needs_too_much_memory_costs_one_page() -> None:
    process = PageProcess(config(page_memory_bytes=64 << 20))
    try:
        huge = Page(URL, URL, 200, "text/html", b"<div><b>word" * 1_200_000)
        document, reason = process.extract(huge)
        assert document is None and reason in (ExtractReason.OUT_OF_MEMORY, ExtractReason.PARSER_CRASH)
        assert process.extract(page())[0] is not None
    finally:
        process.close()


def test_process_ends_when_its_owner_closes_it() -> None:
    process = PageProcess(config())
    process.extract(page())
    pid = child_of(process)
    assert process.close() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_process_for_pages_that_are_not_read() -> None:
    process = PageProcess(config())
    assert process.extract(Page(URL, URL, 500, "text/html", b"x")) == (None, ExtractReason.HTTP_STATUS)
    assert process.num_starts == 0


def test_extractor_that_cannot_start_is_no_reason_of_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['resiliparse.extract.html2text'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = PageProcess(config())
    with pytest.raises(StageError, match=r"the extractor resiliparse cannot be started:[\s\S]*html2text"):
        process.extract(page())
