"""A hostile crawl: every URL accounted for, flat memory, and the same set after a kill -9 half way.

    python -m bench.fetch.hostile [--urls 20000]

The list goes over 20 loopback hosts; the server has slow, dripping, looping, endless, compressed, cut, reset, busy,
private and forbidden pages. One crawl is left alone, one is killed when half of its pages are in, then run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.fetch.resident import print_steps, watched
from tasks.adopt import adopt_urls
from tasks.artifacts import PageShards
from tasks.records import read_lines
from tasks.scrape.fetch_config import FetchConfig, FetchLimits, FetchResources
from tasks.scrape.fetch_stage import FETCH
from tasks.store import ArtifactStore

HERE = Path(__file__).parent
NUM_HOSTS = 20


def crawl(store_path: Path, urls: Path, port: int) -> tuple[ArtifactStore, PageShards]:
    """The stage with limits that make hostile pages short."""
    config = FetchConfig(
        allow_private_hosts=tuple(f"127.0.0.{host + 1}:{port}" for host in range(NUM_HOSTS)),
        limits=FetchLimits(page_seconds=6.0, silence_seconds=5.0, max_redirects=5, retries=1),
        resources=FetchResources(delay_seconds=0, backoff_seconds=0.1, max_requests_per_host=16),
    )
    store = ArtifactStore(store_path)
    return store, store.run(FETCH, config, [adopt_urls(store, [urls])])


def rows(store: ArtifactStore, pages: PageShards) -> list[tuple[str, str, str, int]]:
    """Outcomes without the number of requests: a busy page remembers that it was asked before."""
    found = [json.loads(line) for line in read_lines(store.path_of(pages) / "outcomes.jsonl.zst")]
    return [(row["url"], row["final_url"], row["reason"], row["num_bytes"]) for row in found]


def main() -> None:
    """Run both crawls in processes of their own and compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, default=20_000)
    parser.add_argument("--crawl", nargs=3, metavar=("STORE", "URLS", "PORT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.crawl:
        crawl(Path(arguments.crawl[0]), Path(arguments.crawl[1]), int(arguments.crawl[2]))
        return
    folder = Path(tempfile.mkdtemp(prefix="bench-hostile-"))
    server = subprocess.Popen([sys.executable, str(HERE / "hostile_server.py")], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        port = int(server.stdout.readline())
        urls = folder / "urls.txt"
        with urls.open("w") as stream:
            for number in range(arguments.urls):
                place = "forbidden/" if number % 50 == 49 else ""
                stream.write(f"http://127.0.0.{number % NUM_HOSTS + 1}:{port}/{place}{number // NUM_HOSTS}\n")
        command = [sys.executable, "-m", "bench.fetch.hostile", "--crawl"]
        started = time.perf_counter()
        whole = subprocess.Popen([*command, str(folder / "whole"), str(urls), str(port)])
        resident = watched(whole)
        seconds = time.perf_counter() - started
        print(
            f"undisturbed: {arguments.urls / seconds:.0f} URLs/s in {seconds:.0f} s, highest RSS {max(resident):.0f} MB"
        )
        print_steps(resident)
        killed = subprocess.Popen([*command, str(folder / "killed"), str(urls), str(port)])
        time.sleep(seconds / 2)
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        store, pages = crawl(folder / "killed", urls, port)
        whole_store, whole_pages = crawl(folder / "whole", urls, port)  # comes from the store
        report = whole_store.manifest_of(whole_pages).report
        assert report is not None
        print(f"{report.num_in} in, {report.num_out} pages, {report.dropped}")
        same = rows(store, pages) == rows(whole_store, whole_pages)
        print("after kill -9 half way: " + ("the same outcomes" if same else "OTHER outcomes"))
        differing = [
            pair for pair in zip(rows(store, pages), rows(whole_store, whole_pages), strict=True) if pair[0] != pair[1]
        ]
        for pair in differing[:5]:
            print("  ", *pair)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
