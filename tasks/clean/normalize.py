"""Text repair: mojibake, entities, control characters, line ends, normal form. A second pass changes nothing."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Literal

import ftfy

from tasks.clean.config import CleanConfig
from tasks.records import replace_surrogates

# C0 and C1 controls but tab and newline, the byte-order mark, and code points that are no characters.
_REMOVED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ufff9-\ufffb\ufffe\uffff]")
_TERMINAL_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# Printable ASCII without "&", and no-break spaces, which mean mojibake only beside other letters: nothing to repair.
_PLAIN_ASCII = re.compile("[\t\n\x20-\x25\x27-\x7e\xa0]*")
MOST_PASSES = 4
# ftfy leaves alone what is longer than this between line breaks; the document is handed over in its own lines.
MAX_DECODE_LENGTH = 1 << 30


def repair_text(text: str, config: CleanConfig) -> str:
    """The repaired text. Idempotent: a line is repaired until nothing changes, since one repair may lay bare another.

    ftfy works line by line too (with unescape_html set outright no line decides about another), so lines in which there
    is nothing to repair are not handed to it: on English text that is most of them.
    """
    if _PLAIN_ASCII.fullmatch(text):
        return text
    text = replace_surrogates(text).replace("\r\n", "\n").replace("\r", "\n")
    settings = _settings(config.unescape_html, config.uncurl_quotes, config.normal_form)
    lines = [
        line if _PLAIN_ASCII.fullmatch(line) else _repair_line(line, config, settings) for line in text.split("\n")
    ]
    # A combining mark at the start of a line has nothing to combine with across the line break.
    return "\n".join(lines)


@cache
def _settings(unescape_html: bool, uncurl_quotes: bool, normal_form: Literal["NFC", "NFKC"]) -> ftfy.TextFixerConfig:
    return ftfy.TextFixerConfig(
        unescape_html=unescape_html,
        uncurl_quotes=uncurl_quotes,
        normalization=normal_form,
        max_decode_length=MAX_DECODE_LENGTH,
        explain=False,
    )


def _repair_line(line: str, config: CleanConfig, settings: ftfy.TextFixerConfig) -> str:
    for _ in range(MOST_PASSES):
        before = line
        line = _TERMINAL_ESCAPE.sub("", line)
        line = ftfy.fix_text(line, settings).replace("\n", " ")
        line = unicodedata.normalize(config.normal_form, _REMOVED.sub("", line))
        if line == before:
            break
    return line
