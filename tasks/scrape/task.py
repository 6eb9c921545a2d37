"""Prefect tasks of scraping."""

from tasks.orchestration import stage_task
from tasks.scrape.stage import EXTRACT, FETCH, FILTER

filter_urls = stage_task(FILTER)
fetch = stage_task(FETCH)
extract = stage_task(EXTRACT)
