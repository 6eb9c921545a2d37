"""Texts on which tokenizers are known to differ: what an engine must encode as the reference does."""

from __future__ import annotations

import random

from tasks.gpt2_vocabulary import EOD_TOKEN

PLAIN = (
    "", " ", "\n", "\t", "\r\n", "\x00", "a\x00b", "  ", "   a", "a   ", " \n \n  x", "\xa0\xa0x",
    "\u3000\u3000x\u3000", "\u2028\u2029\x85\x0b\x0c x", "\x1c\x1d\x1e\x1f a", "\ufeffx",
    "\u200b\u200c\u200dx\u2060", "\u180e x", "\u202ex\u202c", "Hello world", " Hello world", "Hello  world",
    "Hello world ", "caf\xe9", "cafe\u0301", "e\u0301a\u0300 S\u0302", "\U0001f600\U0001f603",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea\U0001f44d\U0001f3fd",
    "\u01c5\u01c8 \u02b0 \xaa\xba \u2177 \u216b \xbd\xbe",
    "\u0663\u0664 \u0967\u0968 \u0e51 \u4e00\u4e8c \u2460\u3289", "\U0001d7d8\U0001d538",
    "\U0010ffff\U000e0001\ufffe\uffff\ufffd", "\U00010000\U00012000\U00013000",
    "it's IT'S I'll I'LL we've they'd 's's's ''s ' s '", "don\u2019t l\u2019\xe9t\xe9", "'\u017f \u212a's",
    "'re're've'd'm'll", "a\u0301\u0301'll", EOD_TOKEN, f"a{EOD_TOKEN}b {EOD_TOKEN}{EOD_TOKEN} c", "<|endoftext",
    "<| endoftext |>", "\u0120 \u010a \u0121\u0120", "x\t\ty\n\n\n\nz   \n   z",
    "12345678901234567890 1,234.56 0x1F 1e-10", "!!!???...---===___",
    "CamelCaseIDsAndHTTPServer2XML_under_score-kebab", "\ud55c\uad6d\uc5b4 \uac00\ub098\ub2e4",
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3001\u30ab\u30bf\u30ab\u30ca",
    "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22", "\u05e2\u05d1\u05e8\u05d9\u05ea \u05e9\u05b8\u05c1",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0645\u064f\u062d", "\u0939\u093f\u0928\u094d\u0926\u0940",
    "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac", "Ti\u1ebfng Vi\u1ec7t", "\u1e9e \xdf \u0130 \u0131",
    "\xad soft", "\u034f\u115f\u1160\uffa0", "\ue000\uf8ff", "\u061c\u2066\u2069",
)  # fmt: skip
RUNS = ("x", " ", "x ", "\u00e9", "\n", "7", "\u4e2d", "!", "\U0001f600", "ab", "\x00")
RUN_LENGTHS = (2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
ALPHABET = (
    *"abcXYZ  \n\t''.,!0129_-", "\xe9", "\xdf", "\u0436", "\u4e2d", "\u3093", "\uff71", "\ud55c", "\u0627",
    "\u0301", "\u200d", "\xa0", "\u3000", "\u2003", "\x85", "\u2028", "\U0001f600", "\u0663", "\xbd", "\u216b",
    "\xaa", "\ufeff", "\x00", "\x7f", "\u017f", "\u212a", "'s", "'t", "'re", "'ll", "'S", " '",
)  # fmt: skip


def probe_texts() -> list[str]:
    """About 1,500 short texts, the same every time: whitespace, contractions, every kind of letter and digit, signs
    without a meaning, long runs, and random mixtures of them.
    """
    chance = random.Random(1234)
    texts = list(PLAIN)
    for run in RUNS:
        texts += [
            prefix + run * length + suffix for length in RUN_LENGTHS for prefix, suffix in (("", ""), ("a", "'ll b"))
        ]
    points = [chr(point) for point in range(0, 0x30000, 53) if not 0xD800 <= point <= 0xDFFF]
    for start in range(0, len(points), 64):
        group = points[start : start + 64]
        texts += [" ".join(group), "".join(group)]
    texts += ["".join(chance.choices(ALPHABET, k=chance.randrange(1, 60))) for _ in range(600)]
    texts += ["".join(map(chr, (_any_point(chance) for _ in range(chance.randrange(1, 40))))) for _ in range(200)]
    texts.append("".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=5000)))
    return texts


def _any_point(chance: random.Random) -> int:
    low, high = chance.choice(((0, 0x80), (0x80, 0x3000), (0x3000, 0xD800), (0xE000, 0x110000)))
    return chance.randrange(low, high)
