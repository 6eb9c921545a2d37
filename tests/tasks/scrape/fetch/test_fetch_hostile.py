"""A small hostile crawl: slow, dripping, looping, endless, cut, reset, busy, private and forbidden pages on several
hosts, killed half way and run again. Every URL has to end as its kind says. bench/fetch/hostile.py is the large one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.adopt import adopt_urls
from tasks.records import read_lines
from tasks.scrape import page_archive
from tasks.scrape.fetch_config import FetchConfig, FetchLimits, FetchResources
from tasks.scrape.fetch_stage import FETCH
from tasks.store import ArtifactStore

ROOT = Path(__file__).parents[4]
SERVER = ROOT / "bench" / "fetch" / "hostile_server.py"
NUM_HOSTS = 4
NUM_PATHS = 80
KINDS = 40
ENDS = {
    2: "timeout", 3: "redirect_loop", 4: "redirect_loop", 5: "too_large", 7: "connection_reset", 9: "truncated",
    10: "truncated", 11: "content_type", 12: "private_host", 13: "http_error", 14: "bad_response",
    15: "duplicate_page",
}  # fmt: skip
"""How pages end by their number % KINDS; all others are good ones."""
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


@pytest.fixture
def port() -> Iterator[int]:
    server = subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.communicate()


def wanted(port: int) -> dict[str, str]:
    """The list, host by host in turn, and how each URL ends."""
    ends: dict[str, str] = {}
    for number in range(NUM_PATHS):
        for host in range(NUM_HOSTS):
            site = f"http://127.0.0.{host + 1}:{port}"
            ends[f"{site}/{number}"] = ENDS.get(number % KINDS, "ok")
            if number % 10 == 0:
                ends[f"{site}/forbidden/{number}"] = "robots_disallowed"
    return ends


def test_every_hostile_page_ends_as_its_kind_says_after_a_kill_half_way(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = wanted(port)
    path = tmp_path / "urls.txt"
    path.write_text("".join(f"{url}\n" for url in ends))
    config = FetchConfig(
        allow_private_hosts=tuple(f"127.0.0.{host + 1}:{port}" for host in range(NUM_HOSTS)),
        limits=FetchLimits(page_seconds=4.0, silence_seconds=3.0, max_page_bytes=1 << 20, max_redirects=5, retries=1),
        resources=FetchResources(delay_seconds=0, backoff_seconds=0.05, max_requests_per_host=8),
        urls_per_shard=50,
    )
    arguments = [sys.executable, "-c", CHILD, str(tmp_path / "store"), str(path), config.model_dump_json()]
    child = subprocess.Popen(arguments, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    end = time.monotonic() + 30
    while sum(spool.stat().st_size for spool in tmp_path.rglob("spool-*")) < 60_000 and time.monotonic() < end:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL
    kept = sum(spool.stat().st_size for spool in tmp_path.rglob("spool-*"))
    assert kept >= 60_000, "it was killed before half of the work was done"
    monkeypatch.setattr(page_archive, "INLINE_PAGES", 10)
    store = ArtifactStore(tmp_path / "store")
    pages = store.run(FETCH, config, [adopt_urls(store, [path])])
    rows = [json.loads(line) for line in read_lines(store.path_of(pages) / "outcomes.jsonl.zst")]
    assert [row["url"] for row in rows] == list(ends)
    wrong = {row["url"]: row["reason"] for row in rows if row["reason"] != ends[row["url"]]}
    assert not wrong
    assert pages.num_pages == sum(reason == "ok" for reason in ends.values())
