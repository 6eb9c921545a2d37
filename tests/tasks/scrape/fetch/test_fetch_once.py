"""Fetched pages serve every extractor: another one, or other settings of it, asks no server again."""

from __future__ import annotations

from pathlib import Path

from scripted_server import ScriptedServer, html, page

from tasks.adopt import adopt_urls
from tasks.scrape.config import ExtractConfig
from tasks.scrape.extract_stage import EXTRACT
from tasks.scrape.fetch_config import FetchConfig, FetchResources
from tasks.scrape.fetch_stage import FETCH
from tasks.store import ArtifactStore

WORDS = "The bridge will cost more than the council had expected, and the town will pay for it over many years. " * 6


def test_another_extractor_does_not_fetch_again(tmp_path: Path) -> None:
    path = tmp_path / "urls.txt"
    keys: dict[str, str] = {}
    with ScriptedServer({"/a": html(page(text=WORDS)), "/b": html(page(text=WORDS[::-1]))}) as server:
        path.write_text(f"{server.url('/a')}\n{server.url('/b')}\n")
        config = FetchConfig(allow_private_hosts=(server.host,), resources=FetchResources(delay_seconds=0))
        for extractor in ("beautifulsoup4", "resiliparse"):
            store = ArtifactStore(tmp_path / "store")
            pages = store.run(FETCH, config, [adopt_urls(store, [path])])
            documents = store.run(EXTRACT, ExtractConfig(extractor=extractor), [pages])
            assert documents.num_documents >= 1
            keys[extractor] = documents.key
        assert dict(server.counts) == {"/robots.txt": 1, "/a": 1, "/b": 1}
    assert len(set(keys.values())) == 2
