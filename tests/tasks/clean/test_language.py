from __future__ import annotations

import random
from pathlib import Path

import pytest
from langdetect.detector_factory import PROFILES_DIRECTORY
from pydantic import ValidationError

from tasks.clean.config import CleanConfig
from tasks.clean.language import detect_language, sample_of
from tasks.clean.languages import LANGDETECT_CODES, base_code, is_installed, is_wanted
from tasks.errors import UserError

ENGLISH = "The harbour master opened the gate at dawn and counted every boat twice before the tide turned. "
GERMAN = "Der Hafenmeister öffnete das Tor bei Tagesanbruch und zählte jedes Boot zweimal, bevor die Flut kam. "


def test_the_known_codes_are_those_of_the_package() -> None:
    assert sorted(LANGDETECT_CODES) == sorted(path.name for path in Path(PROFILES_DIRECTORY).iterdir())


def test_an_answer_depends_on_the_text_alone() -> None:
    texts = ["Hello", "tide table", "lamp error", "ok", ENGLISH, GERMAN]
    alone = {text: detect_language(text) for text in texts}
    order = texts * 5
    random.Random(3).shuffle(order)
    assert [detect_language(text) for text in order] == [alone[text] for text in order]


def test_the_whole_text_is_heard() -> None:
    assert detect_language(GERMAN * 120 + ENGLISH * 500)[0] == "en"
    assert detect_language(ENGLISH * 120 + GERMAN * 500)[0] == "de"
    assert len(sample_of(ENGLISH * 1000)) < 2000
    assert sample_of(ENGLISH) == ENGLISH


@pytest.mark.parametrize("text", ["", "12345 67 !!", "http://example.com/"])
def test_a_text_without_a_feature_has_no_language(text: str) -> None:
    assert detect_language(text) == ("", 0.0)


def test_scripts_of_the_east() -> None:
    assert detect_language("港长在黎明时分打开大门,潮水回落之前把每条船数了两遍。" * 3)[0] == "zh-cn"
    assert detect_language("港長は夜明けに門を開け、潮が変わる前にすべての船を二度数えました。" * 3)[0] == "ja"


@pytest.mark.parametrize(
    ("found", "wanted", "answer"),
    [
        ("en", ("en",), True),
        ("zh-cn", ("zh",), True),
        ("zh-cn", ("zh-tw",), False),
        ("zh-Hant", ("zh",), True),
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
    with pytest.raises(ValidationError, match=r"langdetect does not know 'english'.*Known: "):
        CleanConfig(languages=("english",))
    with pytest.raises(UserError, match="there is no such detector"):
        detect_language("text", "cld")
    assert CleanConfig(languages=("zh", "PT", "he")).languages == ("zh", "PT", "he")
    assert CleanConfig(language_detector="none", languages=("tlh",)).languages == ("tlh",)


@pytest.mark.skipif(is_installed("pycld2"), reason="pycld2 is installed")
def test_a_detector_that_is_not_installed_is_refused_at_once() -> None:
    with pytest.raises(ValidationError, match="pip install pycld2"):
        CleanConfig(language_detector="pycld2")


@pytest.mark.skipif(not is_installed("pycld2"), reason="pycld2 is not installed")
def test_pycld2() -> None:
    assert detect_language(ENGLISH, "pycld2")[0] == "en"
    assert detect_language(GERMAN + "\x01\ud800", "pycld2")[0] == "de"
    assert detect_language("1234", "pycld2") == ("", 0.0)
