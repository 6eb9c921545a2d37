"""Memory of the URL filter on long lists: the peak of a process whose duplicates are found on disk.

    python -m bench.url_filter.memory URLS.tsv.gz [--copies 8 16 32] [--in-memory 100000]

The list is taken several times, each copy with other paths (bench.url_filter), so that it grows and its sites do not.
A line is printed for each number of copies: URLs, kept, CPU seconds, peak of resident memory, and what the last step
added for each URL more that went into duplicate finding.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.url_filter.__main__ import write_list

RUN = """
import resource, sys, time
from pathlib import Path
from tasks.adopt import AdoptConfig, ADOPT_URLS
from tasks.scrape.config import FilterConfig, FilterResources
from tasks.scrape.filter_stage import FILTER
from tasks.store import ArtifactStore
store = ArtifactStore(Path(sys.argv[2]))
adopted = store.run(ADOPT_URLS, AdoptConfig(paths=(Path(sys.argv[1]),)), ())
start = time.process_time()
resources = FilterResources(max_urls_in_memory=int(sys.argv[3]))
made = store.run(FILTER, FilterConfig(resources=resources), [adopted])
report = store.manifest_of(made).report
copies = sum(count for reason, count in report.dropped.items() if reason.startswith("duplicate"))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(made.num_urls, made.num_urls + copies, time.process_time() - start, peak)
"""


def main() -> None:
    """Print one line for each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", type=Path)
    parser.add_argument("--copies", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--in-memory", type=int, default=100_000)
    arguments = parser.parse_args()
    before = (0, 0)
    for copies in arguments.copies:
        with tempfile.TemporaryDirectory() as name:
            source = Path(name) / "urls.txt"
            num_urls = write_list(arguments.urls, source, copies)
            command = [sys.executable, "-c", RUN, str(source), str(Path(name) / "store"), str(arguments.in_memory)]
            kept, compared, seconds, peak = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()
        more = (int(peak) - before[1]) / (int(compared) - before[0])
        added = f"{more:6.1f} bytes for each compared URL more" if before[0] else ""
        before = int(compared), int(peak)
        print(
            f"{num_urls:>12,} URLs  kept {int(kept):>11,}  compared {int(compared):>11,}  {float(seconds):7.1f} s CPU  "
            f"peak {int(peak) / 1e6:6.1f} MB  {added}",
            flush=True,
        )


if __name__ == "__main__":
    main()
