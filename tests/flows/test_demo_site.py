from __future__ import annotations

import re
import urllib.error
import urllib.request

import pytest

from flows.demo_command import FAULTY_LINES, free_port, serving, url_lines
from flows.demo_site import Pages, module_names


def test_names_are_found_without_importing_and_in_order() -> None:
    names = module_names()
    assert names == sorted(set(names)) and len(names) > 300
    assert {"json", "asyncio.tasks", "email.mime.text"} <= set(names)
    assert not {"antigravity", "this"} & set(names)
    assert "numpy" in module_names(["numpy"])


def test_a_page_holds_no_address_of_an_object() -> None:
    pages = Pages(["argparse", "json"])
    page = pages.get("argparse")
    assert page is not None and b"ArgumentParser" in page and b" at 0x" not in page
    for name in ("ctypes", "difflib", "ftplib"):
        assert not re.search(rb"0x[0-9a-f]{8}|handle [0-9a-f]{8}", Pages([name]).get(name) or b"no page 0x00000000")
    assert b"warningregistry" not in (Pages(["aifc"]).get("aifc") or b"")  # a module that Python 3.13 has no more
    assert pages.get("os") is None, "a name that is not in the list has no page"


def test_the_site_serves_pages_robots_and_misses() -> None:
    port = free_port()
    with serving(port, []):
        site = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{site}/json.html") as answer:
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8" and b"JSON" in answer.read()
        with urllib.request.urlopen(f"{site}/robots.txt") as answer:
            assert b"Disallow: /private/" in answer.read()
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"{site}/no_such.html")
        assert error.value.code == 404
        error.value.close()


def test_no_page_tells_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "hush-3141")
    port = free_port()
    with serving(port, []):
        for name in ("os", "posix"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}.html") as answer:
                page = answer.read()
            assert b"environ" in page and b"hush-3141" not in page and b"SOME_TOKEN" not in page


def test_the_list_has_faults_in_it() -> None:
    lines = url_lines(8650, ["json", "os", "re"])
    assert lines[:3] == [f"http://127.0.0.1:8650/{name}.html" for name in ("json", "os", "re")]
    assert set(FAULTY_LINES) <= set(lines) and len(lines) == 3 + 3 + 1 + 4 + len(FAULTY_LINES)
