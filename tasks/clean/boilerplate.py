"""Lines that belong to a page and not to its text, and lines that C4 leaves out (arXiv 1910.10683, section 2.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from tasks.clean.word_classes import UNSPACED

MOST_BOILERPLATE_CHARACTERS = 100
LEAST_WORDS_PER_LINE = 5

_PHRASES = r"""
    skip\ to\ (?:main\ )?content | (?:back\ )?to\ (?:the\ )?top | (?:read|learn|show|view|see|load)\ (?:more|all|less)
    | continue\ reading | click\ here | home | menu | search | register | contact(?:\ us)? | about(?:\ us)?
    | share(?:\ this)?(?:\ (?:article|post|page|story|on\ .{1,20}|via\ .{1,20}))?
    | (?:tweet|pin|print|e-?mail)(?:\ this)? | (?:log|sign)\ (?:in|up|out)(?:\ .{1,40})? | subscribe(?:\ .{1,60})?
    | (?:un)?follow(?:\ us)?(?:\ .{1,30})? | leave\ a\ (?:comment|reply) | (?:post|add)\ (?:a\ )?comment
    | \d*\s*comments? | related\ (?:posts?|articles?|stories|content) | advertisements?
    | you\ (?:may|might)\ also\ (?:like|be\ interested\ in)
    | .{0,60}(?:©|\(c\)|copyright)\ .{0,60} | .{0,60}all\ rights\ reserved\.?
    | terms\ (?:of\ (?:use|service)|and\ conditions)(?:\ .{1,40})? | privacy\ policy(?:\ .{1,40})?
    | cookie\ (?:policy|settings) | (?:accept|reject)\ (?:all\ )?cookies
    | (?:we|this\ (?:web)?site)\ uses?\ cookies.{0,70}
    | next(?:\ (?:page|post|article))? | previous(?:\ (?:page|post|article))? | powered\ by\ .{1,40}
    | posted\ (?:in|on|by)\ .{1,60} | filed\ under:?.{0,60} | tags?:.{0,80} | categor(?:y|ies):.{0,80}
"""
_BOILERPLATE = re.compile(rf"\W*(?:{_PHRASES})\W*", re.IGNORECASE | re.VERBOSE)
_NOTICE = re.compile(
    r"(?:enable|activate|turn on|requires?|need|without|disabled|allow|support)\W+(?:\w+\W+){0,6}?java ?script"
    r"|java ?script\W+(?:\w+\W+){0,6}?(?:disabled|enabled|required|turned off|not supported|blocked)",
    re.IGNORECASE,
)
# C4's own list.
_POLICY = re.compile("terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies", re.IGNORECASE)
_ENDS = (".", "!", "?", '"', "”", "。", "!", "?", "」", "』", "।", "؟", "۔")
_UNSPACED = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED) + "]")
_CITATION = re.compile(r"\[(?:\d{1,3}|edit|citation needed)\]", re.IGNORECASE)


class LineReason(StrEnum):
    """Why a line is left out of a text that is kept."""

    NO_END = "line_without_end"
    FEW_WORDS = "line_of_few_words"
    JAVASCRIPT = "line_about_javascript"
    POLICY = "line_about_policy"
    BOILERPLATE = "line_of_boilerplate"


def boilerplate_line(line: str) -> bool:
    """Whether a line is navigation, a button, a copyright notice or the like, and nothing else."""
    return len(line) <= MOST_BOILERPLATE_CHARACTERS and _BOILERPLATE.fullmatch(line) is not None


def javascript_notice(text: str) -> bool:
    """Whether a text asks to switch JavaScript on."""
    lower = text.lower()
    return ("javascript" in lower or "java script" in lower) and _NOTICE.search(text) is not None


def line_reason(line: str, presets: Sequence[str], off: Sequence[str] = ()) -> LineReason | None:
    """Why a line with something in it is left out under these presets; None when it stays."""
    found: LineReason | None = None
    if "boilerplate" in presets and LineReason.BOILERPLATE not in off and boilerplate_line(line):
        found = LineReason.BOILERPLATE
    elif "c4" in presets:
        lower = line.lower()
        if LineReason.NO_END not in off and (not line.endswith(_ENDS) or line.endswith("...")):
            found = LineReason.NO_END
        elif LineReason.JAVASCRIPT not in off and "javascript" in lower:
            found = LineReason.JAVASCRIPT
        elif LineReason.POLICY not in off and _POLICY.search(lower):
            found = LineReason.POLICY
        elif LineReason.FEW_WORDS not in off and _has_few_words(line):
            found = LineReason.FEW_WORDS
    return found


def _has_few_words(line: str) -> bool:
    if len(line.split(None, LEAST_WORDS_PER_LINE - 1)) >= LEAST_WORDS_PER_LINE:
        return False
    return len(_UNSPACED.findall(line)) < LEAST_WORDS_PER_LINE


def without_lines(text: str, presets: Sequence[str], off: Sequence[str] = ()) -> tuple[str, dict[str, int]]:
    """The text without the lines that the presets leave out, and how many of each kind. Blank lines stay.

    Under c4, marks of citations such as [3] go as well, counted as `citation_marks`.
    """
    counts: dict[str, int] = {}
    if "c4" in presets and "[" in text:
        text, number = _CITATION.subn("", text)
        if number:
            counts["citation_marks"] = number
    kept = []
    for line in text.split("\n"):
        stripped = line.strip()
        reason = line_reason(stripped, presets, off) if stripped else None
        if reason is None:
            kept.append(line)
        else:
            counts[reason.value] = counts.get(reason.value, 0) + 1
    return ("\n".join(kept).strip("\n") if counts else text), counts
