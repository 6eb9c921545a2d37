"""The lists of the filter: text files that a user can replace, and what an entry of each may look like."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tasks.errors import UserError
from tasks.records import read_lines
from tasks.scrape.canonical_url import canonical_host, split_authority

_COMMENT = re.compile(r"(?:^|\s)#.*")
_HOSTS_FILE = re.compile(r"(?:0\.0\.0\.0|127\.0\.0\.1|::1?)\s+(\S+)")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def packaged_list(name: str) -> tuple[str, ...]:
    """The lines of a list that comes with url2lm, comments and blank lines left out."""
    text = resources.files("tasks.scrape").joinpath("lists", f"{name}.txt").read_text(encoding="utf-8")
    return _entries(text.split("\n"))


def read_list(path: Path | None, default: str) -> tuple[str, ...]:
    """The lines of a user's list (any bytes, also .gz, .xz, .zst), or of the packaged one when there is none."""
    if path is None:
        return packaged_list(default)
    return _entries(line.decode("utf-8", "replace") for line in read_lines(path))


def _entries(lines: Iterable[str]) -> tuple[str, ...]:
    stripped = (_COMMENT.sub("", line).strip() for line in lines)
    return tuple(line for line in stripped if line)


def words_of(entries: Iterable[str]) -> list[str]:
    """All words of all lines: for lists that may hold several entries a line."""
    return [word for entry in entries for word in entry.split()]


def blocked_hosts(entries: Iterable[str], field: str) -> frozenset[str]:
    """Hosts in canonical form. Raises UserError for an entry that names no host.

    An entry may be a host in any case and spelling, with a leading `*.` or dot, a scheme, a port or a final slash,
    a line of a hosts file (`0.0.0.0 host`) or a rule such as `||host^`.
    """
    return frozenset(_blocked_host(entry, field) for entry in entries)


def _blocked_host(entry: str, field: str) -> str:
    text = match.group(1) if (match := _HOSTS_FILE.fullmatch(entry)) else entry
    text = _SCHEME.sub("", text, count=1).removeprefix("||").removesuffix("^").rstrip("/")
    text = text.removeprefix("*").removeprefix(".")
    try:
        if not text or re.search(r"[\s/?#*]", text):
            raise ValueError("not a host")
        return canonical_host(split_authority(text).host)
    except ValueError as error:
        rule = "an entry of this list is a host such as example.org"
        raise UserError(field, entry, rule, "Give hosts alone, one a line.") from error


def blocked_extensions(entries: Iterable[str]) -> frozenset[str]:
    """Extensions in lower case without their dot (`pdf`, `tar.gz`). A line may hold several."""
    found = (word.lower().removeprefix("*").strip(".") for word in words_of(entries))
    return frozenset(word for word in found if word)


class WordList:
    """Words and phrases to look for between separators."""

    def __init__(self, entries: Iterable[str]) -> None:
        """Each entry is a word or, with separators inside, a phrase. Case does not count."""
        split = [words for entry in entries if (words := split_words(entry))]
        self.words = frozenset(words[0] for words in split if len(words) == 1)
        self.phrases = tuple(f" {' '.join(words)} " for words in split if len(words) > 1)

    def __bool__(self) -> bool:
        return bool(self.words or self.phrases)

    def hits(self, words: list[str]) -> bool:
        """True when one of `words` is listed, or a phrase stands among them in order."""
        if not self.words.isdisjoint(words):
            return True
        if self.phrases:
            text = f" {' '.join(words)} "
            return any(phrase in text for phrase in self.phrases)
        return False


_LOWER_CASE = 0x2020202020202020


class Beginnings:
    """Tells of words of eight bytes whether one of a few texts may begin there; letters count in either case."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        """Of a text of more than eight bytes the first eight count."""
        self._numbers: dict[int, npt.NDArray[np.uint64]] = {}
        cut = {text[:8] for text in texts}
        for width in {len(text) for text in cut}:
            numbers = {int.from_bytes(text, "little") | _LOWER_CASE for text in cut if len(text) == width}
            self._numbers[(1 << 8 * width) - 1] = np.array(sorted(numbers), np.uint64)

    def match(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """True for every little-endian word [places] that one of the texts begins, and for few others."""
        found = np.zeros(len(words), bool)
        for mask, numbers in self._numbers.items():
            found |= np.isin(words & np.uint64(mask) | np.uint64(_LOWER_CASE), numbers)
        return found


class WordFinder:
    """Places in ASCII text where a listed word may begin: all such places, and few others.

    The first two letters of the words are looked for at all places at once, in eight groups that are the bits of a
    byte; the way of the literal matchers of Hyperscan (Wang et al., NSDI 2019).
    """

    def __init__(self, words: WordList) -> None:
        starts = {
            word.encode() for word in (*words.words, *(phrase.split()[0] for phrase in words.phrases)) if word.isascii()
        }
        tables = [bytearray(256) for _ in range(2)]
        for number, start in enumerate(sorted(starts)):
            for place, table in enumerate(tables):
                # a word that has ended may be followed by anything
                letters = {start[place], ord(start[place : place + 1].upper())} if place < len(start) else range(256)
                for letter in letters:
                    table[letter] |= 1 << number * 8 // len(starts)
        self._tables = tuple(map(bytes, tables))
        self._beginnings = Beginnings(starts)

    def places(self, text: bytes, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Places in `text`, which ends in at least eight bytes that are part of no word.

        `words` are the eight bytes from each place of `text` on, as little-endian words.
        """
        first, second = (np.frombuffer(text.translate(table), np.uint8) for table in self._tables)
        places: npt.NDArray[np.int64] = np.flatnonzero(first[:-1] & second[1:] != 0)
        places = places[self._beginnings.match(words[places])]
        if not len(places):
            return places
        before = np.frombuffer(text, np.uint8)[places - 1]
        begins: npt.NDArray[np.bool_] = (places == 0) | ~_IS_LETTER[before]
        return places[begins]


_SEPARATORS = re.compile(r"[\W_]+")
# Bytes of ASCII text: letters in lower case, digits, and a space for everything else
_LOWER_WORDS = bytes(ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else 32 for code in range(256))

_IS_LETTER = np.array([code < 128 and chr(code).isalnum() for code in range(256)])


def split_words(text: str) -> list[str]:
    """The runs of letters and digits of `text`, in lower case."""
    if text.isascii():
        return text.encode().translate(_LOWER_WORDS).decode().split()
    return [word for word in _SEPARATORS.split(text.casefold()) if word]


class TrackingList:
    """Query parameters that do not decide which page is shown."""

    def __init__(self, entries: Iterable[str]) -> None:
        """An entry is a name, a beginning (`utm_*`) or a name with its value (`feature=share`)."""
        names = sorted({entry.lower() for entry in entries})
        self._names = frozenset(name for name in names if not name.endswith("*") and "=" not in name)
        self._pairs = frozenset(name for name in names if "=" in name)
        self._starts = tuple(name[:-1] for name in names if name.endswith("*") and len(name) > 1)
        self.beginnings = Beginnings(name.removesuffix("*").encode() for name in names if name != "*")
        """What tells where a listed parameter may begin."""

    def matches(self, parameter: str) -> bool:
        """True for a `name=value` that is listed."""
        parameter = parameter.lower()
        if parameter.partition("=")[0] in self._names or parameter in self._pairs:
            return True
        return parameter.startswith(self._starts)
