"""The stages of scraping."""

from __future__ import annotations

from tasks.scrape.extract_stage import EXTRACT
from tasks.scrape.fetch_stage import FETCH
from tasks.scrape.filter_stage import FILTER

__all__ = ["EXTRACT", "FETCH", "FILTER"]
