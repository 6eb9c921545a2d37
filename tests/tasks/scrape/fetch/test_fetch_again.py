"""A second crawl asks for what changed, and has the pages that did not all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_server import Exchange, ScriptedServer, html, page, redirects
from warcio.archiveiterator import ArchiveIterator

from tasks.adopt import adopt_urls
from tasks.records import read_lines
from tasks.scrape.fetch_config import FetchConfig, FetchResources
from tasks.scrape.fetch_stage import FETCH
from tasks.store import ArtifactStore

DATE = "Tue, 01 Dec 2026 03:18:22 GMT"


def crawl(folder: Path, server: ScriptedServer, paths: list[str], **settings: Any) -> Path:
    """The published folder of a crawl."""
    folder.mkdir()
    urls = folder / "urls.txt"
    urls.write_text("".join(f"{server.url(path)}\n" for path in paths))
    store = ArtifactStore(folder / "store")
    config = FetchConfig(
        allow_private_hosts=(server.host,), resources=FetchResources(delay_seconds=0), urls_per_shard=3, **settings
    )
    return store.path_of(store.run(FETCH, config, [adopt_urls(store, [urls])]))


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(folder / "outcomes.jsonl.zst")]


def records(folder: Path) -> dict[str, tuple[bytes, str, dict[str, str]]]:
    """Body, date and HTTP headers by URL; digests are checked."""
    found = {}
    for path in sorted(folder.glob("pages-*.warc.gz")):
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                if record.rec_type == "response":
                    head = record.rec_headers
                    headers = dict(record.http_headers.headers)
                    found[head["WARC-Target-URI"]] = (record.content_stream().read(), head["WARC-Date"], headers)
    return found


def versioned(seen: list[dict[str, str]], etag: str = '"1"', title: str = "one", **more: str) -> Any:
    async def handle(exchange: Exchange) -> None:
        seen.append(exchange.headers)
        fields = {"ETag": etag, "Content-Type": "text/html", **more}
        if exchange.headers.get("If-None-Match") == etag:
            await exchange.answer(304, {"ETag": etag}, length=-1)
        else:
            await exchange.answer(200, fields, page(title=title))

    return handle


def test_an_unchanged_page_is_kept_and_a_changed_one_is_new(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []
    routes = {
        "/same": versioned(seen, **{"X-Fact": "kept"}),
        "/old": html(),
        "/moved": redirects("/same2"),
        "/same2": versioned([], '"2"'),
    }
    with ScriptedServer({**routes, "/new": versioned([], title="before")}) as server:
        paths = ["/same", "/new", "/old", "/moved"]
        first = crawl(tmp_path / "first", server, paths)
        server.routes["/new"] = versioned([], '"3"', "after")
        second = crawl(tmp_path / "second", server, [*paths, "/more"], earlier_crawl=first)
    assert "If-None-Match" not in seen[0]
    assert seen[1]["If-None-Match"] == '"1"'
    assert [(row["reason"], row["status"]) for row in rows(second)] == [
        ("ok", 304), ("ok", 200), ("ok", 200), ("ok", 304), ("http_error", 404),
    ]  # fmt: skip
    before, after = records(first), records(second)
    assert after[server.url("/same")] == before[server.url("/same")]
    assert after[server.url("/same")][2]["X-Fact"] == "kept"
    assert after[server.url("/same2")] == before[server.url("/same2")]
    assert b"before" in before[server.url("/new")][0] and b"after" in after[server.url("/new")][0]


def test_a_third_crawl_can_start_from_the_second(tmp_path: Path) -> None:
    with ScriptedServer({"/a": versioned([])}) as server:
        first = crawl(tmp_path / "1", server, ["/a"])
        second = crawl(tmp_path / "2", server, ["/a"], earlier_crawl=first)
        third = crawl(tmp_path / "3", server, ["/a"], earlier_crawl=second)
    assert records(first) == records(second) == records(third)
    assert rows(third)[0]["status"] == 304


def test_a_date_alone_is_enough(tmp_path: Path) -> None:
    asked: list[str] = []

    async def handle(exchange: Exchange) -> None:
        asked.append(exchange.headers.get("If-Modified-Since", ""))
        if asked[-1] == DATE:
            await exchange.answer(304, {}, length=-1)
        else:
            await exchange.answer(200, {"Last-Modified": DATE, "Content-Type": "text/html"}, page())

    with ScriptedServer({"/a": handle}) as server:
        first = crawl(tmp_path / "1", server, ["/a"])
        assert records(crawl(tmp_path / "2", server, ["/a"], earlier_crawl=first)) == records(first)
    assert asked == ["", DATE]


def test_a_damaged_earlier_page_is_asked_for_again(tmp_path: Path) -> None:
    with ScriptedServer({"/a": versioned([])}) as server:
        first = crawl(tmp_path / "1", server, ["/a"])
        whole = records(first)
        path = first / "pages-00000.warc.gz"
        path.write_bytes(path.read_bytes()[:-30])
        second = crawl(tmp_path / "2", server, ["/a"], earlier_crawl=first)
        assert server.counts["/a"] == 3
    assert records(second)[server.url("/a")][0] == whole[server.url("/a")][0]
    assert rows(second)[0] == {**rows(first)[0], "num_requests": 2}


def test_not_modified_without_a_question_is_an_error(tmp_path: Path) -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.answer(304, {}, length=-1)

    with ScriptedServer({"/a": handle, "/b": html()}) as server:
        found = rows(crawl(tmp_path / "1", server, ["/a", "/b"]))
    assert [(row["reason"], row["status"]) for row in found] == [("http_error", 304), ("ok", 200)]


def test_an_earlier_crawl_without_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no pages\.cdxj"):
        FetchConfig(earlier_crawl=tmp_path)
