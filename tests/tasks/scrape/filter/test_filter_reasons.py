"""Every reason of the filter, and what is kept and repaired."""

from __future__ import annotations

import pytest

from tasks.scrape.config import FilterConfig
from tasks.scrape.filter_blocks import BlockSieve
from tasks.scrape.filter_reasons import FilterReason, Tally, example_of
from tasks.scrape.filter_urls import UrlFilter
from tasks.scrape.repair_url import repair_url

DROPPED = [
    ("ftp://ftp.example.com/a", FilterReason.UNSUPPORTED_SCHEME),
    ("mailto:someone@example.com", FilterReason.UNSUPPORTED_SCHEME),
    ("javascript:void(0)", FilterReason.UNSUPPORTED_SCHEME),
    ("http://example.com/a\x0bb", FilterReason.CONTROL_CHARACTER),
    ("http://exam\tple.com/a", FilterReason.CONTROL_CHARACTER),
    ("http://example.com/a\u2028b", FilterReason.CONTROL_CHARACTER),
    ("some words", FilterReason.MALFORMED),
    ("example.com:8080/a", FilterReason.MALFORMED),
    ("http://", FilterReason.MALFORMED),
    ("http://exa mple.com/", FilterReason.MALFORMED),
    ("http://example..com/", FilterReason.MALFORMED),
    ("http://example.com:99999/", FilterReason.MALFORMED),
    ("http://example.com:port/", FilterReason.MALFORMED),
    ("http://999.999.999.999/", FilterReason.MALFORMED),
    ("http://[::1/", FilterReason.MALFORMED),
    ("http://xn--a.com/", FilterReason.MALFORMED),
    ("http://\udce9xample.com/", FilterReason.MALFORMED),
    ("http://" + "a" * 64 + ".com/", FilterReason.MALFORMED),
    ("http://127.0.0.1/", FilterReason.PRIVATE_HOST),
    ("http://１２７.０.０.１/", FilterReason.PRIVATE_HOST),
    ("http://0x7F000001/", FilterReason.PRIVATE_HOST),
    ("http://[::ffff:7f00:1]/", FilterReason.PRIVATE_HOST),
    ("http://printer.local/", FilterReason.PRIVATE_HOST),
    ("http://router.home.arpa/", FilterReason.PRIVATE_HOST),
    ("http://1.0.0.127.in-addr.arpa/", FilterReason.PRIVATE_HOST),
    ("http://abcdefghijklmnop.onion/", FilterReason.PRIVATE_HOST),
    ("http://LOCALHOST./", FilterReason.PRIVATE_HOST),
    ("http://%6cocalhost/", FilterReason.PRIVATE_HOST),
    ("http://intern:secret@10.0.0.1/", FilterReason.PRIVATE_HOST),
    ("http://server/", FilterReason.NO_REGISTRABLE_DOMAIN),
    ("http://co.uk/a", FilterReason.NO_REGISTRABLE_DOMAIN),
    ("http://page.example/", FilterReason.NO_REGISTRABLE_DOMAIN),
    ("http://i.imgur.com/a", FilterReason.BLOCKED_DOMAIN),
    ("http://IMGUR.com./a", FilterReason.BLOCKED_DOMAIN),
    ("http://a:b@imgur.com/a", FilterReason.BLOCKED_DOMAIN),
    ("http://user:secret@example.com/a", FilterReason.CREDENTIALS),
    ("http://hentai.example.com/", FilterReason.BLOCKED_WORD),
    ("http://example.com/best-hentai/1", FilterReason.BLOCKED_WORD),
    ("http://example.com/best%2Dhentai/1", FilterReason.BLOCKED_WORD),
    ("http://example.com/" + "a" * 2000, FilterReason.TOO_LONG),
    ("http://example.com/a.JPG", FilterReason.BLOCKED_EXTENSION),
    ("http://example.com/a.jpg/", FilterReason.BLOCKED_EXTENSION),
    ("http://example.com/a%2Ejpg", FilterReason.BLOCKED_EXTENSION),
    ("http://example.com/a.pdf;jsessionid=1?x#y", FilterReason.BLOCKED_EXTENSION),
    ("http://example.com/a.tar.gz", FilterReason.BLOCKED_EXTENSION),
]
FOUND_LATER = {"too_short", "bad_row", "duplicate_exact", "duplicate_canonical", "domain_cap"}

KEPT = {
    "http://example.com": "http://example.com",
    "http://example.ai/": "http://example.ai/",
    "http://8.8.8.8/a": "http://8.8.8.8/a",
    "  http://example.com/a \r": "http://example.com/a",
    "http://example.com/?a=1&amp;b=2": "http://example.com/?a=1&b=2",
    "http://example.com/?a=1&amp;amp;b=2": "http://example.com/?a=1&b=2",
    "http://example.com/?a=1&copy=2": "http://example.com/?a=1&copy=2",
    "[a link](http://example.com/a)": "http://example.com/a",
    "http://[Text](http://example.com/a)": "http://example.com/a",
    "<http://example.com/a>": "http://example.com/a",
    '"http://example.com/a",': "http://example.com/a",
    "http://example.com/a),": "http://example.com/a",
    "http://example.com/Golden_(Film)": "http://example.com/Golden_(Film)",
    "Http:\\\\example.com\\a": "http://example.com/a",
    "http://example.com\\@example.net/": "http://example.com/@example.net/",
    "//example.com/a": "http://example.com/a",
    "www.example.com/a": "http://www.example.com/a",
    "http://https://example.com/a": "https://example.com/a",
    "http://example.com/a b": "http://example.com/a%20b",
    "http://example.com/caf\udce9": "http://example.com/caf%E9",
    "http://bücher.example.com/ü": "http://bücher.example.com/ü",
    "http://example.com/sussex": "http://example.com/sussex",
}


@pytest.fixture(scope="module")
def rules() -> UrlFilter:
    return UrlFilter(FilterConfig())


def sifted(rules: UrlFilter, *lines: str, tally: Tally | None = None) -> list[str]:
    data = "\n".join(lines).encode("utf-8", "surrogateescape")
    return BlockSieve(rules).sift(data, tally or Tally()).text.decode().split("\n")[:-1]


@pytest.mark.parametrize(("line", "reason"), DROPPED)
def test_dropped_for_its_reason(rules: UrlFilter, line: str, reason: FilterReason) -> None:
    assert rules.judge(line).reason == reason
    tally = Tally()
    assert sifted(rules, line, tally=tally) == []
    assert tally.dropped == {reason: 1}
    assert len(tally.examples[reason]) == 1


def test_every_reason_has_a_line() -> None:
    assert {reason for _, reason in DROPPED} | FOUND_LATER == set(FilterReason)


@pytest.mark.parametrize(("line", "url"), KEPT.items())
def test_kept_and_repaired(rules: UrlFilter, line: str, url: str) -> None:
    verdict = rules.judge(line)
    assert (verdict.url, verdict.reason) == (url, None)
    assert sifted(rules, line) == [url]
    assert repair_url(url) == url


def test_blank_lines_are_no_records(rules: UrlFilter) -> None:
    tally = Tally()
    assert sifted(rules, "", "  ", "\t", tally=tally) == []
    assert tally.dropped == {}


@pytest.mark.parametrize(
    "line", ["http://user:pw@example.com/a", "http://user:p w@a.com/x@y", "user:pw@", "http://a/user:pw@/b@c"]
)
def test_examples_hide_credentials(line: str) -> None:
    assert "pw" not in example_of(line) and "p w" not in example_of(line)


def test_too_short_for_the_user() -> None:
    rules, tally = UrlFilter(FilterConfig(min_url_characters=20)), Tally()
    assert sifted(rules, "http://example.com/", "http://example.com/a", tally=tally) == ["http://example.com/a"]
    assert tally.dropped == {FilterReason.TOO_SHORT: 1}
    assert rules.judge("http://example.com/").reason == FilterReason.TOO_SHORT


DISGUISES = [
    "2130706433", "0177.0.0.1", "0x7f.1", "0X7F000001", "017700000001", "127.1", "192.168.257", "127.0.0.0x1", "127.0.0.1.",
    "00000000177.0.0.1", "127%2e0%2E0%2e1", "%31%32%37.0.0.1", "①②⑦.⓪.⓪.①", "１２７。０。０。１", "0", "100.64.0.1", "100.127.255.254",
    "169.254.169.254", "198.18.0.1", "192.0.2.1", "224.0.0.1", "255.255.255.255", "[::1]", "[::]", "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]", "[64:ff9b::10.0.0.1]", "[64:ff9b:1::1]", "[2002:7f00:1::]",
    "[2001:0:4136:e378:8000:63bf:3fff:fdd2]", "[fe80::1]", "[fe80::1%25eth0]", "[fd12:3456::1]", "[ff02::1]", "[2001:db8::1]",
    "LocalHost", "a.localhost.", "ⓛocalhost", "metadata.google.internal", "x.cluster.local", "user@127.0.0.1", "a:b@127.1:80",
    "127.0.0.1#.example.com", "127.0.0.1?.example.com", "127.0.0.1\\@example.com",
]  # fmt: skip


@pytest.mark.parametrize("host", DISGUISES)
def test_private_hosts_in_disguise(rules: UrlFilter, host: str) -> None:
    for url in (f"http://{host}/x", f"https:\\\\{host}/", f"HTTP:///{host}"):
        assert rules.judge(url).reason == FilterReason.PRIVATE_HOST
        tally = Tally()
        assert sifted(rules, url, tally=tally) == [] and tally.dropped == {FilterReason.PRIVATE_HOST: 1}


def test_private_hosts_by_name() -> None:
    rules = UrlFilter(FilterConfig(allow_private_hosts=("127.0.0.1:8650", "wiki", "[::1]:80")))
    kept = [
        "http://127.0.0.1:8650/a",
        "http://2130706433:8650/b",
        "http://wiki/c",
        "http://wiki:81/d",
        "http://[::1]/e",
    ]
    assert [rules.judge(line).reason for line in kept] == [None] * 5
    for line in ("http://127.0.0.1/a", "http://127.0.0.2:8650/", "http://[::1]:81/", "http://localhost:8650/"):
        assert rules.judge(line).reason == FilterReason.PRIVATE_HOST


@pytest.mark.parametrize("host", ["http://a", "a/b", "a b", "u@h"])
def test_allow_private_hosts_are_hosts(host: str) -> None:
    with pytest.raises(ValueError, match='is neither "host" nor "host:port"'):
        FilterConfig(allow_private_hosts=(host,))


def test_lengths_must_leave_room() -> None:
    with pytest.raises(ValueError, match="no URL would be left"):
        FilterConfig(min_url_characters=100, max_url_characters=50)
