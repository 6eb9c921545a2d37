"""Rules about the quality of a text: one table of names, measures, thresholds and sources.

A rule compares one number of the text (tasks/clean/quality_measures.py) with a threshold. A number that has no meaning
for a text (the stop words of a text that is not English, the word length of a script without blanks) is NaN and passes.

Sources: T5 = Raffel et al., arXiv 1910.10683, section 2.2 (the corpus C4). GOPHER = Rae et al., arXiv 2112.11446,
appendix A1.1 and table A1. FINEWEB = Penedo et al., arXiv 2406.17557, section 3.6, with the figures of the code that
made the corpus where the two differ. MEGATRON = tools/openwebtext of Megatron-LM: cleanup_dataset.py (128 tokens, which
is CleanConfig.min_tokens) and cleanup_fix_dataset.py. OWN = measured or chosen here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

PresetName = Literal["megatron", "boilerplate", "c4", "gopher", "fineweb"]
PRESETS: tuple[str, ...] = get_args(PresetName)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: a text fails it when its number is below `least` or above `most`."""

    name: str
    preset: str
    measure: str
    """Key of quality_measures.MEASURES."""
    least: float = -math.inf
    most: float = math.inf
    source: str = ""

    def passes(self, number: float) -> bool:
        """Whether a text with this number is kept; the threshold itself passes, and so does NaN."""
        return not (number < self.least or number > self.most)

    @property
    def threshold(self) -> float:
        """The one finite bound."""
        return self.least if math.isfinite(self.least) else self.most

    def moved(self, threshold: float) -> Rule:
        """The same rule with another threshold."""
        least, most = (threshold, math.inf) if math.isfinite(self.least) else (-math.inf, threshold)
        return Rule(self.name, self.preset, self.measure, least, most, self.source)


_DUPLICATE_GRAMS = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
_TOP_GRAMS = {2: 0.20, 3: 0.18, 4: 0.16}

# In the order in which a text is judged: its reason is the first rule that it fails.
RULES: tuple[Rule, ...] = (
    Rule("megatron_characters", "megatron", "characters", least=512, source="MEGATRON"),
    Rule("megatron_javascript", "megatron", "javascript_characters", least=256, source="MEGATRON"),
    Rule("javascript_notice", "boilerplate", "javascript_notice_words", least=200, source="OWN: short page, notice"),
    Rule("boilerplate_lines", "boilerplate", "boilerplate_line_fraction", most=0.4, source="OWN: as NeMo Curator"),
    Rule("c4_sentences", "c4", "sentences", least=3, source="T5: fewer than 3 sentences"),
    Rule("c4_curly_bracket", "c4", "curly_brackets", most=0, source="T5: pages with {"),
    Rule("c4_lorem_ipsum", "c4", "lorem_ipsum", most=0, source="T5: placeholder lorem ipsum"),
    Rule("gopher_few_words", "gopher", "words", least=50, source="GOPHER: 50 words"),
    Rule("gopher_many_words", "gopher", "words", most=100_000, source="GOPHER: 100,000 words"),
    Rule("gopher_short_words", "gopher", "mean_word_length", least=3, source="GOPHER: mean word length 3"),
    Rule("gopher_long_words", "gopher", "mean_word_length", most=10, source="GOPHER: mean word length 10"),
    Rule("gopher_hashes", "gopher", "hashes_per_word", most=0.1, source="GOPHER: symbol-to-word ratio"),
    Rule("gopher_ellipses", "gopher", "ellipses_per_word", most=0.1, source="GOPHER: symbol-to-word ratio"),
    Rule("gopher_bullet_lines", "gopher", "bullet_line_fraction", most=0.9, source="GOPHER: lines with a bullet"),
    Rule("gopher_ellipsis_lines", "gopher", "ellipsis_line_fraction", most=0.3, source="GOPHER: lines end in ellipsis"),
    Rule("gopher_alphabetic", "gopher", "alphabetic_word_fraction", least=0.8, source="GOPHER: words with a letter"),
    Rule("gopher_stop_words", "gopher", "stop_words", least=2, source="GOPHER: two of eight stop words"),
    Rule("gopher_repeated_lines", "gopher", "repeated_line_fraction", most=0.3, source="GOPHER table A1"),
    Rule("gopher_repeated_paragraphs", "gopher", "repeated_paragraph_fraction", most=0.3, source="GOPHER table A1"),
    Rule("gopher_repeated_line_characters", "gopher", "repeated_line_characters", most=0.2, source="GOPHER table A1"),
    Rule(
        "gopher_repeated_paragraph_characters", "gopher", "repeated_paragraph_characters", most=0.2,
        source="GOPHER table A1",
    ),
    *(
        Rule(f"gopher_top_{n}_gram", "gopher", f"top_{n}_gram_characters", most=most, source="GOPHER table A1")
        for n, most in _TOP_GRAMS.items()
    ),
    *(
        Rule(f"gopher_repeated_{n}_grams", "gopher", f"repeated_{n}_gram_characters", most=most, source="GOPHER A1")
        for n, most in _DUPLICATE_GRAMS.items()
    ),
    Rule("fineweb_unended_lines", "fineweb", "ended_line_fraction", least=0.12, source="FINEWEB: lines with an end"),
    Rule("fineweb_short_lines", "fineweb", "short_line_fraction", most=0.67, source="FINEWEB: lines of 30 characters"),
    Rule(
        "fineweb_repeated_lines", "fineweb", "repeated_line_characters_of_lines", most=0.01,
        source="FINEWEB: 0.1 in the paper, 0.01 in the code",
    ),
    Rule("fineweb_newlines", "fineweb", "newlines_per_word", most=0.3, source="FINEWEB: code, lists"),
)  # fmt: skip
RULE_NAMES = tuple(rule.name for rule in RULES)


def rules_of(
    presets: Iterable[str], thresholds: Mapping[str, float] | None = None, off: Iterable[str] = ()
) -> tuple[Rule, ...]:
    """The rules of the presets in table order, with moved thresholds; a threshold also brings in its own rule."""
    wanted, moved, without = set(presets), dict(thresholds or {}), set(off)
    return tuple(
        rule.moved(moved[rule.name]) if rule.name in moved else rule
        for rule in RULES
        if (rule.preset in wanted or rule.name in moved) and rule.name not in without
    )


def first_failed(rules: Iterable[Rule], numbers: Mapping[str, float]) -> Rule | None:
    """The first rule that a text with these numbers fails; None when it passes all."""
    for rule in rules:
        if not rule.passes(numbers[rule.measure]):
            return rule
    return None
