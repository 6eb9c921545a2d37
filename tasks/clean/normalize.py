"""Text repair: mojibake, entities, control characters, line ends, normal form. A second pass changes nothing."""

from __future__ import annotations

import re
import unicodedata

import ftfy

from tasks.clean.config import CleanConfig
from tasks.records import replace_surrogates

# C0 and C1 controls but tab and newline, the byte-order mark, and code points that are no characters.
_REMOVED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ufff9-\ufffb\ufffe\uffff]")
_TERMINAL_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_PLAIN_ASCII = re.compile(r"[\t\n\x20-\x25\x27-\x7e]*")  # printable ASCII without "&": nothing to repair
MOST_PASSES = 4
# ftfy leaves alone what is longer than this between line breaks; the document is handed over in its own lines.
MAX_DECODE_LENGTH = 1 << 30


def repair_text(text: str, config: CleanConfig) -> str:
    """The repaired text. Idempotent: repairing until nothing changes, since one repair may lay bare another."""
    if _PLAIN_ASCII.fullmatch(text):
        return text
    for _ in range(MOST_PASSES):
        repaired = _repair_once(text, config)
        if repaired == text:
            break
        text = repaired
    return text


def _repair_once(text: str, config: CleanConfig) -> str:
    text = replace_surrogates(text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _TERMINAL_ESCAPE.sub("", text)
    settings = ftfy.TextFixerConfig(
        unescape_html=config.unescape_html,
        uncurl_quotes=config.uncurl_quotes,
        normalization=config.normal_form,
        max_decode_length=MAX_DECODE_LENGTH,
        explain=False,
    )
    text = ftfy.fix_text(text, settings)
    text = _REMOVED.sub("", text)
    return unicodedata.normalize(config.normal_form, text)
