"""A process that extracts pages one at a time, so that a page that hangs or crashes its parser costs one page.

Parsers written in C do not listen to signals of Python: only the end of their process ends them. Pages go in as
pickled messages and results come out as JSON (what parsed hostile pages is not trusted with more), each after its
length, over the process's standard input and output.

    python -m tasks.scrape.page_process PARENT_PID     (started by PageProcess, not by people)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import orjson

from tasks.errors import StageError
from tasks.records import Document, Page
from tasks.scrape.config import ExtractConfig
from tasks.scrape.extract import ExtractReason, Result, extract_page, reason_unread
from tasks.scrape.extractors.contract import load_extractor

LENGTH = struct.Struct("<Q")
READY = "ready"
START_SECONDS = 120.0
CLOSE_SECONDS = 5.0
READ_BYTES = 1 << 16
PR_SET_PDEATHSIG = 1
EXIT_OUT_OF_MEMORY = 9


class PageProcess:
    """Extracts pages with the limits of ExtractResources. Starts its process when there is a page for it."""

    def __init__(self, config: ExtractConfig) -> None:
        self._config = config
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._num_pages = 0
        self.num_starts = 0

    def extract(self, page: Page) -> Result:
        """The document of a page, or its reason. Raises StageError when the process cannot even start."""
        if (reason := reason_unread(page, self._config)) is not None:
            return None, reason
        if self._child is None:
            self._start()
        try:
            self._send(page)
            result = _result(self._receive(self._config.resources.page_seconds))
        except TimeoutError:
            self.close(kill=True)
            return None, ExtractReason.TIMEOUT
        except (EOFError, BrokenPipeError, ConnectionError):
            lacked_memory = self.close() == EXIT_OUT_OF_MEMORY
            return None, ExtractReason.OUT_OF_MEMORY if lacked_memory else ExtractReason.PARSER_CRASH
        self._num_pages += 1
        if self._num_pages >= self._config.resources.pages_per_process:
            self.close()
        return result

    def _start(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tasks.scrape.page_process", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )
        self._num_pages = 0
        self.num_starts += 1
        try:
            self._send(self._config)
            if self._receive(START_SECONDS) != READY:
                raise EOFError
        except (EOFError, TimeoutError, BrokenPipeError) as error:
            self._errors.seek(0)
            said = self._errors.read()[-2000:].decode("utf-8", "replace").strip()
            self.close(kill=True)
            raise StageError(f"the extractor {self._config.extractor} cannot be started:\n{said}") from error

    def _send(self, message: object) -> None:
        assert self._child is not None and self._child.stdin is not None
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._child.stdin.write(LENGTH.pack(len(data)) + data)
        self._child.stdin.flush()

    def _receive(self, max_seconds: float) -> Any:
        """The next message. Raises TimeoutError, and EOFError when the process has ended."""
        assert self._child is not None and self._child.stdout is not None
        descriptor = self._child.stdout.fileno()
        deadline = time.monotonic() + max_seconds
        data = bytearray()
        wanted = LENGTH.size
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not poll.poll(remaining * 1000):
                raise TimeoutError
            piece = os.read(descriptor, READ_BYTES)
            if not piece:
                raise EOFError
            data += piece
            if wanted == LENGTH.size and len(data) >= wanted:
                wanted += LENGTH.unpack_from(data)[0]
            if len(data) == wanted and wanted > LENGTH.size:
                return orjson.loads(memoryview(data)[LENGTH.size :])

    def close(self, *, kill: bool = False) -> int | None:
        """End the process, if there is one, and return its exit code. It may finish by itself unless `kill`."""
        child, self._child = self._child, None
        if child is None:
            return None
        assert child.stdin is not None and child.stdout is not None
        if kill:
            child.kill()
        with contextlib.suppress(OSError):
            child.stdin.close()
        try:
            exit_code = child.wait(timeout=CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            exit_code = child.wait()
        child.stdout.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None
        return exit_code


def _answer(result: Result) -> list[Any]:
    document, reason = result
    if document is None:
        return [reason]
    return [None, document.id, document.url, document.text, document.extra]


def _result(answer: list[Any]) -> Result:
    reason, *fields = answer
    return (None, ExtractReason(reason)) if reason is not None else (Document(*fields), None)


def _end_with(parent: int) -> None:
    """The kernel kills this process when its parent is gone (Linux; elsewhere the closed pipe ends it)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _address_space() -> int:
    """Bytes of address space that this process has by now (Linux; 0 elsewhere)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def serve(messages: IO[bytes], answers: IO[bytes]) -> None:
    """Read the settings, then pages until the input ends; write READY, then a result for each page."""

    def read() -> Any:
        head = messages.read(LENGTH.size)
        return pickle.loads(messages.read(LENGTH.unpack(head)[0])) if len(head) == LENGTH.size else None

    def write(message: object) -> None:
        data = orjson.dumps(message)
        answers.write(LENGTH.pack(len(data)) + data)
        answers.flush()

    config: ExtractConfig = read()
    load_extractor(config.extractor)
    limit = _address_space() + config.resources.page_memory_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    write(READY)
    while (page := read()) is not None:
        try:
            result = extract_page(page, config)
        except MemoryError:
            os._exit(EXIT_OUT_OF_MEMORY)
        write(_answer(result))


def main() -> None:
    """Serve one parent. What parsers print goes nowhere near the answers."""
    _end_with(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
