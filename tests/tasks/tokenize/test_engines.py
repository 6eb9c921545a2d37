"""Engines: the reference's reading of texts, and who may take its place."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.errors import UserError
from tasks.gpt2_vocabulary import EOD_TOKEN
from tasks.tokenize import engines
from tasks.tokenize.engines import WORTH_CHECKING_BYTES, choose_engine, first_difference, open_engine
from tasks.tokenize.probes import probe_texts

MARKER_AS_TEXT = [64, 1279, 91, 437, 1659, 5239, 91, 29, 275]
MARKER_AS_TOKEN = [64, 220, 50256, 275]
LARGE = WORTH_CHECKING_BYTES


def per_text(name: str, path: Path, texts: Sequence[str], special_tokens: str = "text") -> list[list[int]]:
    ids, lengths = open_engine(name, path, special_tokens)(texts)  # type: ignore[arg-type]
    assert len(lengths) == len(texts) and lengths.sum() == len(ids)
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])] if texts else []


@pytest.mark.parametrize("name", ["tokenizers", "fastokens"])
def test_special_tokens_are_text_unless_asked_otherwise(gpt2_folder: Path, name: str) -> None:
    if name == "fastokens":
        pytest.importorskip("fastokens")
    path = gpt2_folder / "tokenizer.json"
    assert per_text(name, path, [f"a {EOD_TOKEN} b"]) == [MARKER_AS_TEXT]
    assert per_text(name, path, [f"a {EOD_TOKEN} b"], "parse") == [MARKER_AS_TOKEN]


@pytest.mark.parametrize("name", ["tokenizers", "fastokens"])
def test_batches_of_any_size_and_empty_texts(gpt2_folder: Path, name: str) -> None:
    if name == "fastokens":
        pytest.importorskip("fastokens")
    path = gpt2_folder / "tokenizer.json"
    assert per_text(name, path, []) == []
    assert per_text(name, path, ["", "Hello", ""]) == [[], [15496], []]
    texts = [f"number {number}" for number in range(1000)]
    assert per_text(name, path, texts) == [per_text(name, path, [text])[0] for text in texts]


def test_probes_are_hostile_and_the_same_every_time() -> None:
    texts = probe_texts()
    assert texts == probe_texts() and 1000 < len(texts) < 3000
    together = "".join(texts)
    for needed in (EOD_TOKEN, "\x00", "\u200d", "\ufeff", "\U0010ffff", "'ll", "\u3000", "x" * 257):
        assert needed in together
    together.encode()  # no half surrogate pairs: no engine takes them


@pytest.mark.parametrize("special_tokens", ["text", "parse"])
def test_fastokens_is_the_reference_on_the_probes(gpt2_folder: Path, special_tokens: str) -> None:
    pytest.importorskip("fastokens")
    assert first_difference("fastokens", gpt2_folder / "tokenizer.json", special_tokens) is None  # type: ignore[arg-type]
    assert choose_engine("auto", gpt2_folder / "tokenizer.json", "text", LARGE).name == "fastokens"


@settings(deadline=None, max_examples=200)
@given(texts=st.lists(st.text(), max_size=5))
def test_fastokens_is_the_reference_on_any_text(gpt2_folder: Path, texts: list[str]) -> None:
    pytest.importorskip("fastokens")
    path = gpt2_folder / "tokenizer.json"
    assert per_text("fastokens", path, texts) == per_text("tokenizers", path, texts)


# ------------------------------------------------------------------------------- an engine that cannot be trusted


class Nearly:
    """A stand-in for fastokens: the reference's tokens, but for one text or with a piece missing."""

    wrong_on = ""
    reference: Any = None

    @classmethod
    def from_file(cls, path: str) -> Nearly:
        engine = cls()
        engine.reference = engines._open_tokenizers(Path(path), "text")
        return engine

    def no_truncation(self) -> None: ...
    def no_padding(self) -> None: ...

    def encode_batch_flat(self, texts: list[str], add_special_tokens: bool, split_special_tokens: bool) -> Any:
        assert not add_special_tokens and split_special_tokens
        ids, lengths = self.reference(texts)
        if self.wrong_on in texts:
            at = int(np.cumsum(lengths)[texts.index(self.wrong_on)]) - 1
            ids = ids.copy()
            ids[at] += 1
        return ids.astype("<u4").tobytes(), np.concatenate([[0], np.cumsum(lengths)]).astype("<u8").tobytes()


@pytest.fixture
def nearly(monkeypatch: pytest.MonkeyPatch) -> type[Nearly]:
    module = ModuleType("fastokens")
    module.Tokenizer = type("NearlyHere", (Nearly,), {})  # type: ignore[attr-defined]
    module.__spec__ = type(sys)("spec")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "fastokens", module)
    engines._open.cache_clear()
    return module.Tokenizer  # type: ignore[attr-defined,no-any-return]


def test_an_engine_with_the_same_tokens_is_taken(gpt2_folder: Path, nearly: type[Nearly]) -> None:
    nearly.wrong_on = "no probe says this"
    assert choose_engine("auto", gpt2_folder / "tokenizer.json", "text", LARGE).name == "fastokens"
    engines._open.cache_clear()


def test_an_engine_that_differs_on_one_probe_is_not(gpt2_folder: Path, nearly: type[Nearly]) -> None:
    nearly.wrong_on = "caf\u00e9"
    choice = choose_engine("auto", gpt2_folder / "tokenizer.json", "text", LARGE)
    assert choice.name == "tokenizers" and "differs from tokenizers on 'caf\u00e9'" in choice.reason
    with pytest.raises(UserError, match=r"differs from tokenizers.*use the engine tokenizers"):
        choose_engine("fastokens", gpt2_folder / "tokenizer.json", "text", 10)
    engines._open.cache_clear()


def test_an_engine_that_is_absent_is_said_so(gpt2_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.importlib.util, "find_spec", lambda name: None)
    choice = choose_engine("auto", gpt2_folder / "tokenizer.json", "text", LARGE)
    assert (choice.name, choice.reason) == ("tokenizers", "fastokens is not installed")
    with pytest.raises(UserError, match="fastokens is not installed"):
        choose_engine("fastokens", gpt2_folder / "tokenizer.json", "text", LARGE)


def test_a_small_corpus_is_not_worth_the_check(gpt2_folder: Path) -> None:
    choice = choose_engine("auto", gpt2_folder / "tokenizer.json", "text", LARGE - 1)
    assert (choice.name, choice.reason) == ("tokenizers", "")
