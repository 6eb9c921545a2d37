"""The stage `filter`: files of all kinds in, one list and a balanced report out, the same bytes every time."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.adopt import adopt_urls
from tasks.artifacts import UrlList
from tasks.errors import CorruptInputError, StageError, UserError
from tasks.progress import StageReport
from tasks.scrape.config import FilterConfig, FilterResources
from tasks.scrape.filter_blocks import BlockSieve, kept_of
from tasks.scrape.filter_digest import words_of_buffer
from tasks.scrape.filter_reasons import FilterReason, Tally
from tasks.scrape.filter_stage import FILTER, SiteCap
from tasks.scrape.filter_urls import UrlFilter
from tasks.scrape.megatron_filter import MegatronFilter
from tasks.scrape.url_dedup import Dedup
from tasks.scrape.url_lists import (
    TrackingList,
    WordFinder,
    WordList,
    blocked_hosts,
    packaged_list,
    read_list,
    split_words,
)
from tasks.store import ArtifactStore

LINES = [
    "http://example.com/a", "http://example.com/a", "http://example.com/b#x", "https://www.example.com/b/", "http://i.imgur.com/x",
    "", "http://10.0.0.1/", "http://example.org/", "http://example.org", "http://[Text](http://example.org/c)",
]  # fmt: skip
KEPT = ["http://example.com/a", "http://example.com/b#x", "http://example.org/", "http://example.org/c"]


def run(
    folder: Path, data: bytes | dict[str, bytes], config: FilterConfig | None = None
) -> tuple[list[str], StageReport]:
    files = data if isinstance(data, dict) else {"list.txt": data}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    store = ArtifactStore(folder / "store")
    made = store.run(FILTER, config or FilterConfig(), [adopt_urls(store, [folder / name for name in files])])
    report = store.manifest_of(made).report
    assert report is not None
    assert made.num_urls == report.num_out
    assert [entry.name for entry in made.files] == ["urls.txt"]
    return (store.path_of(made) / "urls.txt").read_text().split("\n")[:-1], report


def test_order_and_report(tmp_path: Path) -> None:
    kept, report = run(tmp_path, "\n".join(LINES).encode())
    assert kept == KEPT
    assert report.num_in == 9
    assert report.dropped == {
        "private_host": 1, "blocked_domain": 1, "duplicate_exact": 1, "duplicate_canonical": 2
    }  # fmt: skip
    assert report.examples["duplicate_canonical"] == ["https://www.example.com/b/", "http://example.org"]


def test_on_disk_gives_the_same(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "memory").mkdir()
    data = "\n".join(LINES).encode()
    on_disk = FilterConfig(resources=FilterResources(max_urls_in_memory=1))
    assert run(tmp_path / "disk", data, on_disk) == run(tmp_path / "memory", data)
    assert on_disk.meaning() == FilterConfig().meaning()
    assert not list((tmp_path / "disk").rglob("part-*"))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdé"), st.sampled_from("xyz")), max_size=40), st.integers(1, 7), st.integers(0, 50)
)  # fmt: skip
def test_first_of_each_page_in_memory_and_on_disk(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], step: int, max_in_memory: int
) -> None:
    tally = Tally()
    dedup = Dedup(tmp_path_factory.mktemp("dedup"), tally, max_in_memory)
    for start in range(0, len(pairs), step):
        dedup.add(kept_of([(f"{key}{text}".encode(), key.encode()) for key, text in pairs[start : start + step]], len))
    first: dict[str, str] = {}
    copies = [f"{key}{text}" == first.setdefault(key, f"{key}{text}") for key, text in pairs]
    kept = b"".join(dedup.finish()).decode().split("\n")[:-1]
    assert kept == list(first.values())
    assert tally.dropped.get(FilterReason.DUPLICATE_EXACT, 0) == sum(copies) - len(first)
    assert tally.dropped.get(FilterReason.DUPLICATE_CANONICAL, 0) == len(pairs) - sum(copies)


def test_files_of_all_kinds_in_the_order_given(tmp_path: Path) -> None:
    rows = [{"url": "http://example.com/3"}, {"link": "x"}, {"url": 7}, {"url": " "}, ["http://example.com/no"]]
    files = {
        "one.txt": b"\xef\xbb\xbfhttp://example.com/1\r\n\r\n",
        "two.txt.gz": gzip.compress(b"http://example.com/2\nhttp://example.com/\xe9"),
        "three.jsonl": "\n".join(map(json.dumps, rows)).encode() + b'\n{broken\n"http://example.com/4"\n',
    }
    kept, report = run(tmp_path, files)
    assert kept == [
        "http://example.com/1", "http://example.com/2", "http://example.com/%E9", "http://example.com/3",
        "http://example.com/4",
    ]  # fmt: skip
    assert report.dropped == {"bad_row": 5}
    assert report.num_in == 10


def test_long_list_is_cut_into_pieces_at_line_ends(tmp_path: Path) -> None:
    lines = [f"http://example.com/{number:06d}/{'a' * (number % 90)}" for number in range(30_000)]
    kept, report = run(tmp_path, "\n".join(lines).encode())
    assert kept == lines
    assert report.num_in == len(lines)


def test_cap_of_a_site(tmp_path: Path) -> None:
    lines = [
        "http://a.example.com/1", "http://b.example.com/2", "http://example.com/3", "http://me.github.io/1",
        "http://you.github.io/1", "http://8.8.8.8/1", "http://8.8.8.8/1/", "http://8.8.8.8/2", "http://8.8.8.8/3",
    ]  # fmt: skip
    kept, report = run(tmp_path, "\n".join(lines).encode(), FilterConfig(max_urls_per_domain=2))
    assert kept == [*lines[:2], *lines[3:6], lines[7]]
    assert report.dropped == {"duplicate_canonical": 1, "domain_cap": 2}
    assert SiteCap(1, Tally()).admit(b"http://a.co.uk/\nhttp://b.co.uk/\n") == b"http://a.co.uk/\nhttp://b.co.uk/\n"


def test_nothing_kept_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"kept none of 2 URLs: 1 private_host, 1 blocked_domain"):
        run(tmp_path, b"http://imgur.com/a\nhttp://localhost/\n")


def test_empty_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the list is empty"):
        run(tmp_path, b"\n \n")


def test_damaged_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorruptInputError, match="damaged or cut short"):
        run(tmp_path, {"list.txt.gz": gzip.compress(b"http://example.com/1\n" * 100)[:-9]})


def test_credentials_leave_no_trace(tmp_path: Path) -> None:
    run(tmp_path, b"http://user:topsecret@example.com/\nhttp://a:topsecret@imgur.com/\nhttp://example.com/\n")
    adopted = tmp_path / "store" / "artifacts" / "adopt-urls"
    for path in (tmp_path / "store").rglob("*"):
        if path.is_file() and adopted not in path.parents:
            assert b"topsecret" not in path.read_bytes(), path


def test_lists_of_the_user_replace_those_of_the_package(tmp_path: Path) -> None:
    path = tmp_path / "blocked.txt"
    path.write_text(
        "# mine\n*.Example.ORG  # all of it\n0.0.0.0 ads.example.com\n||example.net^\nhttps://bücher.de:443/\n"
    )
    config = FilterConfig(blocked_domains_file=path, blocked_domains=("example.edu",))
    rules = UrlFilter(config)
    for url in ("http://a.example.org/", "http://ads.example.com/", "http://example.net/", "http://xn--bcher-kva.de/",
                "http://example.edu/"):  # fmt: skip
        assert rules.judge(url).reason == FilterReason.BLOCKED_DOMAIN, url
    assert rules.judge("http://imgur.com/a").reason is None
    before = config.meaning()
    path.write_text("example.org\n")
    assert config.meaning() != before


@pytest.mark.parametrize("entry", ["example.org/forum", "two words", "*", "a*.example.org", "http://"])
def test_entry_that_is_no_host(tmp_path: Path, entry: str) -> None:
    with pytest.raises(UserError, match="an entry of this list is a host"):
        UrlFilter(FilterConfig(blocked_domains=(entry,)))


def test_missing_list(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file"):
        run(tmp_path, b"http://example.com/\n", FilterConfig(blocked_words_file=tmp_path / "none.txt"))


def test_words_and_phrases() -> None:
    words = WordList(["Bad", "very-bad thing", "größe"])
    assert words.hits(["bad"]) and words.hits(["a", "very", "bad", "thing"]) and not words.hits(["badly"])
    for text, places in ((b"/x_BAD.html badly bad", [3, 12, 18]), (b"ebad/very/thing", [5]), (b"bad", [0])):
        padded = text + bytes(8)
        assert WordFinder(words).places(padded, words_of_buffer(padded)).tolist() == places
    assert WordList(["Größe"]).hits(split_words("die größe")) and not WordList([]).hits([])


def test_tracking_parameters() -> None:
    tracking = TrackingList(["utm_*", "ref", "feature=share"])
    assert [tracking.matches(text) for text in ("UTM_x=1", "ref", "ref=2", "feature=share", "feature=a", "refer=1")] == [
        True, True, True, True, False, False
    ]  # fmt: skip


# A list that changes changes what the stage makes: raise FILTER.version, then write the new digest here.
LISTS_OF_VERSION = {3: "94fc224dac66d30d4dad7c110591d5170d961959afd966cee6d1dcb1f61dfeb2"}


def test_packaged_lists_belong_to_the_version() -> None:
    names = ("blocked_domains", "blocked_extensions", "blocked_words", "megatron_domains", "megatron_extensions",
             "tracking_parameters")  # fmt: skip
    digest = hashlib.sha256("\n".join("\n".join(packaged_list(name)) for name in names).encode()).hexdigest()
    assert {FILTER.version: digest} == LISTS_OF_VERSION
    assert "imgur.com" in blocked_hosts(read_list(None, "blocked_domains"), "test")


MEGATRON = {
    "http://imgur.com/a": "blocked_domain", "http://me.github.io/": "blocked_domain", "http://GitHub.com/x": None,
    "http://google.com.example.org/": None, "http://example.com/a.pdf?x=1": "blocked_extension",
    "http://example.com/a.pdf#x": None, "http://example.com/a.7z": None, "http://example.com/a.7z.ai": "blocked_extension",
    "http://a": "too_short", "http://999.999.999.999": None, "http://u:p@example.com/": "malformed",
    "http://bücher.de/": "malformed", "http://localhost/": "malformed", "http://10.0.0.1/": None, "https://example.com./": None,
    "http://example.com/a b": "malformed", "http://example.com:80?x": None, "ftp://example.com/": "malformed",
    "http://1.2.3.4": None, "http://a_b.com/": "malformed", "http://example.com/\udce9": "malformed",
}  # fmt: skip


@pytest.fixture(scope="module")
def megatron() -> MegatronFilter:
    return MegatronFilter()


@pytest.mark.parametrize(("url", "reason"), MEGATRON.items())
def test_megatron_decides_as_it_did(megatron: MegatronFilter, url: str, reason: str | None) -> None:
    assert megatron.judge(url) == reason


def test_megatron_preset_looks_at_no_other_setting(tmp_path: Path) -> None:
    config = FilterConfig(
        preset="megatron", blocked_domains=("example.com",), max_urls_per_domain=1, min_url_characters=90
    )
    lines = [
        "http://example.com/a",
        "http://example.com/a",
        "https://example.com/a",
        "http://example.com/a/",
        "http://imgur.com/",
    ]
    kept, report = run(tmp_path, "\n".join(lines).encode(), config)
    assert kept == [lines[0], *lines[2:4]]
    assert report.dropped == {"blocked_domain": 1, "duplicate_exact": 1}


def test_real_list(shared_data: Path) -> None:
    """The quick way on 50,000 submitted links: the verdicts are those of `judge`, and most links are dropped."""
    lines: list[str] = []
    for name, most in (("links", 50_000), ("ugly", 5_000)):
        with gzip.open(shared_data / "urls-reddit" / f"{name}.tsv.gz", "rt", encoding="utf-8", newline="\n") as rows:
            fields = [row.rstrip("\n").split("\t") for row, _ in zip(rows, range(most), strict=False)]
        lines += [row[4] for row in fields[1:] if len(row) > 4]
    for rules in (UrlFilter(FilterConfig()), MegatronFilter()):
        kept = BlockSieve(rules).sift("\n".join(lines).encode(), Tally())
        verdicts = [rules.judge_bytes(line.encode()) for line in lines]
        expected = kept_of([(url, key) for reason, url, key in verdicts if reason is None], rules.key_end)
        assert kept.text == expected.text
        for found, wanted in zip(kept[1:], expected[1:], strict=True):
            assert found.tolist() == wanted.tolist()
        assert 0.2 < kept.text.count(b"\n") / len(lines) < 0.4


def test_rows_of_submissions(shared_data: Path, tmp_path: Path) -> None:
    """JSON lines in a file whose name does not say so, compressed with xz."""
    data = (shared_data / "urls-reddit" / "RS_sample.xz").read_bytes()
    kept, report = run(tmp_path, {"RS_sample.xz": data})
    assert report.num_in > 5_000 and report.dropped.get("bad_row", 0) == 0
    assert report.dropped["blocked_domain"] > 1_000 and len(kept) > 500


def test_output_is_a_url_list() -> None:
    assert FILTER.output is UrlList
