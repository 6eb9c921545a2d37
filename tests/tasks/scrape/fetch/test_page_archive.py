"""Records made in processes are the ones made in place, and none is lost when a process or the crawl ends early."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tasks.errors import TransientError
from tasks.scrape import page_archive
from tasks.scrape.fetch_outcome import FetchedPage
from tasks.scrape.page_archive import LENGTH, PageArchive, Record, page_record

DATE = "2026-12-01T03:18:22Z"


def some_page(number: int) -> FetchedPage:
    fields = [(b"Content-Type", b"text/html; charset=x"), (b"ETag", b'"1"'), (b"etag", b'"2"')]
    return FetchedPage(f"http://x/{number}", DATE, 200, "OK", fields, b"<html>%d" % number * (number % 50 + 1))


class Kept:
    """What came back."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}

    def __call__(self, finished: Sequence[tuple[int, Record]]) -> None:
        for number, record in finished:
            assert number not in self.records
            self.records[number] = record

    def check(self, numbers: Sequence[int]) -> None:
        assert sorted(self.records) == sorted(numbers)
        for number, record in self.records.items():
            assert record == page_record(f"http://asked/{number}", some_page(number))


async def put(archive: PageArchive[int], group: asyncio.TaskGroup, numbers: Sequence[int]) -> None:
    for number in numbers:
        await archive.put(group, number, f"http://asked/{number}", some_page(number))


def test_facts_are_of_the_first_field_of_a_name() -> None:
    facts, _ = page_record("http://asked/1", some_page(1))
    assert (facts.mime, facts.etag, facts.date, facts.status) == ("text/html", '"1"', DATE, 200)


@pytest.mark.parametrize("max_processes", [1, 3])
def test_every_page_comes_back_with_the_record_made_in_place(max_processes: int) -> None:
    kept = Kept()

    async def work() -> None:
        archive = PageArchive[int](max_processes, kept)
        try:
            async with asyncio.TaskGroup() as group:
                await put(archive, group, range(1000))
                archive.finish()
            assert 1 <= archive.num_processes <= max_processes
        finally:
            archive.close()

    asyncio.run(work())
    kept.check(range(1000))


def test_a_few_small_pages_start_no_process() -> None:
    kept = Kept()

    async def work() -> int:
        archive = PageArchive[int](2, kept)
        async with asyncio.TaskGroup() as group:
            await put(archive, group, range(10))
            archive.finish()
        archive.close()
        return archive.num_processes

    assert asyncio.run(work()) == 0
    kept.check(range(10))


def test_a_cancelled_crawl_keeps_what_it_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_archive, "INLINE_PAGES", 0)
    kept = Kept()

    async def work() -> None:
        archive = PageArchive[int](2, kept)
        try:
            async with asyncio.TaskGroup() as group:
                await put(archive, group, range(500))
                raise asyncio.CancelledError
        finally:
            archive.close()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(work())
    kept.check(range(500))


def test_who_brings_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_archive, "INLINE_PAGES", 0)
    monkeypatch.setattr(page_archive, "MAX_WAITING_BYTES", 5000)
    kept = Kept()

    async def work() -> None:
        archive = PageArchive[int](1, kept)
        async with asyncio.TaskGroup() as group:
            for number in range(300):
                await put(archive, group, [number])
                assert archive.num_waiting_bytes <= 5000
            archive.finish()
        archive.close()

    asyncio.run(work())
    kept.check(range(300))


def test_the_end_of_a_process_is_an_error_that_a_rerun_heals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_archive, "INLINE_PAGES", 0)
    kept = Kept()

    async def work() -> None:
        archive = PageArchive[int](1, kept)
        try:
            async with asyncio.TaskGroup() as group:
                await put(archive, group, range(10))
                os.kill(archive.process_ids[0], signal.SIGKILL)
                await asyncio.sleep(30)
        finally:
            archive.close()

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(work())
    assert raised.group_contains(TransientError, match="ended by itself")
    kept.check(range(10))


def test_a_process_whose_parent_is_gone_ends_without_a_word() -> None:
    """A killed parent leaves unread answers behind, and the next read is reset."""
    ours, theirs = socket.socketpair()
    child = subprocess.Popen(
        [sys.executable, "-m", "tasks.scrape.page_archive"], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE
    )
    theirs.close()
    batch = pickle.dumps([])
    for _ in range(2):
        ours.sendall(LENGTH.pack(len(batch)) + batch)
    assert ours.recv(1)
    ours.close()
    _, said = child.communicate(timeout=30)
    assert said == b"" and child.returncode == 0
