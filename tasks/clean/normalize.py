"""Text repair: mojibake, entities, control characters, line ends, normal form. A second pass changes nothing.

ftfy works line by line, and with `unescape_html` set outright no line decides about another. So a line that surely
comes out as it went in is not handed over (most lines of English are such), and the answer stays ftfy's own:

1. A line of printable ASCII and typographic punctuation has nothing to repair but its quotes: every alternative of
   ftfy's mojibake pattern needs at least one other character.
2. A line without a character that one of ftfy's single fixes replaces, in normal form, and without a match of the
   mojibake pattern has nothing to repair but its quotes. A line without any character of that pattern cannot match it.
3. A line of printable ASCII has nothing to repair but its entities; what they stand for is looked at as any text.
4. Every other line goes through ftfy, again and again until nothing changes.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Literal

import ftfy
from ftfy import badness, chardata

from tasks.clean.config import CleanConfig
from tasks.records import replace_surrogates

# ftfy cuts a line longer than this into pieces that do not know each other; here a line is never cut.
MAX_DECODE_LENGTH = 1 << 30
MOST_PASSES = 32

# C0 and C1 controls but tab and newline, the byte-order mark, annotation marks, and code points that are no characters.
REMOVED = "\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ufff9-\ufffb\ufffe\uffff"
_REMOVED = re.compile(f"[{REMOVED}]")
_PRINTABLE = re.compile("[\t\n\x20-\x7e]*")
_TERMINAL_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# An ampersand escaped many times over. ftfy takes off one layer a pass, in time quadratic in the number of layers.
_NESTED_AMPERSAND = re.compile(r"&(?:(?:amp|AMP|#0{0,20}38|#[xX]0{0,20}26);)+")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_LINES = re.compile("[^\n]*\n|[^\n]+")

_CURLED = "\u2018\u2019\u201c\u201d"
_PUNCTUATION = _CURLED + "\xa0\u2013\u2014\u2026"


@cache
def _harmless(unescape_html: bool, typographic: bool) -> re.Pattern[str]:
    """Lines of rule 1."""
    ampersand = r"\x20-\x25\x27-\x7e" if unescape_html else r"\x20-\x7e"
    return re.compile(f"[\t\n{ampersand}{_PUNCTUATION if typographic else ''}]*")


@cache
def _replaced(unescape_html: bool) -> re.Pattern[str]:
    """Characters that one of ftfy's single fixes, or the removal of controls, may replace; but for quotes."""
    singles = {*chardata.LIGATURES, *chardata.WIDTH_MAP, *chardata.CONTROL_CHARS}
    escaped = "".join(re.escape(chr(code)) for code in sorted(singles) if code not in (9, 10))
    ampersand = "&" if unescape_html else ""
    return re.compile(f"[{REMOVED}\ud800-\udfff\u2028\u2029{ampersand}{escaped}]")


@cache
def _suspect() -> re.Pattern[str]:
    """The characters of ftfy's mojibake pattern, but for punctuation that never makes a match alone (rule 1)."""
    pattern = badness.BADNESS_RE.pattern
    found = {char for char in pattern if char > "\x7f"}
    for first, last in re.findall(r"([^\x00-\x7f])-([^\x00-\x7f])", pattern):
        found.update(map(chr, range(ord(first), ord(last) + 1)))
    return re.compile("[" + "".join(re.escape(char) for char in sorted(found - set(_PUNCTUATION))) + "]")


def repair_text(text: str, config: CleanConfig) -> str:
    """The repaired text. Idempotent, and equal to `repair_every_line`."""
    if (known := _known(text, config)) is not None:
        return known
    return _repair_lines(one_line_break(text), config, MOST_PASSES)


def changes_of(before: str, after: str, config: CleanConfig) -> tuple[str, ...]:
    """What kinds of repair a text that changed had, for the report: line_breaks, controls, entities, quotes,
    normal_form, encoding (mojibake); "other" when it was none of these (ligatures, widths)."""
    found = []
    if "\r" in before:
        found.append("line_breaks")
    if _REMOVED.search(before.replace("\r", "")):
        found.append("controls")
    if config.unescape_html and before.count("&") and len(_ENTITY.findall(before)) > len(_ENTITY.findall(after)):
        found.append("entities")
    if not before.isascii():
        if config.uncurl_quotes and any(quote in before and quote not in after for quote in _CURLED):
            found.append("quotes")
        if not unicodedata.is_normalized(config.normal_form, before):
            found.append("normal_form")
        if _suspect().search(before) and badness.is_bad(before) and badness.badness(before) > badness.badness(after):
            found.append("encoding")
    return tuple(found) or ("other",)


def repair_every_line(text: str, config: CleanConfig) -> str:
    """What `repair_text` must return: the whole document through ftfy until nothing changes. For tests."""
    text = one_line_break(text)
    for _ in range(MOST_PASSES):
        before, text = text, _pass(text, config)
        if text == before:
            break
    return text


def _repair_lines(text: str, config: CleanConfig, passes: int) -> str:
    repaired = []
    for line in _LINES.findall(text):
        known = _known(line, config)
        if known is None:
            known = _quotes_alone(line, config)
        if known is None:
            known = _entities_alone(line, config)
            if known is None:
                known = _pass(line, config)
            if known != line and passes > 1:
                known = _repair_lines(known, config, passes - 1)
        repaired.append(known)
    return "".join(repaired)


def _known(line: str, config: CleanConfig) -> str | None:
    """Rule 1: the repaired line when that is sure at once, else None. Holds for several lines together too."""
    if not _harmless(config.unescape_html, config.normal_form == "NFC").fullmatch(line):
        return None
    return _straight(line) if config.uncurl_quotes and not line.isascii() else line


def _straight(line: str) -> str:
    # Four searches that find nothing or little: a hundred times faster than str.translate.
    line = line.replace("\u2018", "'").replace("\u2019", "'")
    return line.replace("\u201c", '"').replace("\u201d", '"')


def _quotes_alone(line: str, config: CleanConfig) -> str | None:
    """Rule 2: the line with straight quotes when nothing else can be wrong with it, else None."""
    if _replaced(config.unescape_html).search(line) or _looks_wrong(line, config):
        return None
    if not config.uncurl_quotes:
        return line
    straight: str = ftfy.fixes.uncurl_quotes(line)
    return straight if straight == line or not _looks_wrong(straight, config) else None


def _entities_alone(line: str, config: CleanConfig) -> str | None:
    """Rule 3: a line of printable ASCII with its entities replaced, which is all a pass of ftfy can begin with."""
    if not config.unescape_html or not _PRINTABLE.fullmatch(line):
        return None
    return one_line_break(ftfy.fixes.unescape_html(_NESTED_AMPERSAND.sub("&", line)))


def _looks_wrong(line: str, config: CleanConfig) -> bool:
    if not unicodedata.is_normalized(config.normal_form, line):
        return True
    return bool(_suspect().search(line)) and bool(badness.is_bad(line))


def one_line_break(text: str) -> str:
    """Windows' and old Mac OS's line ends as a newline."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


@cache
def _settings(unescape_html: bool, uncurl_quotes: bool, normal_form: Literal["NFC", "NFKC"]) -> ftfy.TextFixerConfig:
    return ftfy.TextFixerConfig(
        unescape_html=unescape_html,
        uncurl_quotes=uncurl_quotes,
        normalization=normal_form,
        max_decode_length=MAX_DECODE_LENGTH,
        explain=False,
    )


def _pass(text: str, config: CleanConfig) -> str:
    text = _TERMINAL_ESCAPE.sub("", replace_surrogates(text))
    if config.unescape_html:
        text = _NESTED_AMPERSAND.sub("&", text)
    settings = _settings(config.unescape_html, config.uncurl_quotes, config.normal_form)
    text = one_line_break(ftfy.fix_text(text, settings))
    return unicodedata.normalize(config.normal_form, _REMOVED.sub("", text))
