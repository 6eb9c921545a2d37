"""Settings of the stages that turn a list of URLs into documents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from tasks.configuration import Resources, StageConfig
from tasks.errors import nearest
from tasks.scrape.extractors.names import DEFAULT_EXTRACTOR, EXTRACTOR_NAMES
from tasks.scrape.fetch_config import FetchConfig

__all__ = ["ExtractConfig", "ExtractResources", "FetchConfig", "FilterConfig", "FilterResources"]

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s/@:\[\]]+)(:\d{1,5})?")


class FilterResources(Resources):
    """How much the filter holds in memory. One process reads the lists, as fast as most disks do."""

    max_urls_in_memory: int = Field(default=2_000_000, ge=1)
    """URLs that pass the rules up to which duplicates are found in memory, about 100 bytes each; on disk above."""


class FilterConfig(StageConfig):
    """Which URLs are fetched."""

    preset: Literal["url2lm", "megatron"] = "url2lm"
    """"megatron" decides as blacklist_urls.py of Megatron-LM did, faults included, and looks at no other setting."""
    blocked_domains: tuple[str, ...] = ()
    """Hosts to drop with everything below them, beside those of the list."""
    blocked_domains_file: Path | None = None
    """List of hosts to drop, one a line, instead of the packaged one."""
    blocked_extensions: tuple[str, ...] = ()
    """Endings of the path to drop, such as "pdf", beside those of the list."""
    blocked_extensions_file: Path | None = None
    """List of endings to drop instead of the packaged one."""
    blocked_words: tuple[str, ...] = ()
    """Words or phrases to drop when they stand between separators in host or path, beside those of the list."""
    blocked_words_file: Path | None = None
    """List of words to drop, one a line, instead of the packaged one."""
    tracking_parameters_file: Path | None = None
    """List of query parameters that are not compared, one a line, instead of the packaged one."""
    allow_private_hosts: tuple[str, ...] = ()
    """Hosts, as "host" or "host:port", that may be private, without a dot, or numbers of this machine's network."""
    min_url_characters: int = Field(default=10, ge=1)
    """Shorter URLs are dropped; characters."""
    max_url_characters: int = Field(default=2000, ge=1)
    """Longer URLs are dropped; characters."""
    max_urls_per_domain: int | None = Field(default=None, ge=1)
    """URLs kept of one site (registrable domain; owners below github.io and its like are sites of their own)."""
    same_page_without_scheme: bool = True
    """http and https lead to one page."""
    same_page_without_www: bool = True
    """A host with and without www in front leads to one page."""
    same_page_without_slash: bool = True
    """A path with and without a slash at its end leads to one page."""
    resources: FilterResources = FilterResources()
    """Memory."""

    @field_validator("allow_private_hosts")
    @classmethod
    def _hosts_are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for item in value:
            if not _HOST.fullmatch(item):
                raise ValueError(f'{item!r} is neither "host" nor "host:port" (an IPv6 address stands in brackets)')
        return tuple(item.lower() for item in value)

    @model_validator(mode="after")
    def _lengths_leave_room(self) -> Self:
        if self.min_url_characters > self.max_url_characters:
            raise ValueError(
                f"min_url_characters ({self.min_url_characters}) is more than "
                f"max_url_characters ({self.max_url_characters}): no URL would be left"
            )
        return self


class ExtractResources(Resources):
    """How fast pages are extracted, and when a page is given up."""

    page_seconds: float = Field(default=30.0, gt=0)
    """Seconds a parser may take for one page; then its process is ended and the page counts as timed out."""
    page_memory_bytes: int = Field(default=4 << 30, ge=64 << 20)
    """Bytes of memory a parser may take beside what it needs to start; a page that needs more is dropped."""
    pages_per_process: int = Field(default=2000, ge=1)
    """Pages after which a parser's process is replaced by a fresh one, so that leaks of parsers do not add up."""


class ExtractConfig(StageConfig):
    """How pages become text."""

    extractor: str = DEFAULT_EXTRACTOR
    """Which package finds the main text of a page."""
    min_text_characters: int = Field(default=100, ge=1)
    """Documents with less text are dropped; characters."""
    max_page_bytes: int = Field(default=16 << 20, ge=1)
    """Larger pages are dropped unread; bytes of HTML."""
    resources: ExtractResources = ExtractResources()
    """Workers and limits of a page."""

    @field_validator("extractor")
    @classmethod
    def _extractor_is_known(cls, value: str) -> str:
        if value not in EXTRACTOR_NAMES:
            raise ValueError(f"there is no such extractor. {nearest(value, EXTRACTOR_NAMES)}")
        return value
