"""From bytes to HTML: WARC files, character sets, deep pages, control characters, facts of a page."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from warc_files import article, record, response, write_warc

from tasks.errors import CorruptInputError
from tasks.scrape.charset import decode_page
from tasks.scrape.extract import clean_text, document_id, without_controls
from tasks.scrape.extractors.nesting import MAX_NESTING, flatten
from tasks.scrape.extractors.page_facts import page_facts
from tasks.scrape.warc_reader import read_pages

GERMAN = "Über die Brücke fährt am Dienstag ein größerer Wagen für 5 €."
RUSSIAN = "Над рекой стоял густой туман, и паромщик долго не мог найти дорогу к берегу."
JAPANESE = "港の朝は早く、漁師たちは夜明け前に船を出した。"
POLISH = "Zażółć gęślą jaźń, powiedział śpiewak i zamknął drzwi."


def test_responses_of_other_peoples_files(tmp_path: Path) -> None:
    body = b"<p>hello</p>"
    packed = gzip.compress(body)
    chunked = b"5;x=y\r\n<p>he\r\n7\r\nllo</p>\r\n0\r\n\r\n"
    encoded = "Content-Encoding: gzip\r\n"
    blocks = {
        "gzip": response(packed, headers=encoded),
        "deflate": response(zlib.compress(body), headers="Content-Encoding: deflate\r\n"),
        "chunked": response(chunked, headers="Transfer-Encoding: chunked\r\n"),
        "both": response(
            b"%x\r\n%s\r\n0\r\n\r\n" % (len(packed), packed), headers=f"Transfer-Encoding: chunked\r\n{encoded}"
        ),
        "decoded-already": response(body, headers=f"Transfer-Encoding: chunked\r\n{encoded}"),
        "archived": response(body, headers="X-Archive-Orig-Content-Encoding: gzip\r\n"),
        "brotli-decoded": response(body, headers="Content-Encoding: br\r\n"),
        "bare-line-ends": b"HTTP/1.0 200\nContent-Type: text/html\n\n" + body,
    }
    bad = {
        "cut-gzip": response(packed[:-6], headers=encoded),
        "cut-chunk": response(chunked[:-12], headers="Transfer-Encoding: chunked\r\n"),
        "brotli": response(b"\x0b\x02\x80", headers="Content-Encoding: br\r\n"),
        "no-head": b"hello",
        "empty": b"",
    }
    records = [record(f"http://example.com/{name}", block) for name, block in {**blocks, **bad}.items()]
    other = [
        record("http://example.com/q", b"GET / HTTP/1.1\r\n\r\n", "request"),
        record("http://x/", b"a: b", "metadata"),
    ]
    for path in (tmp_path / "a.warc.gz", tmp_path / "a.warc"):
        pages = list(read_pages(write_warc(path, [*other, *records])))
        assert [page.final_url.rpartition("/")[2] for page in pages] == [*blocks, *bad]
        assert [page.body for page in pages[: len(blocks)]] == [body] * len(blocks)
        assert {page.status for page in pages[: len(blocks)]} == {200}
        assert {(page.status, page.body) for page in pages[len(blocks) :]} == {(0, b"")}


def test_requested_url_and_facts(tmp_path: Path) -> None:
    block = response(b"x", status="404 Not Found")
    records = [
        record("<http://example.com/b>", block, requested="http://example.com/a"),
        record("http://example.com/c", block),
    ]
    first, second = read_pages(write_warc(tmp_path / "a.warc.gz", records))
    assert (first.url, first.final_url, first.status) == ("http://example.com/a", "http://example.com/b", 404)
    assert (second.url, second.date) == ("http://example.com/c", "2024-05-06T07:08:09Z")
    assert first.content_type == "text/html; charset=utf-8"


@pytest.mark.parametrize("cut", [1, 20, 200, 300])
def test_files_cut_short_are_refused(tmp_path: Path, cut: int) -> None:
    records = [record(f"http://example.com/{number}", response(b"<p>hello</p>" * 20)) for number in range(3)]
    path = write_warc(tmp_path / "a.warc.gz", records)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CorruptInputError, match="damaged or cut short"):
        list(read_pages(path))


def test_plain_file_cut_inside_a_record(tmp_path: Path) -> None:
    path = write_warc(tmp_path / "a.warc", [record("http://example.com/", response(b"<p>hello</p>"))])
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(CorruptInputError, match="cut short"):
        list(read_pages(path))


@pytest.mark.parametrize(
    ("text", "encoding", "content_type", "meta"),
    [
        (GERMAN, "utf-8", "text/html; charset=utf-8", ""),
        (GERMAN, "cp1252", "text/html; charset=utf-8", ""),
        (GERMAN, "cp1252", "text/html", '<meta charset="utf-8">'),
        (GERMAN, "cp1252", "text/html; charset=ISO-8859-1", ""),
        (GERMAN, "utf-8", "text/html; charset=iso-8859-1", ""),
        (GERMAN, "cp1252", "", ""),
        (GERMAN, "utf-8-sig", "text/html; charset=iso-8859-1", ""),
        (GERMAN, "utf-16", "text/html", ""),
        (GERMAN, "utf-16-be", "text/html; charset=utf-16be", ""),
        (GERMAN, "utf-8", "text/html; charset=rot13", ""),
        (RUSSIAN, "cp1251", "text/html; charset=windows-1251", ""),
        (RUSSIAN, "koi8-r", "text/html", '<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">'),
        (RUSSIAN * 3, "koi8-r", "text/html; charset=utf-8", ""),
        (RUSSIAN * 3, "cp1251", "text/html", ""),
        (JAPANESE, "cp932", "text/html; charset=Shift_JIS", ""),
        (JAPANESE, "euc-jp", "text/html", '<meta charset="euc-jp">'),
        (JAPANESE, "iso2022-jp", "text/html; charset=iso-2022-jp", ""),
        (JAPANESE * 3, "cp932", "text/html; charset=utf-8", ""),
        (JAPANESE, "utf-8", "text/html; charset=shift_jis", ""),
        (POLISH, "cp1250", "text/html", '<html lang="pl">'),
        (POLISH, "iso8859-2", "text/html; charset=iso-8859-2", ""),
        ("汉字编码" * 4, "gb18030", "text/html; charset=gb2312", ""),
    ],
)
def test_character_sets(text: str, encoding: str, content_type: str, meta: str) -> None:
    page = f"{meta}<p>{text}</p>"
    assert decode_page(page.encode(encoding), content_type) == page


def test_one_bad_byte_spoils_one_character() -> None:
    body = f"<p>{GERMAN}</p>".encode() * 5 + b"\xe9\x81"
    assert decode_page(body, "text/html; charset=utf-8") == f"<p>{GERMAN}</p>" * 5 + "é\x81"


@given(
    st.binary(max_size=200),
    st.sampled_from(["", "text/html; charset=utf-8", "text/html; charset=gb2312", "charset=utf-16"]),
)
@settings(deadline=None)
def test_decoding_never_fails_and_makes_no_replacement_characters(body: bytes, content_type: str) -> None:
    text = decode_page(body, content_type)
    assert "\ufffd" not in text or b"\xef\xbf\xbd" in body or "gb2312" in content_type or "utf-16" in content_type
    assert without_controls(text).encode().decode() == without_controls(text)


def test_real_files_in_many_character_sets(shared_data: Path) -> None:
    """Texts beyond ASCII without any declaration or language: all but those in Latin-2 and a few in Cyrillic."""
    codecs = {"UTF8": "utf-8", "Latin1": "cp1252", "Latin2": "iso8859-2", "GB2312": "gb18030", "SJIS": "cp932",
              "Cyrillic": "cp1251", "EUC": "euc-kr"}  # fmt: skip
    right = total = 0
    with zipfile.ZipFile(shared_data / "charset-udhr" / "udhr.zip") as files:
        for name in sorted(files.namelist()):
            codec = codecs.get(name.rpartition("-")[2])
            body = files.read(name).removeprefix(b"\xef\xbb\xbf")
            if codec is None or body.isascii():
                continue
            try:
                truth = body.decode(codec)
            except UnicodeDecodeError:
                continue
            total += 1
            right += decode_page(body) == truth
    assert total > 200
    assert right / total >= RIGHT_FLOOR, f"{right} of {total}"


RIGHT_FLOOR = 0.92


def test_control_characters() -> None:
    assert without_controls("a\x00b\x1b[31mc\x1b[0m\r\nd\re\x85\ufefff\tg\uffff\ud800") == "abc\nd\nef\tg\ufffd"
    assert clean_text(" It\x92s \x93e\u0301\x94\x81 ") == "It’s “é”"


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufeff\ufffe\uffff")))
def test_text_without_controls_is_left_alone(text: str) -> None:
    assert without_controls(text) == text


def test_shallow_pages_are_left_alone() -> None:
    page = article("A title") + "<br>" * 1000 + "<p>" * 1000 + "<li>x</li>" * 1000 + "<img src=a>" * 1000
    assert flatten(page) == page


@given(
    st.lists(st.tuples(st.sampled_from(["div", "span", "blockquote", "p", "br"]), st.booleans()), max_size=12),
    st.integers(1, 60),
)
@settings(deadline=None, max_examples=50)
def test_flat_pages_hold_the_same_words(tags: list[tuple[str, bool]], times: int) -> None:
    piece = "".join(
        f"<{name}>{name}{number} " + (f"</{name}> " if closed else "") for number, (name, closed) in enumerate(tags)
    )
    page = piece * times
    flat = flatten(page)
    assert " ".join(_text(flat).split()) == " ".join(_text(page).split())
    assert _depth(flat) <= MAX_NESTING + 1


def _text(page: str) -> str:
    return "".join(part.rpartition(">")[2] for part in page.split("<"))


def _depth(page: str) -> int:
    """Depth as a parser would see it that closes a `p` at the next one and knows that `br` is empty."""
    stack: list[str] = []
    deepest = 0
    for part in page.split("<")[1:]:
        name = part.partition(">")[0]
        if name == "br":
            continue
        if name.startswith("/"):
            if name[1:] in stack:
                while stack.pop() != name[1:]:
                    pass
            continue
        if name == "p" and stack and stack[-1] == "p":
            stack.pop()
        stack.append(name)
        deepest = max(deepest, len(stack))
    return deepest


def test_facts_of_a_page() -> None:
    head = (
        '<meta property="og:title" content="Harbour &amp; gate"><meta content="2024-03-02T10:00:00+01:00" '
        "property='article:published_time'>"
    )
    assert page_facts(article("Site | Harbour", head=head)) == ("Harbour & gate", "2024-03-02T10:00:00+01:00", "en-GB")
    assert page_facts(article("  Only\n a title ")) == ("Only a title", "", "en-GB")
    assert page_facts('<script>{"datePublished": "2023-01-02"}</script>') == ("", "2023-01-02", "")
    assert page_facts("<html xml:lang=de_AT><time datetime='2022-12-31'>") == ("", "2022-12-31", "de-AT")
    assert page_facts("<meta name=date content='yesterday'>") == ("", "", "")


def test_ids() -> None:
    assert document_id("HTTP://Example.com:80/a#b") == document_id("http://example.com/a")
    assert document_id("http://example.com/a") != document_id("https://example.com/a")
    assert document_id("http://example.com/a") != document_id("http://example.com/a/")
    assert len(document_id("no url")) == 16 and int(document_id("no url"), 16) >= 0
