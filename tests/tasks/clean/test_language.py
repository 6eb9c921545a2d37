from __future__ import annotations

import gzip
import json
import random
from itertools import islice
from pathlib import Path

import pytest
from langdetect.detector_factory import PROFILES_DIRECTORY
from pydantic import ValidationError

from tasks.clean.config import CleanConfig
from tasks.clean.language import _REFUSED, DETECTORS, NO_LANGUAGE, detect_language, sample_of
from tasks.clean.languages import (
    DETECTOR_CODES,
    LANGDETECT_CODES,
    PYCLD2_CODES,
    base_code,
    canonical_code,
    is_installed,
    is_wanted,
)
from tasks.errors import UserError

ENGLISH = "The harbour master opened the gate at dawn and counted every boat twice before the tide turned. "
GERMAN = "Der Hafenmeister öffnete das Tor bei Tagesanbruch und zählte jedes Boot zweimal, bevor die Flut kam. "


EACH = pytest.mark.parametrize("detector", [name for name in DETECTORS if is_installed(name)])
needs_pycld2 = pytest.mark.skipif(not is_installed("pycld2"), reason="pycld2 is not installed")


def test_the_known_codes_are_those_of_the_package() -> None:
    assert sorted(LANGDETECT_CODES) == sorted(path.name for path in Path(PROFILES_DIRECTORY).iterdir())
    assert set(DETECTOR_CODES) == set(DETECTORS)


@EACH
def test_an_answer_depends_on_the_text_alone(detector: str) -> None:
    texts = ["Hello", "tide table", "lamp error", "ok", ENGLISH, GERMAN]
    alone = {text: detect_language(text, detector) for text in texts}
    order = texts * 5
    random.Random(3).shuffle(order)
    assert [detect_language(text, detector) for text in order] == [alone[text] for text in order]


@EACH
def test_the_whole_text_is_heard(detector: str) -> None:
    for times in (1, 20):
        assert detect_language(GERMAN * 120 * times + ENGLISH * 500 * times, detector).code == "en"
        assert detect_language(ENGLISH * 120 * times + GERMAN * 500 * times, detector).code == "de"


def test_a_sample_is_short_and_even() -> None:
    assert len(sample_of(ENGLISH * 1000)) < 2000
    assert sample_of(ENGLISH) == ENGLISH
    assert sample_of("a" * 9_000 + "b" * 1_000).endswith("b" * 100)


@EACH
@pytest.mark.parametrize("text", ["", "12345 67 !!", "\x00\ufdd0\ud800 7"])
def test_a_text_without_a_feature_has_no_language(text: str, detector: str) -> None:
    assert detect_language(text, detector) == NO_LANGUAGE


@EACH
def test_scripts_of_the_east(detector: str) -> None:
    assert detect_language("港长在黎明时分打开大门,潮水回落之前把每条船数了两遍。" * 3, detector).code == "zh-cn"
    if detector == "pycld2":  # langdetect answers Korean
        assert detect_language("港長在黎明時分打開大門,潮水退去之前把每條船數了兩遍。" * 3, detector).code == "zh-tw"
    assert (
        detect_language("港長は夜明けに門を開け、潮が変わる前にすべての船を二度数えました。" * 3, detector).code == "ja"
    )


@pytest.mark.parametrize(
    ("found", "wanted", "answer"),
    [
        ("en", ("en",), True),
        ("zh-cn", ("zh",), True),
        ("zh-cn", ("zh-tw",), False),
        ("zh-Hant", ("zh",), True),
        ("zh-tw", ("zh-Hant",), True),
        ("zh", ("zh-cn",), False),
        ("iw", ("he",), True),
        ("de", ("en", "fr"), False),
        ("en", (), False),
    ],
)
def test_codes_compare(found: str, wanted: tuple[str, ...], answer: bool) -> None:
    assert is_wanted(found, wanted) is answer
    assert base_code("pt-BR") == "pt"


def test_wrong_settings_are_refused_with_the_right_names() -> None:
    with pytest.raises(ValidationError, match=r"no such language detector.*Did you mean 'langdetect'"):
        CleanConfig(language_detector="langdetekt")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=r"pycld2 does not know 'english'.*Known: "):
        CleanConfig(languages=("english",))
    with pytest.raises(ValidationError, match=r"langdetect does not know 'yo'.*Known: "):
        CleanConfig(language_detector="langdetect", languages=("yo",))
    with pytest.raises(UserError, match="there is no such detector"):
        detect_language("text", "cld")
    assert CleanConfig(languages=("zh", "PT", "he")).languages == ("zh", "PT", "he")
    assert CleanConfig(language_detector="none", languages=("tlh",)).languages == ("tlh",)


def test_a_detector_that_is_not_installed_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.clean.config.is_installed", lambda package: package != "pycld2")
    with pytest.raises(ValidationError, match=r"pip install pycld2, or use language_detector = 'langdetect'"):
        CleanConfig()
    assert CleanConfig(language_detector="langdetect").languages == ("en",)


@needs_pycld2
def test_pycld2_shares_of_a_mixed_text() -> None:
    found = detect_language((ENGLISH * 3 + GERMAN) * 5, "pycld2")
    assert (found.code, found.second) == ("en", "de")
    assert 0.6 < found.score < 0.85 and 0.15 < found.second_score < 0.4
    assert detect_language(ENGLISH, "pycld2").second == ""


@needs_pycld2
def test_pycld2_makes_no_guess_about_a_short_text() -> None:
    assert detect_language("ok", "pycld2") == detect_language("Hello", "pycld2") == NO_LANGUAGE


@needs_pycld2
def test_pycld2_gets_only_what_it_takes() -> None:
    import pycld2

    known = {canonical_code(code) for name, code in pycld2.LANGUAGES if name in pycld2.DETECTED_LANGUAGES}
    assert known - set(PYCLD2_CODES) == {"xx-bugi", "xx-goth", "tlh", "zzp", "zh"}
    assert set(PYCLD2_CODES) - known == {"zh-cn"}
    for code in (*range(0xD800), *range(0xE000, 0x20000), *range(0x2FFF0, 0x30010), *range(0x10FF00, 0x110000)):
        try:
            pycld2.detect(chr(code).encode(), isPlainText=True)
        except pycld2.error:
            assert _REFUSED.match(chr(code)), hex(code)
    assert detect_language(GERMAN + "\x01\ud800\ufdd0\U0001fffe", "pycld2").code == "de"


@needs_pycld2
def test_documents_in_75_languages(shared_data: Path) -> None:
    with gzip.open(shared_data / "langid" / "docs_2k.jsonl.gz") as lines:
        rows = [json.loads(line) for line in islice(lines, 0, None, 4)]
    found = [detect_language(row["text"], "pycld2") for row in rows]
    right = sum(base_code(row["lang"]) == base_code(one.code) for row, one in zip(rows, found, strict=True))
    assert right > 0.94 * len(rows)
    assert not [row for row, one in zip(rows, found, strict=True) if one.code == "en" and row["lang"] != "en"]
