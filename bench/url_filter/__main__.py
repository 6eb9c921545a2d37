"""The URL filter against parsing every URL, and against Megatron-LM's blacklist_urls.py when its path is given.

    python -m bench.url_filter URLS.tsv.gz [--peer PATH/blacklist_urls.py] [--copies 4] [--rounds 3]

The list is the last column of each line (a .tsv of submissions, or a plain list). It is taken `--copies` times, each
copy with other paths, as a longer list of the same sites would be. Each way runs in a process of its own; CPU seconds
of that process count, start and reading of lists included; the rounds alternate and the best of each counts.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tasks.records import read_lines

OURS = """
import sys
from pathlib import Path
from tasks.adopt import AdoptConfig, ADOPT_URLS
from tasks.scrape.config import FilterConfig
from tasks.scrape.filter_stage import FILTER
from tasks.store import ArtifactStore
store = ArtifactStore(Path(sys.argv[2]))
adopted = store.run(ADOPT_URLS, AdoptConfig(paths=(Path(sys.argv[1]),)), ())
import time
start = time.process_time()
made = store.run(FILTER, FilterConfig(preset=sys.argv[3]), [adopted], refresh=True)
print(made.num_urls, time.process_time() - start)
"""
PARSED = """
import sys, time
from urllib.parse import urlsplit
import tldextract
from tasks.scrape.url_lists import blocked_extensions, packaged_list
start = time.process_time()
extract = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
blocked, endings, seen, kept = set(packaged_list("blocked_domains")), blocked_extensions(
    packaged_list("blocked_extensions")), set(), []
with open(sys.argv[1], encoding="utf-8", errors="surrogateescape") as lines:
    for line in lines:
        try:
            parts = urlsplit(line.strip())
            site = extract(parts.netloc).top_domain_under_public_suffix
        except ValueError:
            continue
        if not site or site in blocked or parts.path.rpartition(".")[2].lower() in endings:
            continue
        key = (parts.netloc.lower(), parts.path.rstrip("/"), parts.query)
        if key not in seen:
            seen.add(key)
            kept.append(line)
print(len(kept), time.process_time() - start)
"""


def cpu_of(command: Sequence[str], output: Path) -> tuple[float, str]:
    """CPU seconds of a command, and the last line it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with output.open("wb") as stream:
        subprocess.run(command, check=True, stdout=stream, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    last = output.read_bytes().rstrip().rpartition(b"\n")[2].decode("utf-8", "replace")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, last


def write_list(source: Path, target: Path, copies: int) -> int:
    """The list as plain text; copy k has `-k` in the first path segment. Returns the number of lines."""
    lines = [line.rpartition(b"\t")[2].strip() for line in read_lines(source)]
    if lines and lines[0] == b"url":
        del lines[0]
    lines = [line.decode("utf-8", "replace").encode() for line in lines if line]
    with target.open("wb") as stream:
        for number in range(copies):
            for line in lines:
                cut = line.find(b"/", 8)
                mark = b"" if number == 0 or cut < 0 else b"/copy-%d" % number
                stream.write((line[:cut] + mark + line[cut:] if mark else line) + b"\n")
    return len(lines) * copies


def main() -> None:
    """Run all ways and print URLs a second and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", type=Path)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "list").mkdir()
        num_urls = write_list(arguments.urls, folder / "list" / "urls.txt", arguments.copies)
        source = str(folder / "list" / "urls.txt")
        ways: dict[str, list[str]] = {
            "url2lm": [sys.executable, "-c", OURS, source, str(folder / "store"), "url2lm"],
            "url2lm, preset megatron": [sys.executable, "-c", OURS, source, str(folder / "store"), "megatron"],
            "urlsplit + tldextract": [sys.executable, "-c", PARSED, source],
        }
        if arguments.peer:
            ways["blacklist_urls.py"] = [
                sys.executable, str(arguments.peer), str(folder / "list"), str(folder / "peer.txt")
            ]  # fmt: skip
        best: dict[str, tuple[float, str]] = {}
        for _ in range(arguments.rounds):
            for way, command in ways.items():
                total, last = cpu_of(command, folder / "out.txt")
                kept, _, seconds = last.partition(" ")
                # the peer has no part of its own to time: its whole run is start, lists and work
                used = float(seconds) if way != "blacklist_urls.py" else total
                if way not in best or used < best[way][0]:
                    best[way] = (used, kept if way != "blacklist_urls.py" else "")
        if arguments.peer:
            kept = str(sum(1 for _ in read_lines(folder / "peer.txt")))
            best["blacklist_urls.py"] = (best["blacklist_urls.py"][0], kept)
    ours = best["url2lm"][0]
    print(f"{num_urls} URLs, best of {arguments.rounds} rounds, CPU seconds of one process")
    for way, (seconds, kept) in best.items():
        print(f"{way:<26}{seconds:8.2f} s {num_urls / seconds:12,.0f} URLs/s  kept {kept:>8}  {seconds / ours:5.1f} x")


if __name__ == "__main__":
    main()
