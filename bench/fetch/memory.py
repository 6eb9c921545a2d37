"""Memory over a long crawl: the resident memory of the whole stage while it fetches many tiny pages.

    python -m bench.fetch.memory [--urls 200000]

Every URL has a page, so everything the crawl keeps for a URL or a page is kept for all of them. The growth between
the first and the last fifth of the crawl, per URL, says what a million URLs would take more.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.fetch.resident import print_steps, watched
from tasks.adopt import adopt_urls
from tasks.records import read_lines
from tasks.scrape.fetch_config import FetchConfig, FetchResources
from tasks.scrape.fetch_stage import FETCH
from tasks.store import ArtifactStore

HERE = Path(__file__).parent


def crawl(folder: Path, urls: Path, host: str) -> None:
    """The stage over the whole list; every URL has to bring its page."""
    store = ArtifactStore(folder / "store")
    resources = FetchResources(delay_seconds=0, max_requests=64, max_requests_per_host=64)
    pages = store.run(FETCH, FetchConfig(allow_private_hosts=(host,), resources=resources), [adopt_urls(store, [urls])])
    num_rows = sum(1 for _ in read_lines(store.path_of(pages) / "outcomes.jsonl.zst"))
    print(f"{pages.num_pages} pages, {num_rows} outcomes", flush=True)


def main() -> None:
    """Crawl in a process of its own and watch it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, default=200_000)
    parser.add_argument("--crawl", nargs=3, metavar=("FOLDER", "URLS", "HOST"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.crawl:
        crawl(Path(arguments.crawl[0]), Path(arguments.crawl[1]), arguments.crawl[2])
        return
    folder = Path(tempfile.mkdtemp(prefix="bench-memory-"))
    command = [sys.executable, str(HERE / "page_server.py"), "--paragraphs", "1"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        host = f"127.0.0.1:{int(server.stdout.readline())}"
        urls = folder / "urls.txt"
        with urls.open("w") as stream:
            stream.writelines(f"http://{host}/page/{number}\n" for number in range(arguments.urls))
        started = time.perf_counter()
        command = [sys.executable, "-m", "bench.fetch.memory", "--crawl", str(folder), str(urls), host]
        child = subprocess.Popen(command)
        resident = watched(child)
        seconds = time.perf_counter() - started
        print(f"{arguments.urls} URLs in {seconds:.0f} s, highest RSS {max(resident):.0f} MB")
        steps = print_steps(resident)
        growth = (steps[8] - steps[2]) / (arguments.urls * 6 / 11) * (1 << 20)
        print(f"growth {growth:.0f} bytes a URL, so {growth * 1_000_000 / (1 << 20):.0f} MB for a million URLs")
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
