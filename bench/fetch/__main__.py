"""The fetcher against a pool of blocking downloaders, on the same local server in another process.

    python -m bench.fetch [--pages 20000] [--downloader PATH]

PATH is a classic downloader script that takes a file of URLs as its only argument (openwebtext's download.py with
its own --n_procs and --save_uncompressed may be given as 'PATH --n_procs 16'); without it only the pool of
pool_downloader.py is the yardstick. Pages per second are wall time over the whole process run, start-up included
for the peers as for us apart (both are printed), and the ratio is ours over theirs.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tasks.adopt import adopt_urls
from tasks.scrape.fetch_config import FetchConfig, FetchResources
from tasks.scrape.fetch_stage import FETCH
from tasks.store import ArtifactStore

HERE = Path(__file__).parent


def our_rate(store_path: Path, urls: Path, host: str, requests: int) -> tuple[float, int, float]:
    """Pages per second of the whole stage (WARC, outcomes, hashes, publishing), pages, and peak memory growth in MB."""
    store = ArtifactStore(store_path)
    url_list = adopt_urls(store, [urls])
    resources = FetchResources(delay_seconds=0, max_requests=requests, max_requests_per_host=requests)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    pages = store.run(FETCH, FetchConfig(allow_private_hosts=(host,), resources=resources), [url_list])
    seconds = time.perf_counter() - started
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return pages.num_pages / seconds, pages.num_pages, growth


def peer_rate(command: list[str], num_pages: int, folder: Path) -> float:
    """Pages per second of a peer's whole process run."""
    started = time.perf_counter()
    finished = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    tail = (finished.stdout + finished.stderr).strip().splitlines()[-1:]
    print(f"  {' '.join(command[:3])} ... exit code {finished.returncode}: {' '.join(tail)}")
    return num_pages / seconds


def main() -> None:
    """Run both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--peer-pages", type=int, default=4000, help="pages the slower peers fetch")
    parser.add_argument("--processes", type=int, default=16, help="processes of the pool")
    parser.add_argument("--requests", type=int, default=64, help="our requests in flight")
    parser.add_argument("--downloader", help="a peer's script and its arguments; the URL file is added at the end")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-fetch-"))
    server = subprocess.Popen([sys.executable, str(HERE / "page_server.py")], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        host = f"127.0.0.1:{int(server.stdout.readline())}"
        ours, peers = folder / "urls.txt", folder / "peer-urls.txt"
        ours.write_text("".join(f"http://{host}/page/{number}\n" for number in range(arguments.pages)))
        peers.write_text("".join(f"http://{host}/page/{number}\n" for number in range(arguments.peer_pages)))
        rate, num_pages, growth = our_rate(folder / "store", ours, host, arguments.requests)
        print(f"url2lm fetch: {rate:.0f} pages/s ({num_pages} pages, memory grew by {growth:.0f} MB)")
        pool = [sys.executable, str(HERE / "pool_downloader.py"), str(peers), "--out", str(folder / "pool")]
        peer = peer_rate([*pool, "--processes", str(arguments.processes)], arguments.peer_pages, folder)
        print(f"pool of {arguments.processes} processes, urllib: {peer:.0f} pages/s; ratio {rate / peer:.1f}")
        if arguments.downloader:
            command = [sys.executable, *shlex.split(arguments.downloader), str(peers)]
            classic = peer_rate(command, arguments.peer_pages, folder)
            print(f"classic downloader: {classic:.0f} pages/s; ratio {rate / classic:.1f}")
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
