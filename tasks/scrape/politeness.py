"""Turns at a host: at most so many requests at a time, so many seconds apart, first come first served."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from tasks.scrape.fetch_outcome import FetchFailure

MAX_REMEMBERED_HOSTS = 20_000


class HostTurns:
    """What is known about one host while it is being fetched from."""

    __slots__ = ("delay_seconds", "failure", "free", "next_start", "num_failures", "users")

    def __init__(self, max_requests: int, delay_seconds: float) -> None:
        self.free = asyncio.Semaphore(max_requests)
        self.delay_seconds = delay_seconds
        self.next_start = 0.0
        """Loop time before which no further request may start."""
        self.num_failures = 0
        """Failures to connect in a row."""
        self.failure: FetchFailure | None = None
        self.users = 0


class Politeness:
    """Hands out turns. Idle hosts are forgotten when there are many, so that memory stays flat."""

    def __init__(
        self, *, max_requests: int, max_requests_per_host: int, delay_seconds: float, max_host_failures: int
    ) -> None:
        """Limits over all hosts and for each; see FetchResources."""
        self._all = asyncio.Semaphore(max_requests)
        self._max_requests_per_host = max_requests_per_host
        self._delay_seconds = delay_seconds
        self._max_host_failures = max_host_failures
        self._hosts: OrderedDict[str, HostTurns] = OrderedDict()

    def _host(self, host: str) -> HostTurns:
        turns = self._hosts.get(host)
        if turns is None:
            if len(self._hosts) >= MAX_REMEMBERED_HOSTS:
                self._forget_idle()
            turns = self._hosts[host] = HostTurns(self._max_requests_per_host, self._delay_seconds)
        return turns

    def _forget_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for name, turns in list(self._hosts.items())[: MAX_REMEMBERED_HOSTS // 2]:
            if turns.users == 0 and turns.next_start <= now:
                del self._hosts[name]

    async def take_turn(self, host: str) -> HostTurns:
        """Wait for a turn at `host`; it is held until `end_turn`. Raises FetchFailure when the host was given up."""
        turns = self._host(host)
        turns.users += 1
        try:
            await turns.free.acquire()
            try:
                if turns.delay_seconds > 0 or turns.next_start > 0:
                    await self._wait_for_start(turns)
                if turns.failure is not None and turns.num_failures >= self._max_host_failures:
                    raise FetchFailure(turns.failure.reason, f"host given up: {turns.failure.detail}")
                await self._all.acquire()
            except BaseException:
                turns.free.release()
                raise
        except BaseException:
            turns.users -= 1
            raise
        return turns

    def end_turn(self, turns: HostTurns) -> None:
        """Let the next one in."""
        self._all.release()
        turns.free.release()
        turns.users -= 1

    async def _wait_for_start(self, turns: HostTurns) -> None:
        loop = asyncio.get_running_loop()
        while (wait := turns.next_start - loop.time()) > 0:
            # whoever comes next finds the start moved on, so two waiters never start together
            await asyncio.sleep(wait)
        turns.next_start = loop.time() + turns.delay_seconds

    def slow_down(self, host: str, delay_seconds: float) -> None:
        """Keep at least so many seconds between starts at this host from now on (Crawl-delay)."""
        turns = self._host(host)
        turns.delay_seconds = max(turns.delay_seconds, delay_seconds)

    def pause(self, host: str, seconds: float) -> None:
        """Start nothing at this host for so many seconds (Retry-After)."""
        turns = self._host(host)
        turns.next_start = max(turns.next_start, asyncio.get_running_loop().time() + seconds)

    def connected(self, host: str) -> None:
        """The host answers: earlier failures no longer count."""
        turns = self._host(host)
        turns.num_failures, turns.failure = 0, None

    def failed(self, host: str, failure: FetchFailure) -> None:
        """There was no connection to the host."""
        turns = self._host(host)
        turns.num_failures += 1
        turns.failure = failure.remembered()
