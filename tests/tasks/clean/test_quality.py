from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.clean.boilerplate import LineReason, boilerplate_line, javascript_notice, without_lines
from tasks.clean.config import QualityConfig
from tasks.clean.masking import mask
from tasks.clean.quality_measures import MEASURES, measure_text
from tasks.clean.quality_rules import PRESETS, RULES, first_failed, rules_of
from tasks.clean.repetition import repeated_pieces, word_repetition

PROSE = (
    "The harbour master opened the gate at dawn and counted every boat twice before the tide turned. Nobody had told "
    "him that the number in the green book was to be written by the clerk, who was ill. He wrote it, and he signed.\n"
    "In the evening they sat with the lamp between them, and the clerk asked which of the boats had come back empty."
)


def top(words: Sequence[str], n: int) -> int:
    """Characters of the most frequent n-gram in the words' plain definition."""
    grams = Counter(" ".join(words[place : place + n]) for place in range(len(words) - n + 1))
    if not grams:
        return 0
    gram, number = grams.most_common(1)[0]
    return len(gram) * number


def repeated(words: Sequence[str], n: int) -> int:
    seen: set[str] = set()
    characters = place = 0
    while place < len(words) - n + 1:
        gram = "\0".join(words[place : place + n])
        if gram in seen:
            characters += len(gram) - n + 1
            place += n
        else:
            seen.add(gram)
            place += 1
    return characters


@given(
    st.lists(st.sampled_from(["a", "bb", "c", "dd", "e"]), max_size=60) | st.lists(st.sampled_from("ab"), max_size=40)
)
@settings(max_examples=300, deadline=None)
def test_repetition_is_its_plain_definition(words: list[str]) -> None:
    found = word_repetition(words, 1)
    for n in (2, 3, 4):
        assert found[f"top_{n}_gram_characters"] == top(words, n), n
    for n in range(5, 11):
        assert found[f"repeated_{n}_gram_characters"] == repeated(words, n), n


def test_repeated_pieces() -> None:
    assert repeated_pieces(["aa", "b", "aa", "aa"]) == (2, 4)
    assert repeated_pieces(["a", "b"]) == (0, 0)


def test_the_table_is_whole() -> None:
    assert {rule.preset for rule in RULES} == set(PRESETS)
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.measure in MEASURES and rule.source
        assert math.isfinite(rule.threshold) and rule.passes(rule.threshold) and rule.passes(math.nan)
        assert rule.passes(rule.threshold + 1) != rule.passes(rule.threshold - 1)


def test_prose_passes_every_rule_but_the_shortest() -> None:
    text = PROSE + "\n" + PROSE.replace("boat", "ship").replace("the", "this").replace("in", "on").replace("a", "e")
    numbers = measure_text(text, MEASURES)
    failed = [rule.name for rule in RULES if not rule.passes(numbers[rule.measure])]
    assert failed == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("short", "megatron_characters"),
        ("Please enable JavaScript. " + "x" * 600, "javascript_notice"),
        ("Home\nMenu\nShare this\nPrivacy Policy\nA line that is none, and so it is left where it stood.", "boilerplate_lines"),
        ("No end of a sentence here", "c4_sentences"),
        (PROSE + "function() {", "c4_curly_bracket"),
        (PROSE + " Lorem ipsum.", "c4_lorem_ipsum"),
        ("a few words", "gopher_few_words"),
        ("a b c d e " * 50, "gopher_short_words"),
        ("extraordinarily lengthened characters " * 50, "gopher_long_words"),
        (PROSE + " #" * 30, "gopher_hashes"),
        (PROSE + " ..." * 30, "gopher_ellipses"),
        ("\n".join(f"- {line}" for line in PROSE.replace("\n", " ").split(".")), "gopher_bullet_lines"),
        ("\n".join(f"{line}…" for line in PROSE.split(",")), "gopher_ellipsis_lines"),
        (PROSE + " 123" * 60, "gopher_alphabetic"),
        ("Kein einziges dieser Worte ist englisch. " * 20, "gopher_stop_words"),
        ((PROSE + "\n") * 3, "gopher_repeated_lines"),
        (PROSE.replace(". ", " ").replace(".", ""), "fineweb_unended_lines"),
        (PROSE.replace(" ", "\n", 60), "fineweb_short_lines"),
        (PROSE + "\nOnce more.\nOnce more.", "fineweb_repeated_lines"),
        (PROSE.replace(" ", "\n"), "fineweb_newlines"),
    ],
)  # fmt: skip
def test_each_rule_finds_what_it_is_for(text: str, rule: str) -> None:
    numbers = measure_text(text, MEASURES)
    assert rule in [one.name for one in RULES if not one.passes(numbers[one.measure])]


def test_scripts_without_blanks_have_words() -> None:
    numbers = measure_text("港长在黎明时分打开大门,潮水回落之前把每条船数了两遍。" * 3, MEASURES, "zh-cn")
    assert numbers["words"] == 27 * 3
    assert math.isnan(numbers["mean_word_length"]) and math.isnan(numbers["stop_words"])
    assert numbers["sentences"] == 3 and numbers["ended_line_fraction"] == 1
    assert math.isnan(measure_text("Der Hafenmeister", ["stop_words"], "de")["stop_words"])


@pytest.mark.parametrize("text", ["", " ", "\n\n", "…", "港"])
def test_a_text_of_nothing_has_numbers(text: str) -> None:
    assert set(measure_text(text, MEASURES)) == set(MEASURES)


def test_thresholds_move_and_rules_go() -> None:
    quality = QualityConfig(
        presets=("gopher",), thresholds={"gopher_few_words": 3, "c4_sentences": 1}, off=("gopher_stop_words",)
    )
    rules = quality.rules()
    names = [rule.name for rule in rules]
    assert names[:2] == ["c4_sentences", "gopher_few_words"] and "gopher_stop_words" not in names
    assert rules_of(("megatron",))[0].moved(7).least == 7
    assert first_failed(rules_of(("megatron",)), {"characters": 511, "javascript_characters": 1}) == RULES[0]
    assert first_failed(rules_of(("megatron",)), {"characters": 512, "javascript_characters": math.nan}) is None


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValidationError, match=r"no such preset. Did you mean 'gopher'"):
        QualityConfig.model_validate({"presets": ["gofer"]})
    with pytest.raises(ValidationError, match=r"no rule 'gopher_few_word'. Did you mean 'gopher_few_words'"):
        QualityConfig(thresholds={"gopher_few_word": 1})
    with pytest.raises(
        ValidationError, match=r"off: there is no rule 'line_withot_end'. Did you mean 'line_without_end'"
    ):
        QualityConfig(off=("line_withot_end",))


def test_lines_that_c4_leaves_out() -> None:
    text = (
        "A sentence of enough words, with its end.\nno end here at all, is there\nToo short.\n"
        'Please switch Javascript on to read this.\nBy reading you accept our cookie policy.\n\nA quoted end is also "one."[3]'
    )
    kept, counts = without_lines(text, ("c4",))
    assert kept == 'A sentence of enough words, with its end.\n\nA quoted end is also "one."'
    assert counts == {
        "citation_marks": 1, LineReason.NO_END: 1, LineReason.FEW_WORDS: 1, LineReason.JAVASCRIPT: 1, LineReason.POLICY: 1,
    }  # fmt: skip
    assert without_lines(kept, ("c4",)) == (kept, {})
    assert "no end here" in without_lines(text, ("c4",), (LineReason.NO_END,))[0]
    assert without_lines(text, ("gopher",)) == (text, {})


def test_chinese_lines_are_not_short() -> None:
    text = "港长在黎明时分打开大门。\n潮水回落之前把每条船数了两遍。"
    assert without_lines(text, ("c4",)) == (text, {})


@pytest.mark.parametrize(
    "line", ["Home", "Share on Facebook", "» Read more", "© 2019 Example Ltd. All rights reserved.", "12 Comments"]
)
def test_boilerplate(line: str) -> None:
    assert boilerplate_line(line)
    assert not boilerplate_line(f"He told us to go {line.lower()} and then we went on reading for a while.")


def test_javascript_notices() -> None:
    assert javascript_notice("JavaScript is disabled. Please enable it to continue.")
    assert javascript_notice("You need to enable JavaScript to run this app.")
    assert not javascript_notice("JavaScript is a language with closures and prototypes.")


def test_masks() -> None:
    text = "Write to ann.b+c@mail.example.co.uk or 8.8.8.8, not 192.168.0.1, call +49 30 901820 or (212) 555-0123; 2001:4860:4860::8888."
    masked, counts = mask(text, ("email", "ip", "phone"))
    assert masked == "Write to <EMAIL> or <IP>, not 192.168.0.1, call <PHONE> or <PHONE>; <IP>."
    assert counts == {"email": 1, "ip": 2, "phone": 2}
    assert mask(masked, ("email", "ip", "phone")) == (masked, {})
    for plain in ("In 1999-2004 it was 12.50 or 10,000,000.", "version 1.2.3.4.5", "a@b", "12:30:45", "2024-01-31"):
        assert mask(plain, ("email", "ip", "phone")) == (plain, {})


@given(st.text(alphabet="ab@.-+ 0123456789()/:<", max_size=60))
@settings(max_examples=300, deadline=None)
def test_masking_twice_is_masking_once(text: str) -> None:
    kinds = ("email", "ip", "phone")
    once = mask(text, kinds)[0]
    assert mask(once, kinds)[0] == once
