"""Adapters of the cases `fetch` and `fetch_many`: a scripted server on 127.0.0.1 and the product's own crawl.

What a case serves is read from its schema: `status`, `headers`, and a body as `page` (title and paragraphs), `body`,
`body_hex` or `generate` (a sentence; see `generated_body`); `sequence` answers one after the other, `cases` one path
each. A key, a limit, a sentence or an expectation that is not known here fails the case: nothing passes unlooked at.
"""

from __future__ import annotations

import asyncio
import html
import importlib.util
import itertools
import json
import re
import resource
import socket
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fastwarc.warc import ArchiveIterator, WarcRecordType

from tasks.records import read_lines
from tasks.scrape.fetch_config import FetchConfig, FetchLimits, FetchResources
from tasks.scrape.fetch_crawl import Crawl

_NAME = "scripted_server"
if _NAME not in sys.modules:
    _path = Path(__file__).parents[2] / "tasks" / "scrape" / "fetch" / f"{_NAME}.py"
    _spec = importlib.util.spec_from_file_location(_NAME, _path)
    assert _spec is not None and _spec.loader is not None
    sys.modules[_NAME] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_NAME])
ScriptedServer = sys.modules[_NAME].ScriptedServer  # type: ignore[attr-defined]

UNITS = {"byte": 1, "b": 1, "kb": 10**3, "kib": 1 << 10, "mb": 10**6, "mib": 1 << 20, "gb": 10**9, "gib": 1 << 30}
FILLS = {"zero": b"\0", "null": b"\0", "space": b" "}
PIECE = 1 << 16

# The names of reasons in the cases are indicative: these are other words for ours.
SYNONYMS = {
    "timeout": {"timeout", "timed_out", "deadline", "total_timeout", "read_timeout", "connect_timeout"},
    "too_large": {"too_large", "body_too_large", "size_limit", "decompression_bomb", "bomb", "too_big", "max_bytes"},
    "truncated": {"truncated", "incomplete", "cut_off"},
    "content_type": {"content_type", "not_html", "unsupported_content_type"},
    "private_host": {"private_host", "private_address", "blocked_host", "forbidden_host", "blocked_address"},
    "robots_disallowed": {"robots_disallowed", "robots", "disallowed", "robots_txt"},
    "robots_unavailable": {"robots_unavailable", "robots", "disallowed", "robots_disallowed", "robots_error"},
    "http_error": {
        "http_error",
        "http_status",
        "bad_status",
        "status",
        "not_found",
        "rate_limited",
        "too_many_requests",
    },
    "dns_failure": {"dns_failure", "dns", "dns_error", "unknown_host"},
    "connection_reset": {"connection_reset", "reset", "disconnected", "connection_error", "connection"},
    "connection_refused": {"connection_refused", "refused", "connection_error", "connection"},
    "connection_failed": {"connection_failed", "unreachable", "connection_error", "connection"},
    "tls_error": {"tls_error", "tls", "ssl", "ssl_error", "certificate"},
    "bad_encoding": {"bad_encoding", "decode_error", "encoding", "content_encoding", "truncated"},
    "bad_response": {"bad_response", "protocol_error", "invalid_response", "header_too_large"},
    "empty_body": {"empty_body", "empty"},
    "bad_redirect": {"bad_redirect", "invalid_redirect", "redirect", "bad_url"},
}
LIMITS: dict[str, tuple[str, ...]] = {
    "page_seconds": ("page_seconds", "total_seconds", "deadline_seconds", "timeout_seconds", "max_seconds", "timeout"),
    "connect_seconds": ("connect_seconds", "connect_timeout_seconds"),
    "silence_seconds": ("silence_seconds", "read_seconds", "idle_seconds", "read_timeout_seconds"),
    "max_redirects": ("max_redirects", "redirects"),
    "retries": ("retries", "max_retries"),
    "max_retry_after_seconds": ("max_retry_after_seconds", "retry_after_cap_seconds"),
    "max_body_bytes": ("max_body_bytes", "max_bytes", "max_body_mb", "max_mb", "max_size_bytes", "max_size_mb"),
    "max_page_bytes": ("max_page_bytes", "max_decompressed_bytes", "max_decompressed_mb", "max_decoded_bytes"),
}
RESOURCES: dict[str, tuple[str, ...]] = {
    "delay_seconds": ("delay_seconds", "per_host_delay_seconds", "host_delay_seconds"),
    "max_requests_per_host": ("max_requests_per_host", "per_host", "per_host_connections", "concurrency_per_host"),
    "max_requests": ("max_requests", "concurrency"),
}


def _fill(text: str) -> bytes:
    quoted = re.fullmatch(r"['\"](.*)['\"]", text.strip(), re.DOTALL)
    if quoted:
        return quoted.group(1).encode()
    return next(fill for name, fill in FILLS.items() if name in text.lower())


def _terms(text: str) -> Iterator[tuple[bytes, int]]:
    """The parts of "'<html>' + 'x'*1000 + 3 MB of zeros" as (bytes, repeats)."""
    for term in re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^+'\"])+", text):
        if size := re.fullmatch(r"\s*([\d.]+)\s*([a-zA-Z]+?)s? of (.+?)\s*", term):
            unit = _fill(size.group(3))
            yield unit, int(float(size.group(1)) * UNITS[size.group(2).lower()]) // len(unit)
        elif literal := re.fullmatch(r"\s*('[^']*'|\"[^\"]*\")\s*(?:\*\s*([\d_]+))?\s*", term):
            yield _fill(literal.group(1)), int(literal.group(2) or 1)
        else:
            raise AssertionError(f"no way to generate {term!r}")


def generated_body(sentence: str) -> bytes:
    """The body of "[gzip|deflate of] TERMS[, last N bytes removed][, Content-Length of the shortened body]"."""
    what, *changes = re.split(r",\s+(?=last |first |Content-Length|no Content-Length)", sentence)
    coded = re.match(r"(gzip|deflate) of ", what)
    pieces: list[bytes] = []
    stream = zlib.compressobj(6, zlib.DEFLATED, 31 if coded.group(1) == "gzip" else 15) if coded else None
    for unit, count in _terms(what[coded.end() :] if coded else what):
        block = unit * max(1, min(count, PIECE // max(1, len(unit))))
        left = len(unit) * count
        while left > 0:
            data = block[:left]
            pieces.append(stream.compress(data) if stream else data)
            left -= len(data)
    body = b"".join(pieces) + (stream.flush() if stream else b"")
    for change in changes:
        if cut := re.fullmatch(r"(last|first) (\d+) bytes (?:removed|missing|cut)", change):
            number = int(cut.group(2))
            body = body[:-number] if cut.group(1) == "last" else body[number:]
        elif not re.fullmatch(r"Content-Length of the (shortened|cut|sent) body", change):
            raise AssertionError(f"no way to generate {change!r}")
    return body


def page_bytes(page: dict[str, Any], encoding: str) -> bytes:
    """Plain HTML of a title and paragraphs."""
    paragraphs = "\n".join(f"<p>{html.escape(text)}</p>" for text in page["paragraphs"])
    text = (
        f"<!DOCTYPE html><html><head><title>{html.escape(page['title'])}</title></head><body>{paragraphs}</body></html>"
    )
    return text.encode(encoding)


def handler(spec: dict[str, Any]) -> Callable[[Any], Any]:
    """A server's answer by the schema."""
    known = {
        "status", "headers", "page", "encode", "body", "body_hex", "generate", "delay_seconds", "drip_seconds",
        "close_after_bytes", "reset",
    }  # fmt: skip
    assert set(spec) <= known, f"unknown keys of `serve`: {sorted(set(spec) - known)}"
    body = b""
    if "page" in spec:
        body = page_bytes(spec["page"], spec.get("encode", "utf-8"))
    elif "generate" in spec:
        body = generated_body(spec["generate"])
    elif "body_hex" in spec:
        body = bytes.fromhex(spec["body_hex"])
    elif "body" in spec:
        body = spec["body"].encode()

    async def answer(exchange: Any) -> None:
        if spec.get("reset"):
            exchange.reset()
            return
        await asyncio.sleep(spec.get("delay_seconds", 0))
        headers = {
            name: exchange.path if value == "same address" else value for name, value in spec.get("headers", {}).items()
        }
        sent = body[: spec.get("close_after_bytes", len(body))]
        if "drip_seconds" in spec:
            await exchange.answer(spec.get("status", 200), headers, b"", length=len(body))
            for place in range(len(sent)):
                await exchange.raw(sent[place : place + 1])
                await asyncio.sleep(spec["drip_seconds"])
        else:
            await exchange.answer(spec.get("status", 200), headers, sent, length=len(body))
        if len(sent) < len(body):
            exchange.close()

    return answer


def in_sequence(specs: list[dict[str, Any]]) -> Callable[[Any], Any]:
    """One answer after the other; the last one stays."""
    handlers = [handler(spec) for spec in specs]

    async def answer(exchange: Any) -> None:
        await handlers[min(exchange.number, len(handlers)) - 1](exchange)

    return answer


def route(spec: dict[str, Any]) -> Callable[[Any], Any]:
    return in_sequence(spec["sequence"]) if "sequence" in spec else handler(spec)


def settings(given: dict[str, Any], host: str, respect_robots: bool) -> FetchConfig:
    """The product's settings for the limits of a case; everything else is the default, but no delay at this host."""
    values: dict[str, dict[str, Any]] = {"limits": {}, "resources": {"delay_seconds": 0.0}}
    for name, value in given.items():
        for group, names in (("limits", LIMITS), ("resources", RESOURCES)):
            ours = next((field for field, others in names.items() if name in others), None)
            if ours is not None:
                values[group][ours] = int(value * 10**6) if name.endswith("_mb") else value
                break
        else:
            raise AssertionError(f"unknown limit {name!r}")
    return FetchConfig(
        allow_private_hosts=(host,),
        # a case without a robots.txt counts its own requests only; asking for one would also leave a used connection
        respect_robots=respect_robots,
        limits=FetchLimits(**values["limits"]),
        resources=FetchResources(**values["resources"]),
    )


class Run:
    """One crawl over a scripted server, and what came of it."""

    def __init__(self, server: Any, paths: list[str], limits: dict[str, Any], tmp_path: Path) -> None:
        self.server, self.attempts = server, []
        urls = [path if "://" in path else server.url(path) for path in paths]
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        crawl = Crawl(settings(limits, server.host, "/robots.txt" in server.routes), tmp_path, scratch, self._lookup)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.monotonic()
        asyncio.run(crawl.run(iter(urls)))
        self.seconds = time.monotonic() - started
        self.megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
        self.rows = [json.loads(line) for files in crawl.shards for line in read_lines(files.outcomes)]
        self.keys, self.requested = [], []
        for path in sorted(tmp_path.glob("pages-*.warc.gz")):
            with path.open("rb") as stream:
                for record in ArchiveIterator(stream, record_types=WarcRecordType.response):
                    self.keys.append(record.headers["WARC-Target-URI"])
                    self.requested.append(record.headers["WARC-Requested-URI"])

    def _lookup(self, host: str, port: int) -> list[tuple[int, str]]:
        """No name is looked up for real; the attempt is recorded."""
        if host == "127.0.0.1":
            return [(socket.AF_INET, host)]
        self.attempts.append(f"{host}:{port}")
        raise socket.gaierror(socket.EAI_NONAME, "no names in tests")

    def result(self, row: dict[str, Any]) -> set[str]:
        """Every way a case may spell what became of a URL."""
        if row["reason"] == "ok":
            return {"ok"}
        reasons = {row["reason"], *SYNONYMS.get(row["reason"], ())}
        if row["status"]:
            reasons |= {f"http_{row['status']}", str(row["status"])}
        return {"failed", "dropped", *reasons, *(f"failed: {reason}" for reason in reasons)}


def agrees(found: set[str], wanted: Any) -> bool:
    """True when one of the spellings is what the case wants (a text, or {"one_of": [...]})."""
    if isinstance(wanted, dict) and set(wanted) == {"one_of"}:
        return any(agrees(found, choice) for choice in wanted["one_of"])
    return str(wanted) in found


def check(run: Run, expect: dict[str, Any]) -> None:
    """Hold the run against every expectation of the case."""
    server = run.server
    page_times = sorted(moment for moment, path in server.requests if path != "/robots.txt")
    gaps = [later - earlier for earlier, later in itertools.pairwise(page_times)]
    for name, wanted in expect.items():
        if name in ("status", "reason"):
            assert all(agrees(run.result(row), wanted) for row in run.rows), (name, wanted, run.rows)
        elif name == "results":
            pairs = zip(run.rows, wanted.values() if isinstance(wanted, dict) else wanted, strict=True)
            for row, each in pairs:
                assert agrees(run.result(row), each), (each, row)
        elif name in ("document_written", "documents_written"):
            assert len(run.keys) == int(wanted), run.keys
        elif name == "requests_seen_by_server":
            if isinstance(wanted, dict):
                assert {path: server.counts[path] for path in wanted} == wanted, server.counts
            else:
                assert server.pages_requested == wanted, server.counts
        elif name == "requests_seen_by_server_at_most":
            assert server.pages_requested <= wanted, server.counts
        elif name == "seconds_between_requests_at_least":
            assert gaps and min(gaps) >= wanted, gaps
        elif name == "max_seconds":
            assert run.seconds <= wanted, run.seconds
        elif name == "max_rss_increase_mb":
            assert run.megabytes <= wanted, run.megabytes
        elif name == "requests_at_the_same_time_at_most":
            assert server.most_active <= wanted, server.most_active
        elif name == "record_keeps":
            assert set(wanted) <= {"requested url", "final url"}, wanted
            assert all(row["url"] and row["final_url"] for row in run.rows if row["status"]), run.rows
            assert all(run.requested) and all(run.keys)
        elif name == "url_key_unique":
            assert (len(set(run.keys)) == len(run.keys)) == wanted, run.keys
        elif name == "exception":
            assert wanted is None
        else:
            raise AssertionError(f"unknown expectation {name!r}")


def adapter_fetch(case: dict[str, Any], tmp_path: Path) -> None:
    """One address of a scripted server, or one a `cases` entry."""
    given = case["input"]
    serve = given["serve"]
    if "cases" in serve:
        routes = {f"/page/{number}": route(spec) for number, spec in enumerate(serve["cases"])}
    elif any(name.startswith("/") for name in serve):
        routes = {path: route(spec) for path, spec in serve.items()}
    else:
        routes = {"/page": route(serve)}
    paths = [given["url"]] if "url" in given else [path for path in routes if path != "/robots.txt"]
    if "url" not in given and "cases" not in serve:
        paths = paths[:1]
    with ScriptedServer(routes) as server:
        check(Run(server, paths, given.get("limits", {}), tmp_path), case["expect"])


def adapter_fetch_many(case: dict[str, Any], tmp_path: Path) -> None:
    """Several addresses of one scripted server."""
    given = case["input"]
    with ScriptedServer({path: route(spec) for path, spec in given["serve"].items()}) as server:
        check(Run(server, given["urls"], given.get("limits", {}), tmp_path), case["expect"])


ADAPTERS = {"fetch": adapter_fetch, "fetch_many": adapter_fetch_many}
