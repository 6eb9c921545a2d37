"""newspaper3k: as the classic recipes use it, without images, downloads and caches of articles."""

from __future__ import annotations

import warnings

from tasks.scrape.extractors.contract import Extracted, Extractor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its source has escape sequences that Python no longer likes
    import newspaper


def _extract(html: str, url: str) -> Extracted:
    config = newspaper.Config()
    config.fetch_images = False
    config.memoize_articles = False
    article = newspaper.Article(url or "http://localhost/", config=config)
    article.set_html(html.encode("utf-8", "replace").decode("utf-8"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # and its calls of other packages that those deprecate
        article.parse()
    date = article.publish_date.isoformat() if hasattr(article.publish_date, "isoformat") else ""
    return Extracted(article.text or "", article.title or "", date, article.meta_lang or "")


EXTRACTORS: dict[str, Extractor] = {"newspaper3k": _extract}
