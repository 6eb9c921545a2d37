"""The yardstick: the classic way to fetch a URL list, a pool of processes with one blocking request each.

One task a URL, a fresh connection for each, one text file a page: what the well-known downloaders do before they
parse anything. Extraction is left out, so this is the pool at its best.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import time
import urllib.error
import urllib.request
from pathlib import Path


def download(job: tuple[str, str]) -> bool:
    """Fetch one URL into a file; False when it failed."""
    url, folder = job
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "pool-downloader"})
        with urllib.request.urlopen(request, timeout=30) as response:
            body = response.read()
    except (urllib.error.URLError, OSError, ValueError):
        return False
    (Path(folder) / hashlib.sha1(url.encode()).hexdigest()).write_bytes(body)
    return True


def main() -> None:
    """Fetch a list and print pages per second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("urls", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=16)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    urls = arguments.urls.read_text().split()
    started = time.perf_counter()
    with multiprocessing.Pool(arguments.processes) as pool:
        results = pool.imap_unordered(download, [(url, str(arguments.out)) for url in urls], chunksize=1)
        num_pages = sum(results)
    seconds = time.perf_counter() - started
    print(f"{num_pages} pages in {seconds:.2f} s: {num_pages / seconds:.0f} pages/s")


if __name__ == "__main__":
    main()
