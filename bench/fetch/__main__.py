"""The fetcher against the classic openwebtext downloader and a plain pool, on the same local server and cores.

    python -m bench.fetch [--pages 20000] [--openwebtext FOLDER] [--processes 16]

FOLDER is a checkout of jcpeterson/openwebtext (its download.py needs pebble, htmlmin, six and newspaper3k; packages
that are not installed may lie in a folder on PYTHONPATH). Its script is run as it is, once with each of its scrapers:
`download.py RS_v2_2005-06.txt --n_procs P --save_uncompressed --scraper newspaper|bs4|raw`. What it does for a URL:
a process of a pebble pool calls newspaper's Article.download (requests, a fresh connection each time, no robots.txt),
then parses: newspaper extracts, bs4 takes the paragraphs, raw minifies, cleans and extracts; a text and a JSON file are
written. Chunks of 100 URLs wait for their last one. So it also extracts, which we leave to the next stage; the pool of
pool_downloader.py shows the same way of fetching without any parsing.

Rates are pages over wall time of the whole run (the peers' start-up is part of theirs, as WARC, hashes and publishing
are of ours), and pages per second of CPU time, server left out, which says the same on a busy machine.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tasks.adopt import adopt_urls
from tasks.scrape.fetch_config import FetchConfig, FetchResources
from tasks.scrape.fetch_stage import FETCH
from tasks.store import ArtifactStore

HERE = Path(__file__).parent
SCRAPERS = ("newspaper", "bs4", "raw")
PEER_LIST = "RS_v2_2005-06.txt"
"""The peer reads a month out of the name of its list."""


@dataclass(frozen=True)
class Rate:
    """How fast one run was."""

    num_pages: int
    wall_seconds: float
    cpu_seconds: float

    def __str__(self) -> str:
        wall, cpu = self.num_pages / self.wall_seconds, self.num_pages / self.cpu_seconds
        return f"{self.num_pages} pages, {wall:.0f} pages/s, {cpu:.0f} pages per CPU second"

    def over(self, other: Rate) -> str:
        """This rate as a multiple of another."""
        wall = self.num_pages / self.wall_seconds / (other.num_pages / other.wall_seconds)
        cpu = self.num_pages / self.cpu_seconds / (other.num_pages / other.cpu_seconds)
        return f"ratio {wall:.1f} (wall), {cpu:.1f} (CPU)"


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in found)


def our_rate(store_path: Path, urls: Path, host: str, requests: int) -> Rate:
    """The whole stage: robots.txt, politeness without delay, WARC, index, outcomes, hashes, publishing."""
    store = ArtifactStore(store_path)
    url_list = adopt_urls(store, [urls])
    resources = FetchResources(delay_seconds=0, max_requests=requests, max_requests_per_host=requests)
    config = FetchConfig(allow_private_hosts=(host,), resources=resources)
    cpu, started = cpu_seconds(), time.perf_counter()
    pages = store.run(FETCH, config, [url_list])
    return Rate(pages.num_pages, time.perf_counter() - started, cpu_seconds() - cpu)


def peer_rate(command: list[str], folder: Path, pages: str) -> Rate | None:
    """A peer's whole process run; its pages are the files of the glob `pages`. None when it did not run."""
    cpu, started = cpu_seconds(), time.perf_counter()
    finished = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    seconds, cpu = time.perf_counter() - started, cpu_seconds() - cpu
    num_pages = sum(1 for _ in folder.glob(pages))
    if finished.returncode or not num_pages:
        tail = (finished.stdout + finished.stderr).strip().splitlines()[-1:]
        print(f"  {' '.join(command[1:4])} ...: exit code {finished.returncode}, {num_pages} pages: {' '.join(tail)}")
        return None
    return Rate(num_pages, seconds, cpu)


def main() -> None:
    """Run all and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--peer-pages", type=int, default=2000, help="pages the slower peers fetch")
    parser.add_argument("--processes", type=int, default=16, help="processes of the peers")
    parser.add_argument("--requests", type=int, default=64, help="our requests in flight")
    parser.add_argument("--openwebtext", type=Path, help="folder of jcpeterson/openwebtext")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-fetch-"))
    server = subprocess.Popen([sys.executable, str(HERE / "page_server.py")], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        host = f"127.0.0.1:{int(server.stdout.readline())}"
        ours, peers = folder / "urls.txt", folder / PEER_LIST
        ours.write_text("".join(f"http://{host}/page/{number}\n" for number in range(arguments.pages)))
        peers.write_text("".join(f"http://{host}/page/{number}\n" for number in range(arguments.peer_pages)))
        rate = our_rate(folder / "store", ours, host, arguments.requests)
        print(f"url2lm fetch: {rate}")
        pool = [sys.executable, str(HERE / "pool_downloader.py"), str(peers), "--out", str(folder / "pool")]
        plain = peer_rate([*pool, "--processes", str(arguments.processes)], folder, "pool/*")
        if plain is not None:
            print(f"pool of {arguments.processes} processes, urllib, nothing parsed: {plain}; {rate.over(plain)}")
        for scraper in SCRAPERS:
            name = f"openwebtext download.py --scraper {scraper} --n_procs {arguments.processes}"
            if arguments.openwebtext is None:
                print(f"{name}: not measured (give --openwebtext FOLDER)")
                continue
            place = folder / scraper
            place.mkdir()
            script = str((arguments.openwebtext / "download.py").resolve())
            command = [sys.executable, script, str(peers), "--n_procs", str(arguments.processes)]
            classic = peer_rate([*command, "--scraper", scraper, "--save_uncompressed"], place, "scraped/data/*/*.txt")
            print(f"{name}: not measured" if classic is None else f"{name}: {classic}; {rate.over(classic)}")
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
