"""The stage: WARC files that other tools read, every URL accounted for, and a rerun that asks for the rest only."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from fastwarc.warc import WarcRecordType
from scripted_server import Exchange, ScriptedServer, html, page, redirects
from warcio.archiveiterator import ArchiveIterator

from tasks.adopt import adopt_urls
from tasks.artifacts import PageShards
from tasks.errors import StageError, TransientError, UserError
from tasks.progress import SilentProgress
from tasks.records import read_lines
from tasks.scrape.fetch_config import FetchConfig, FetchResources
from tasks.scrape.fetch_stage import FETCH
from tasks.store import ArtifactStore

ROOT = Path(__file__).parents[4]


def config_for(server: ScriptedServer, **settings: Any) -> FetchConfig:
    resources = {
        "delay_seconds": 0,
        "backoff_seconds": 0.01,
        "max_requests_per_host": 8,
        **settings.pop("resources", {}),
    }
    return FetchConfig(allow_private_hosts=(server.host,), resources=FetchResources(**resources), **settings)


def run(tmp_path: Path, lines: list[str], config: FetchConfig, name: str = "store") -> tuple[ArtifactStore, PageShards]:
    path = tmp_path / f"list-{len(lines)}.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    store = ArtifactStore(tmp_path / name)
    return store, store.run(FETCH, config, [adopt_urls(store, [path])])


def outcomes(store: ArtifactStore, pages: PageShards) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(store.path_of(pages) / "outcomes.jsonl.zst")]


def records(store: ArtifactStore, pages: PageShards) -> list[tuple[str, str, bytes]]:
    found = []
    for path in sorted(store.path_of(pages).glob("pages-*.warc.gz")):
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                if record.rec_type == "response":
                    head = record.rec_headers
                    body = record.content_stream().read()
                    found.append((head["WARC-Target-URI"], head["WARC-Requested-URI"], body))
    return found


def test_other_tools_read_the_files(tmp_path: Path) -> None:
    body = page(text="naïve café")
    with ScriptedServer({"/a": html(gzip.compress(body), Content_Encoding="gzip")}) as server:
        store, pages = run(tmp_path, [server.url("/a")], config_for(server))
    assert records(store, pages) == [(server.url("/a"), server.url("/a"), body)]
    path = store.path_of(pages) / "pages-00000.warc.gz"
    with path.open("rb") as stream:
        checked = [r.verify_block_digest() for r in FastIterator(stream, WarcRecordType.response, parse_http=False)]
        assert checked == [True]
    with path.open("rb") as stream:
        kinds = []
        for record in FastIterator(stream, parse_http=True):
            kinds.append(record.record_type)
            if record.record_type == WarcRecordType.response:
                assert record.verify_payload_digest()
                assert record.http_headers.status_code == 200
                assert record.http_headers["X-Archive-Orig-Content-Encoding"] == "gzip"
                assert "Content-Encoding" not in record.http_headers
                assert record.http_headers["Content-Length"] == str(len(body))
                assert record.reader.read() == body
        assert kinds == [WarcRecordType.warcinfo, WarcRecordType.response]
    # one gzip member a record
    with path.open("rb") as stream:
        assert stream.read().count(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff") == 2


def test_every_url_has_a_row_in_list_order(tmp_path: Path) -> None:
    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.2)
        await exchange.answer(200, {"Content-Type": "text/html"}, page())

    routes = {"/slow": slow, "/a": html(), "/b": redirects("/c"), "/c": html(), "/d": redirects("/c")}
    with ScriptedServer(routes) as server:
        paths = ["/slow", "/a", "/b", "/missing", "/c", "/d", "/a", "/a#top"]
        lines = [*(server.url(path) for path in paths), "http://[x", "http://10.0.0.1/"]
        store, pages = run(tmp_path, lines, config_for(server, urls_per_shard=3))
        assert server.counts["/a"] == 1, "a URL that stands twice is asked for once"
    rows = outcomes(store, pages)
    assert [row["url"] for row in rows] == lines
    assert [row["reason"] for row in rows] == [
        "ok", "ok", "ok", "http_error", "duplicate_page", "duplicate_page", "duplicate_url", "duplicate_url",
        "bad_url", "private_host",
    ]  # fmt: skip
    assert rows[2]["final_url"] == server.url("/c")
    assert set(rows[0]) == {"url", "final_url", "status", "reason", "num_bytes", "num_requests"}
    assert [record[:2] for record in records(store, pages)] == [
        (server.url("/slow"), server.url("/slow")),
        (server.url("/a"), server.url("/a")),
        (server.url("/c"), server.url("/b")),
    ]
    report = store.manifest_of(pages).report
    assert report is not None
    assert (report.num_in, report.num_out, pages.num_pages) == (10, 3, 3)
    assert report.dropped == {
        "bad_url": 1, "duplicate_page": 2, "duplicate_url": 2, "http_error": 1, "private_host": 1,
    }  # fmt: skip
    log = [json.loads(line) for line in read_lines(store.path_of(pages) / "logs" / "fetch.jsonl.zst")]
    assert [row["url"] for row in log] == lines
    assert log[0]["seconds"] >= 0.2


def test_only_dates_differ_between_runs(tmp_path: Path) -> None:
    async def jitter(exchange: Exchange) -> None:
        await asyncio.sleep((int(exchange.path[1:]) * 7 + 3 * exchange.number) % 5 / 100)
        await exchange.answer(200, {"Content-Type": "text/html"}, page(title=exchange.path))

    with ScriptedServer({}, default=jitter) as server:
        lines = [server.url(f"/{number}") for number in range(40)]
        seen = []
        for name, requests in (("one", 1), ("two", 16)):
            config = config_for(server, urls_per_shard=7, resources={"max_requests": requests, "workers": requests})
            store, pages = run(tmp_path, lines, config, name)
            text = b"".join(
                b"".join(
                    line for line in gzip.decompress(path.read_bytes()).splitlines(True)
                    if not line.startswith(b"WARC-Date") and not line.startswith(b"WARC-Record-ID")
                )
                for path in sorted(store.path_of(pages).glob("pages-*"))
            )  # fmt: skip
            ids = [
                record.rec_headers["WARC-Record-ID"]
                for path in sorted(store.path_of(pages).glob("pages-*"))
                for record in _warc(path)
                if record.rec_type == "response"
            ]
            others = [entry for entry in pages.files if entry.name == "outcomes.jsonl.zst"]
            index = (store.path_of(pages) / "pages.cdxj").read_bytes()
            index = re.sub(rb' \d{14} |"(?:length|offset)":"\d+"', b"", index)
            seen.append((text, ids, others, index, len(pages.files)))
    assert seen[0] == seen[1]
    assert seen[0][4] == 8


def _warc(path: Path) -> list[Any]:
    with path.open("rb") as stream:
        return list(ArchiveIterator(stream))


def test_lists_of_rows_and_broken_bytes_are_taken(tmp_path: Path) -> None:
    with ScriptedServer({"/a": html(), "/b": html()}) as server:
        rows = tmp_path / "rows.jsonl"
        rows.write_text(json.dumps({"url": server.url("/a"), "score": 3}) + "\n{broken\n[1]\n", encoding="utf-8")
        text = tmp_path / "text.txt"
        text.write_bytes(b"  " + server.url("/b").encode() + b" \r\n\n\xff\xfe\n")
        store = ArtifactStore(tmp_path / "store")
        pages = store.run(FETCH, config_for(server), [adopt_urls(store, [rows, text])])
    assert [row["reason"] for row in outcomes(store, pages)] == ["ok", "bad_url", "bad_url", "ok", "bad_url"]


def test_an_empty_list_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.write_text("\n")
    with pytest.raises(UserError, match="empty"):
        adopt_urls(ArtifactStore(tmp_path), [path])


def test_no_page_at_all_is_an_error_and_is_asked_for_again(tmp_path: Path) -> None:
    with ScriptedServer({}) as server:
        with pytest.raises(StageError, match="none of 1 URLs brought a page: 1 http_error"):
            run(tmp_path, [server.url("/a")], config_for(server))
        server.routes["/a"] = html()
        _, pages = run(tmp_path, [server.url("/a")], config_for(server))
        assert pages.num_pages == 1
    with pytest.raises(TransientError, match="connection_refused"):
        run(tmp_path, [server.url("/b")], config_for(server))


def test_it_runs_under_a_running_loop(tmp_path: Path) -> None:
    async def caller(server: ScriptedServer) -> int:
        return run(tmp_path, [server.url("/a")], config_for(server))[1].num_pages

    with ScriptedServer({"/a": html()}) as server:
        assert asyncio.run(caller(server)) == 1


def test_progress_counts_urls_in_the_calling_thread(tmp_path: Path) -> None:
    class Counting(SilentProgress):
        total, done, threads = 0, 0, set[int]()

        def start(self, description: str, total: int | None, unit: str) -> None:
            self.total = total or 0

        def advance(self, amount: int = 1) -> None:
            self.done += amount
            self.threads.add(threading.get_ident())

    progress = Counting()
    with ScriptedServer({"/a": html(), "/b": html()}) as server:
        path = tmp_path / "list.txt"
        path.write_text(f"{server.url('/a')}\n{server.url('/b')}\n{server.url('/a')}\n")
        store = ArtifactStore(tmp_path / "store")
        store.run(FETCH, config_for(server), [adopt_urls(store, [path])], progress)
    assert (progress.total, progress.done) == (3, 3)
    assert progress.threads == {threading.get_ident()}


def _wait(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


CHILD = """
import sys
from pathlib import Path
from tasks.adopt import adopt_urls
from tasks.scrape.fetch_config import FetchConfig
from tasks.scrape.fetch_stage import FETCH
from tasks.store import ArtifactStore
store = ArtifactStore(Path(sys.argv[1]))
store.run(FETCH, FetchConfig.model_validate_json(sys.argv[3]), [adopt_urls(store, [sys.argv[2]])])
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_after_a_stop_only_the_rest_is_asked_for(tmp_path: Path, number: signal.Signals) -> None:
    num_urls = 60

    async def handle(exchange: Exchange) -> None:
        await asyncio.sleep(0.02)
        await exchange.answer(200, {"Content-Type": "text/html"}, page(title=exchange.path))

    with ScriptedServer({}, default=handle) as server:
        path = tmp_path / f"list-{num_urls}.txt"
        path.write_text("".join(f"{server.url(f'/{place}')}\n" for place in range(num_urls)))
        config = config_for(server, urls_per_shard=16, resources={"max_requests": 4})
        arguments = [sys.executable, "-c", CHILD, str(tmp_path / "store"), str(path), config.model_dump_json()]
        child = subprocess.Popen(
            arguments, cwd=ROOT, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        try:
            _wait(lambda: server.pages_requested >= num_urls // 2)
        finally:
            child.send_signal(number)
            _, errors = child.communicate(timeout=20)
        assert child.returncode == (143 if number == signal.SIGTERM else -number), errors.decode()
        asked_before = server.pages_requested
        store, pages = run(tmp_path, path.read_text().split(), config)
        assert pages.num_pages == num_urls
        # what was in flight, and in the server's hands, when the process ended is asked for again; nothing else is
        assert server.pages_requested <= num_urls + 8
        assert server.pages_requested - asked_before <= num_urls - asked_before + 8
        clean_store, clean = run(tmp_path, path.read_text().split(), config, "undisturbed")
    assert records(store, pages) == records(clean_store, clean)
    assert [e for e in pages.files if e.name == "outcomes.jsonl.zst"] == [
        e for e in clean.files if e.name == "outcomes.jsonl.zst"
    ]
    assert not [item for item in store.path_of(pages).rglob("*") if item.name.startswith((".scratch", "spool"))]


def test_a_slow_page_does_not_hold_up_the_next_shards(tmp_path: Path) -> None:
    release = threading.Event()

    async def stuck(exchange: Exchange) -> None:
        while not release.is_set():
            await asyncio.sleep(0.01)
        await exchange.answer(200, {"Content-Type": "text/html"}, page())

    with ScriptedServer({"/0": stuck}, default=html()) as server:
        lines = [server.url(f"/{place}") for place in range(30)]
        result: list[PageShards] = []
        config = config_for(server, urls_per_shard=5)
        thread = threading.Thread(target=lambda: result.append(run(tmp_path, lines, config)[1]))
        thread.start()
        try:
            _wait(lambda: server.pages_requested == 30)
        finally:
            release.set()
            thread.join(20)
    assert result[0].num_pages == 30


def test_settings_of_speed_do_not_change_the_key(tmp_path: Path) -> None:
    with ScriptedServer({"/a": html()}) as server:
        _, first = run(tmp_path, [server.url("/a")], config_for(server))
        _, second = run(tmp_path, [server.url("/a")], config_for(server, resources={"max_requests": 3, "proxy": None}))
        assert first == second
        assert server.counts["/a"] == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"user_agent": "a\nb"}, "printable ASCII"),
        ({"user_agent": ""}, "at least 1 character"),
        ({"allow_private_hosts": ("http://x/",)}, "host:port"),
        ({"resources": {"proxy": "socks5://x"}}, "http://HOST:PORT"),
        ({"limits": {"page_seconds": 0}}, "greater than 0"),
        ({"delay": 3}, "Extra inputs"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FetchConfig(**settings)


def test_names_in_robots_and_requests() -> None:
    config = FetchConfig(user_agent="My-Bot/2.0 extra", contact="me@example.org")
    assert config.robots_name == "My-Bot"
    assert config.user_agent_header == "My-Bot/2.0 extra (+me@example.org)"
