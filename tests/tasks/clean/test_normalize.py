from __future__ import annotations

import gzip
import itertools
import json
import time
from pathlib import Path

import ftfy
import pytest
from ftfy import badness
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.clean import normalize
from tasks.clean.config import CleanConfig
from tasks.clean.normalize import changes_of, repair_every_line, repair_text

MOJIBAKE = Path(__file__).resolve().parents[4] / "shared" / "data" / "mojibake"
CONFIGS = (
    CleanConfig(),
    CleanConfig(unescape_html=False, uncurl_quotes=False),
    CleanConfig(normal_form="NFKC"),
)
# What repairs, rules and line ends meet: each piece has set off one of them.
PIECES = (
    "a", "B", " ", "\n", "\r", "\r\n", "&amp;", "&lt;", "&amp;amp;lt;", "&#38;", "&", "é", "Ã©", "â€™", "â€", "\x80",
    "\x85", "\xa0", "Â", "Ã", "‘", "’", "“", "”", "–", "—", "…", "\u2028", "\ud83d", "\ude00", "\x1b[31m", "\x1b", "[3",
    "1m", "\ufeff", "\ufb01", "ＬＯ", "ﾀ", "e\u0301", "\u0301", "\u00ad", "Ð¾", "中文", "한국", "\ufffd", "œ", "×", "²",
    "√", "‚Ä", "š", "€", "™", "·", "°", "0", "x;", "#", "\t", "\x0c", "\u200b", "\u3000", "Ã\xa0", "à¹", "Â«", "вЂ", "Р",
    "&#xd800;", "&#13;", "&nbsp;", "&#10;", "‟", "«", "»", "\x00",
)  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=16).map("".join) | st.text(max_size=40)


@pytest.mark.parametrize("config", CONFIGS, ids=("default", "least", "NFKC"))
@given(text=texts)
@settings(max_examples=400, deadline=None)
def test_a_second_pass_changes_nothing_and_the_short_way_is_the_long_way(config: CleanConfig, text: str) -> None:
    repaired = repair_text(text, config)
    assert repair_text(repaired, config) == repaired
    assert repaired == repair_every_line(text, config)
    repaired.encode()


def test_typographic_punctuation_alone_never_looks_like_mojibake() -> None:
    # What rule 1 rests on: the pattern's longest alternative of such characters has three of them.
    characters = [*normalize._PUNCTUATION, "a", "Z", "0", " ", ".", "'", '"', "\t", "?", "\n"]
    for length in (1, 2, 3, 4):
        for together in itertools.product(characters, repeat=length):
            assert not badness.is_bad("".join(together)), together


def test_rules_see_every_character_that_ftfy_replaces_alone() -> None:
    config = CleanConfig()
    for code in (*range(0x3100), *range(0x3100, 0x20000, 61), *range(0xF900, 0x10000, 3)):
        char = chr(code)
        if not normalize._replaced(True).search(char) and normalize._quotes_alone(char, config) is not None:
            assert normalize._quotes_alone(char, config) == repair_every_line(char, config), hex(code)


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("one &amp; two\nthree < four &amp; five\nsix", "one & two\nthree < four & five\nsix"),
        ("caf\u00c3\u00a9\n", "café\n"),
        ("a\r\n\r\nb\rc\u2028d", "a\n\nb\nc\nd"),
        ("\ufefftext \ufeffinside\x00\x0b\x1b[1;31mred\x1b[0m", "text insidered"),
        ("half \ud83d pair, whole \ud83d\ude00", "half \ufffd pair, whole \U0001f600"),
        ("“quoted” isn’t", '"quoted" isn\'t'),
        ("tab\tand  blanks \n", "tab\tand  blanks \n"),
        ("e\u0301", "é"),
        ("", ""),
    ],
)
def test_repairs(text: str, repaired: str) -> None:
    assert repair_text(text, CleanConfig()) == repaired


def test_settings_are_obeyed() -> None:
    text = "“a &amp; b” ½"
    assert repair_text(text, CleanConfig(unescape_html=False)) == '"a &amp; b" ½'
    assert repair_text(text, CleanConfig(uncurl_quotes=False)) == "“a & b” ½"
    assert repair_text(text, CleanConfig(normal_form="NFKC")) == '"a & b" 1⁄2'
    assert repair_text("no\xa0break", CleanConfig(normal_form="NFKC")) == "no break"


def test_an_ampersand_escaped_many_times_takes_no_quadratic_time() -> None:
    started = time.process_time()
    assert repair_text("&" + "amp;" * 200_000 + "lt;", CleanConfig()) == "<"
    assert time.process_time() - started < 10


def test_a_line_longer_than_ftfys_own_limit_is_one_line() -> None:
    # Cut at a million characters, the pair of the last mojibake letter would fall apart.
    line = "a" * 999_999 + "Ã©"
    assert repair_text(line, CleanConfig()).endswith("aé")


@pytest.mark.skipif(not MOJIBAKE.is_dir(), reason="the mojibake texts are not here")
def test_mojibake_of_many_kinds_is_repaired_as_ftfy_does() -> None:
    config, whole = CleanConfig(), ftfy.TextFixerConfig(unescape_html=True)
    with gzip.open(MOJIBAKE / "synthetic.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream][::8]
    right: dict[str, list[bool]] = {}
    for row in rows:
        repaired = repair_text(row["mojibake"], config)
        assert repaired == repair_every_line(row["mojibake"], config)
        right.setdefault(row["kind"], []).append(repaired == ftfy.fix_text(row["clean"], whole))
    for kind in ("utf8>cp1252", "utf8>latin1", "utf8>cp1252 x2"):
        assert sum(right[kind]) >= 0.98 * len(right[kind]), kind


@pytest.mark.skipif(not MOJIBAKE.is_dir(), reason="ftfy's cases are not here")
def test_ftfys_own_cases() -> None:
    paths = sorted((MOJIBAKE / "ftfy-test-cases").glob("*.json"))
    cases = [case for path in paths for case in json.loads(path.read_text(encoding="utf-8"))]
    passing = [case for case in cases if case.get("expect") == "pass"]
    assert len(passing) > 50
    # One of them leaves a C1 control character in place; here none stays.
    wrong = [case for case in passing if repair_text(case["original"], CleanConfig()) != case["fixed"].strip("\x81")]
    assert [case["label"] for case in wrong] == []


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a\r\nb", ("line_breaks",)),
        ("a\x00b \ufeff", ("controls",)),
        ("a &amp; b &lt;", ("entities",)),
        ("\u201cquoted\u201d", ("quotes",)),
        ("cafe\u0301", ("normal_form",)),
        ("caf\u00c3\u00a9", ("encoding",)),
        ("\ufb01ne", ("other",)),
    ],
)
def test_what_was_changed_has_a_name(text: str, kinds: tuple[str, ...]) -> None:
    config = CleanConfig()
    assert changes_of(text, repair_text(text, config), config) == kinds
