"""A list through the standard input: the same as the file, compressed or not, and nothing is left behind."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from flows.standard_input import standard_input_as_file
from tasks.errors import UserError

LINES = b"http://example.com/a\nhttp://imgur.com/b\n"


def run_filter(data: bytes, folder: Path) -> bytes:
    command = [sys.executable, "-m", "flows.cli", "stage", "filter", "--in", "-", "--out", str(folder / "out"),
               "--store", str(folder / "store")]  # fmt: skip
    subprocess.run(command, input=data, check=True, capture_output=True)
    assert not list((folder / "store").rglob("standard-input*"))
    return (folder / "out" / "urls.txt").read_bytes()


@pytest.mark.parametrize(
    "data", [LINES, gzip.compress(LINES), b'{"url": "http://example.com/a"}\n'], ids=["text", "gzip", "rows"]
)
def test_a_stage_reads_the_standard_input(data: bytes, tmp_path: Path) -> None:
    assert run_filter(data, tmp_path) == b"http://example.com/a\n"


def test_it_can_be_read_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="read once"), standard_input_as_file(["-", "-"], tmp_path):
        pass


def test_other_paths_stay(tmp_path: Path) -> None:
    with standard_input_as_file(["a.txt", "b*.gz"], tmp_path) as paths:
        assert paths == ("a.txt", "b*.gz")
