"""One spelling for each page: examples, and the laws that no example can break."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tasks.scrape.canonical_url import STRICT, CanonicalRules, canonical_host, canonical_url, split_authority
from tasks.scrape.config import FilterConfig
from tasks.scrape.filter_blocks import BlockSieve, kept_of
from tasks.scrape.filter_reasons import Tally
from tasks.scrape.filter_urls import UrlFilter
from tasks.scrape.host_rules import HostRules
from tasks.scrape.public_suffix import offline_tldextract, public_suffixes
from tasks.scrape.url_lists import TrackingList, WordList, packaged_list

LOOSE = CanonicalRules(True, True, True, TrackingList(packaged_list("tracking_parameters")).matches)

SAME = [
    ("HTTP://EXAMPLE.com:80", "http://example.com/"),
    ("http://example.com./a#b", "http://example.com/a"),
    ("https://example.com:443/%7euser/%2e/a/../b", "https://example.com/~user/b"),
    ("http://example.com/%e2%82%ac", "http://example.com/€"),
    ("http://example.com/?a=1&&b=2&", "http://example.com/?a=1&b=2"),
    ("http://füchse.de/", "http://XN--FCHSE-KVA.de/"),
    ("http://0x7f.1/", "http://127.0.0.1/"),
    ("http://[0:0::1]/", "http://[::1]/"),
    ("http://user:pw@example.com/", "http://example.com/"),
]
SAME_LOOSELY = [
    ("https://www.example.com/a/", "http://example.com/a"),
    ("https://example.com/", "http://example.com"),
    ("http://example.com/a?utm_source=x&b=1&fbclid=2", "http://example.com/a?b=1"),
    ("http://example.com/a?feature=share", "http://example.com/a"),
    ("https://example.com:443/", "http://example.com:80/"),
]
DIFFERENT = [
    ("http://example.com/a", "http://example.com/A"),
    ("http://example.com/a", "http://example.com:8080/a"),
    ("http://example.com/a?b=1", "http://example.com/a?b=2"),
    ("http://example.com/a%2Fb", "http://example.com/a/b"),
    ("http://example.com/a?feature=dialogue", "http://example.com/a"),
    ("http://example.com/a?x=utm_source", "http://example.com/a"),
    ("http://example.com/a%23b", "http://example.com/a#b"),
    ("http://www.com/", "http://com.com/"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_same_page(first: str, second: str) -> None:
    assert canonical_url(first) == canonical_url(second)
    assert canonical_url(first, LOOSE) == canonical_url(second, LOOSE)


@pytest.mark.parametrize(("first", "second"), SAME_LOOSELY)
def test_same_page_only_under_the_loose_rules(first: str, second: str) -> None:
    assert canonical_url(first, LOOSE) == canonical_url(second, LOOSE)
    assert canonical_url(first) != canonical_url(second) or first.startswith("http://example.com/?")


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_different_pages(first: str, second: str) -> None:
    assert canonical_url(first, LOOSE) != canonical_url(second, LOOSE)


@pytest.mark.parametrize(
    "url", ["", "example.com", "ftp://example.com/", "http://a b/", "http://a.com/\x00", "http://%/"]
)
def test_no_url(url: str) -> None:
    with pytest.raises(ValueError):
        canonical_url(url)


HOSTS = st.sampled_from(
    ["example.com", "WWW.Example.COM", "www.www.example.org.", "bücher.de", "xn--bcher-kva.de", "8.8.8.8", "0x8.010.2056",
     "[2001:4860::8888]", "a-b_c.co.uk", "www.com", "☃.net", "example。com", "ex%61mple.com"]
)  # fmt: skip
TEXTS = st.text(st.sampled_from("abAZ09/.%2e7E~-_;&=?#+ \\\"<>{}|^`'()[]!*,:@$é€😀\udce9"), max_size=30)
URLS = st.builds(
    lambda scheme, user, host, port, rest: f"{scheme}://{user}{host}{port}/{rest}",
    st.sampled_from(["http", "https", "HTTP", "Https"]),
    st.sampled_from(["", "user@", "u:p@"]),
    HOSTS,
    st.sampled_from(["", ":", ":80", ":443", ":8080", ":0080"]),
    TEXTS,
)


@settings(deadline=None)
@given(URLS)
def test_canonical_form_is_its_own(url: str) -> None:
    for rules in (STRICT, LOOSE):
        once = canonical_url(url, rules)
        assert canonical_url(once, rules) == once
        assert once.isascii() and " " not in once and "#" not in once
    assert canonical_url(canonical_url(url), LOOSE) == canonical_url(url, LOOSE)


LINES = st.lists(
    st.one_of(URLS, URLS.map(lambda url: url.replace("&", "&amp;")), st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=40)),
    max_size=20,
)  # fmt: skip
SETTINGS = [
    FilterConfig(),
    FilterConfig(
        same_page_without_scheme=False, same_page_without_www=False, same_page_without_slash=False,
        min_url_characters=24, max_url_characters=40, blocked_words=("ab", "0", "AZ-e", "é"),
        blocked_extensions=("a.b", "Z09azAZ09"),
    ),
]  # fmt: skip
RULES = [UrlFilter(config) for config in SETTINGS]


@pytest.mark.parametrize("rules", RULES)
@settings(deadline=None, max_examples=200)
@given(LINES)
def test_quick_way_gives_the_same_verdicts(rules: UrlFilter, lines: list[str]) -> None:
    assert_same_verdicts(rules, [line.encode("utf-8", "surrogateescape") for line in lines])


PLAIN_URLS = st.builds(
    lambda host, path: f"http://{host}/{path}".encode(),
    st.sampled_from(["example.com", "www.example.org", "imgur.com", "a" * 40 + ".com", "example.com\0", "hentai.com"]),
    st.text(st.sampled_from("abAZ09/.%2e7FE~-_;&=?#+'()[]:@$"), max_size=30)
    | st.sampled_from(["hentai", "a.jpg", "a.tar.gz/", "a.b", "x.Z09azAZ09", "a?utm_source=1&b=2", "a%20hentai?b", "a/?b=1",
                       "a?b=hentai", "ab", "x_AZ-e.html", "a.pdf?x#y", "a.html?#", "a.jpg%2Fb", "a.pdf%20", "?a=1&&b=2"]),
)  # fmt: skip


@pytest.mark.parametrize("rules", RULES)
@settings(deadline=None, max_examples=300)
@given(st.lists(PLAIN_URLS, max_size=30))
def test_quick_way_on_lines_that_are_nearly_plain(rules: UrlFilter, lines: list[bytes]) -> None:
    assert_same_verdicts(rules, lines)


def assert_same_verdicts(rules: UrlFilter, lines: list[bytes]) -> None:
    tally = Tally()
    kept = BlockSieve(rules).sift(b"\n".join(lines), tally)
    verdicts = [rules.judge(line.decode("utf-8", "surrogateescape")) for line in lines if line and not line.isspace()]
    expected = kept_of([
        (verdict.url.encode("utf-8", "surrogateescape"), verdict.key.encode()) for verdict in verdicts if not verdict.reason
    ], rules.key_end)  # fmt: skip
    assert kept.text == expected.text
    for found, wanted in zip(kept[1:], expected[1:], strict=True):
        assert found.tolist() == wanted.tolist()
    assert tally.dropped == Counter(verdict.reason for verdict in verdicts if verdict.reason)
    assert all(len(url.splitlines()) == 1 for url in kept.text.decode("utf-8", "surrogateescape").split("\n")[:-1])


LABELS = st.text(st.sampled_from("abc019-"), min_size=1, max_size=6)
SUFFIXES = st.sampled_from(sorted(rule.lstrip("!*.") for rule in offline_tldextract(private_domains=True).tlds))


@settings(deadline=None)
@given(st.lists(LABELS, max_size=3), SUFFIXES)
def test_registrable_domain_is_that_of_tldextract(labels: list[str], suffix: str) -> None:
    host = ".".join([*labels, suffix.encode("idna").decode()])
    # tldextract overlooks `*.b` for a.b where there is also a rule `*.a.b`
    deeper = public_suffixes(private_domains=True).wildcards
    assume(host not in deeper or host.partition(".")[2] not in deeper)
    for private in (False, True):
        expected = _EXTRACTS[private](host).top_domain_under_public_suffix or None
        assert public_suffixes(private_domains=private).registrable(host) == expected


_EXTRACTS = {private: offline_tldextract(private_domains=private) for private in (False, True)}


HOST_RULES = HostRules(
    blocked=frozenset(("example.net", "co.uk", "b.example.org")),
    allowed_private=(),
    words=WordList(["sex", "very bad"]),
    rules=LOOSE,
)


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["a", "b", "sex", "very", "bad", "www", "ck", "x-sex", "1", "xn--bcher-kva", ""]), max_size=4
    ),
    st.sampled_from(
        ["example.net", "example.org", "co.uk", "uk", "ck", "www.ck", "localhost", "home.arpa", "nosuch", "1.2", "com"]
    ),
)
def test_one_walk_over_the_dots_gives_the_same_verdict(labels: list[str], end: str) -> None:
    host = ".".join([*labels, end])
    full = HOST_RULES.judge("https", host)
    reason, head, site = HOST_RULES.judge_plain("https", host)
    assert (reason, head) == (full.reason, "" if full.reason else full.head)
    assert site == (public_suffixes().registrable(host) or host)


@pytest.mark.parametrize("text", ["a:b", "a:80:80", "[::1]x", "a:-1", "a:65536", "a:８０"])
def test_bad_ports(text: str) -> None:
    with pytest.raises(ValueError):
        split_authority(text)


@pytest.mark.parametrize(
    "host", ["", ".", "a..b", "1.2.3.4.5", "256.1.1.1.", "08.1", "a" * 64, "xn--a", "[1.2.3.4]", "a b"]
)
def test_bad_hosts(host: str) -> None:
    with pytest.raises(ValueError):
        canonical_host(host)
