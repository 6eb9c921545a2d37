"""Settings of the fetcher: what is fetched and stored, and how fast."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, field_validator

from tasks.configuration import Config, Resources, StageConfig

MEGABYTE = 1 << 20
INDEX_NAME = "pages.cdxj"
"""The index of the WARC files of a fetch."""
_HOST_PATTERN = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s/@:\[\]]+)(:\d{1,5})?")


class FetchLimits(Config):
    """Where a page ends, whatever its server does."""

    page_seconds: float = Field(default=60.0, gt=0)
    """Seconds of network time one page may take, redirects and retries included, waiting for its turn not."""
    connect_seconds: float = Field(default=10.0, gt=0)
    """Seconds to look up a host name and connect."""
    silence_seconds: float = Field(default=20.0, gt=0)
    """Seconds a server may send nothing in the middle of an answer."""
    max_body_bytes: int = Field(default=8 * MEGABYTE, gt=0)
    """Bytes of a body as it is sent (compressed, where it is)."""
    max_page_bytes: int = Field(default=16 * MEGABYTE, gt=0)
    """Bytes of a body after decompression."""
    max_header_bytes: int = Field(default=32_768, ge=1024)
    """Bytes of the status line and of any one header field."""
    max_redirects: int = Field(default=10, ge=0)
    """Redirects followed for one page."""
    retries: int = Field(default=2, ge=0)
    """Further attempts for one page after 429, 503, a timeout, a reset or a temporary failure to look up the host."""
    max_retry_after_seconds: float = Field(default=60.0, ge=0)
    """The longest wait a server can ask for with Retry-After, in seconds."""
    max_crawl_delay_seconds: float = Field(default=30.0, ge=0)
    """The longest Crawl-delay of a robots.txt that is honoured, in seconds."""


class FetchResources(Resources):
    """How fast the fetcher runs. Nothing here changes what is stored for a page.

    One event loop holds all connections, or no host could be treated politely; up to `workers` processes compress
    pages.
    """

    max_requests: int = Field(default=256, ge=1)
    """Requests in flight at the same time, over all hosts."""
    max_requests_per_host: int = Field(default=2, ge=1)
    """Requests in flight at the same time to one host."""
    delay_seconds: float = Field(default=1.0, ge=0)
    """Seconds between the starts of two requests to one host; a longer Crawl-delay of its robots.txt counts instead."""
    max_host_failures: int = Field(default=8, ge=1)
    """After so many failures to connect in a row a host is given up: its other pages fail for the same reason."""
    backoff_seconds: float = Field(default=1.0, ge=0)
    """Seconds before the first retry; each further one waits twice as long. Up to half of it is added at random."""
    max_queued_urls: int = Field(default=4000, ge=1)
    """URLs taken from the list ahead of the oldest unfinished one; with more, slow hosts hold up others less."""
    proxy: str | None = None
    """HTTP proxy for all requests, such as "http://proxy.example:3128"; the proxy then looks up host names itself."""
    seed: int = 0
    """Seed of the random part of waiting times."""

    @field_validator("proxy")
    @classmethod
    def _proxy_is_http(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("a proxy is given as http://HOST:PORT or https://HOST:PORT")
        return value


class FetchConfig(StageConfig):
    """Settings of the stage that fetches pages."""

    user_agent: str = Field(default="url2lm/0.1", min_length=1)
    """Name and version sent to servers; the part before the slash is the name looked for in robots.txt."""
    contact: str = ""
    """Where the owner of a site can reach you: an address of a web page or a mail address, sent with the name."""
    respect_robots: bool = True
    """Ask each site's robots.txt first and keep to it (RFC 9309)."""
    respect_noai: bool = True
    """Leave out pages whose X-Robots-Tag header says "noai"."""
    accepted_types: tuple[str, ...] = ("text/html", "application/xhtml+xml")
    """Media types that are stored; a missing or meaningless Content-Type is replaced by a look at the first bytes."""
    allow_private_hosts: tuple[str, ...] = ()
    """Hosts, as "host" or "host:port", that may be fetched although their address is private or of this machine."""
    earlier_crawl: Path | None = None
    """Folder of an earlier fetch (its WARC files and pages.cdxj): pages that did not change since are taken from there
    (If-None-Match, If-Modified-Since)."""
    urls_per_shard: int = Field(default=500, ge=1)
    """URLs whose pages share one WARC file."""
    limits: FetchLimits = FetchLimits()
    """Sizes, times and numbers of attempts."""
    resources: FetchResources = FetchResources()
    """Parallelism and politeness."""

    @field_validator("user_agent", "contact")
    @classmethod
    def _fits_a_header(cls, value: str) -> str:
        if not value.isascii() or not value.isprintable():
            raise ValueError("it is sent as an HTTP header: only printable ASCII characters")
        return value

    @field_validator("accepted_types")
    @classmethod
    def _types_are_lower_case(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(item.strip().lower() for item in value)

    @field_validator("allow_private_hosts")
    @classmethod
    def _hosts_are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for item in value:
            if not _HOST_PATTERN.fullmatch(item):
                raise ValueError(f'{item!r} is neither "host" nor "host:port" (an IPv6 address stands in brackets)')
        return tuple(item.lower() for item in value)

    @field_validator("earlier_crawl")
    @classmethod
    def _crawl_has_an_index(cls, value: Path | None) -> Path | None:
        if value is not None and not (value / INDEX_NAME).is_file():
            raise ValueError(f"{value} has no {INDEX_NAME}: give the folder of a finished fetch, as `inspect` names it")
        return value

    @property
    def user_agent_header(self) -> str:
        """The User-Agent header: the name, and the contact in RFC 9110's comment form."""
        return f"{self.user_agent} (+{self.contact})" if self.contact else self.user_agent

    @property
    def robots_name(self) -> str:
        """The product token that robots.txt rules are matched against (RFC 9309, section 2.2.1)."""
        return self.user_agent.split("/", 1)[0].split(" ", 1)[0]
