"""Tokenizers from GPT-2's files, from a Hugging Face folder, and learned from documents."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from tasks.artifacts import DocumentShards
from tasks.errors import StageError, UserError
from tasks.gpt2_vocabulary import EOD_TOKEN, gpt2_files, gpt2_tokenizer
from tasks.progress import SilentProgress
from tasks.records import Document
from tasks.store import ArtifactStore
from tasks.tokenize.bpe_training import sample_documents, train_bpe
from tasks.tokenize.config import VocabularyConfig
from tasks.tokenize.stage import LOAD_VOCABULARY, VOCABULARY
from tasks.tokenize.tokenizer_directory import load_tokenizer, num_token_ids
from tasks.tokenize.vocabulary import read_bpe_files

ROOT = Path(__file__).resolve().parents[3]
TEXTS = [
    f"The harbour master opened gate number {number}; the tide isn't in before {number}:30.\n\n  def gate{number}(x):"
    for number in range(300)
]
PROBES = ["Hello world", " Hello  world ", "\n\n", "caf\u00e9", "\U0001f600", "don't", "\u65e5\u672c\u8a9e", "a\x00b"]

# ------------------------------------------------------------------------------------------------------- GPT-2


def test_gpt2_is_written_as_every_reader_wants_it(gpt2_folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = load_tokenizer(gpt2_folder / "tokenizer.json")
    assert num_token_ids(tokenizer) == 50257 and tokenizer.token_to_id(EOD_TOKEN) == 50256
    files = models.BPE.read_file(str(gpt2_folder / "vocab.json"), str(gpt2_folder / "merges.txt"))
    from_files = tokenizers.Tokenizer(models.BPE(*files))
    from_files.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    auto = AutoTokenizer.from_pretrained(gpt2_folder)
    assert auto.eos_token_id == auto.bos_token_id == 50256 and len(auto) == 50257
    for text in PROBES:
        wanted = gpt2_tokenizer().encode(text).ids
        assert tokenizer.encode(text).ids == from_files.encode(text).ids == auto(text).input_ids == wanted
        assert auto.decode(wanted) == text


def test_gpt2_is_the_published_vocabulary(gpt2_folder: Path, shared_data: Path) -> None:
    source = shared_data / "gpt2-vocab"
    vocabulary = json.loads(gzip.decompress((source / "vocab.json.gz").read_bytes()))
    assert json.loads((gpt2_folder / "vocab.json").read_bytes()) == vocabulary
    assert (gpt2_folder / "merges.txt").read_bytes() == gzip.decompress((source / "merges.txt.gz").read_bytes())


def test_with_and_without_documents_gpt2_is_the_same(
    store: ArtifactStore, make_documents: Callable[..., DocumentShards]
) -> None:
    learned = store.run(VOCABULARY, VocabularyConfig(), [make_documents(["Hello world"] * 4)])
    loaded = store.run(LOAD_VOCABULARY, VocabularyConfig(), ())
    assert learned.fingerprint == loaded.fingerprint
    assert (loaded.vocab_size, loaded.eod_token_id) == (50257, 50256)
    report = store.manifest_of(learned).report
    assert report is not None and report.numbers["bytes_per_token"] == pytest.approx(11 / 2)


def test_files_of_ones_own_may_be_given(store: ArtifactStore, gpt2_folder: Path) -> None:
    config = VocabularyConfig(vocab_path=gpt2_folder / "vocab.json", merges_path=gpt2_folder / "merges.txt")
    given_files = store.run(LOAD_VOCABULARY, config, ())
    assert (store.path_of(given_files) / "tokenizer.json").read_bytes() == (gpt2_folder / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("no json", "vocab_path = .*cannot be read"),
        ("no object", "is no object"),
        ("no byte", "1 of the 256 bytes have no token"),
        ("no marker", "it has no token <|endoftext|>"),
        ("gap", "ids are not 0 to 50256"),
        ("merges", "merges_path = .*does not belong to vocab.json"),
    ],
)
def test_files_that_are_no_vocabulary_are_refused(tmp_path: Path, damage: str, message: str) -> None:
    encoder, merges = gpt2_files()
    vocabulary = json.loads(encoder.read_text())
    text = merges.read_text()
    match damage:
        case "no object":
            vocabulary = [1]
        case "no byte":
            vocabulary["other"] = vocabulary.pop("a")
        case "no marker":
            del vocabulary[EOD_TOKEN]
        case "gap":
            vocabulary[EOD_TOKEN] = 50300
        case "merges":
            text += "zzz qqq\n"
    (tmp_path / "vocab.json").write_text("{" if damage == "no json" else json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text(text)
    with pytest.raises(UserError, match=message.replace("|", r"\|")):
        read_bpe_files(tmp_path / "vocab.json", tmp_path / "merges.txt")


# ----------------------------------------------------------------------------------------------------- learned


def learned(store: ArtifactStore, documents: DocumentShards, **settings: object) -> Path:
    config = VocabularyConfig.model_validate({"name": "bpe", "vocab_size": 500} | settings)
    return store.path_of(store.run(VOCABULARY, config, [documents]))


def test_a_learned_vocabulary_is_laid_out_as_gpt2s(
    store: ArtifactStore, make_documents: Callable[..., DocumentShards]
) -> None:
    from transformers import AutoTokenizer

    folder = learned(store, make_documents(TEXTS))
    vocabulary = json.loads((folder / "vocab.json").read_bytes())
    gpt2_vocabulary = json.loads(gpt2_files()[0].read_text())
    assert list(vocabulary)[:256] == sorted(gpt2_vocabulary, key=gpt2_vocabulary.__getitem__)[:256]
    assert vocabulary[EOD_TOKEN] == 499 and sorted(vocabulary.values()) == list(range(500))
    merges = (folder / "merges.txt").read_text().split("\n")[1:-1]
    assert [vocabulary[merge.replace(" ", "")] for merge in merges] == list(range(256, 499))
    auto = AutoTokenizer.from_pretrained(folder)
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    for text in [*PROBES, *TEXTS[:5]]:
        assert auto(text).input_ids == tokenizer.encode(text).ids
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_merges_are_those_of_the_library(store: ArtifactStore, make_documents: Callable[..., DocumentShards]) -> None:
    folder = learned(store, make_documents(TEXTS[:150], TEXTS[150:]))
    plain = tokenizers.Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=499, min_frequency=2, initial_alphabet=alphabet, show_progress=False)
    plain.train_from_iterator(TEXTS, trainer)
    wanted = json.loads(plain.to_str())["model"]["merges"]
    assert json.loads((folder / "tokenizer.json").read_bytes())["model"]["merges"] == wanted


LEARN = """
import hashlib, sys
from tasks.tokenize.bpe_training import train_bpe
texts = [f"word{number % 97} and number {number} in {number * 7919 % 1000}" for number in range(3000)]
print(hashlib.sha256(train_bpe(texts, 600, 2).to_str().encode()).hexdigest())
"""


def test_learning_is_the_same_in_every_process() -> None:
    # Hash seeds and threads must not decide between pairs that are equally frequent.
    digests = set()
    for seed, threads in (("1", "1"), ("2", "2"), ("3", "5")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads, "PYTHONPATH": str(ROOT)}
        digests.add(subprocess.run([sys.executable, "-c", LEARN], env=environment, capture_output=True).stdout)
    assert len(digests) == 1 and len(digests.pop().strip()) == 64


@settings(deadline=None, max_examples=100)
@given(text=st.text())
def test_any_text_comes_back(text: str) -> None:
    tokenizer = LEARNED
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


LEARNED = train_bpe(TEXTS, 400, 2)


def test_too_little_text_gives_a_smaller_vocabulary(
    store: ArtifactStore, make_documents: Callable[..., DocumentShards]
) -> None:
    progress = SilentProgress()
    config = VocabularyConfig(name="bpe", vocab_size=10_000)
    artifact = store.run(VOCABULARY, config, [make_documents(["some words, some words"] * 3)], progress)
    assert 257 < artifact.vocab_size < 300 and artifact.eod_token_id == artifact.vocab_size - 1
    assert any("tokens, not 10,000" in note for note in progress.notes)


def test_a_sample_depends_on_the_document_alone() -> None:
    documents = [Document(id=f"d{number}", url="", text="x") for number in range(4000)]
    chosen = [document.id for document in sample_documents(documents, 0.25, seed=7)]
    assert 850 < len(chosen) < 1150
    backwards = [document.id for document in sample_documents(reversed(documents[500:]), 0.25, seed=7)]
    assert set(backwards) == {name for name in chosen if int(name[1:]) >= 500}
    assert chosen != [document.id for document in sample_documents(documents, 0.25, seed=8)]
    assert len(list(sample_documents(documents, 1.0, seed=7))) == 4000


def test_a_large_corpus_is_sampled(store: ArtifactStore, make_documents: Callable[..., DocumentShards]) -> None:
    documents = make_documents(TEXTS)
    digests = {
        hashlib.sha256((learned(store, documents, **changes) / "merges.txt").read_bytes()).hexdigest()
        for changes in ({}, {"sample_bytes": 4000}, {"sample_bytes": 4000, "seed": 5})
    }
    assert len(digests) == 3


def test_without_documents_nothing_is_learned(
    store: ArtifactStore, make_documents: Callable[..., DocumentShards]
) -> None:
    with pytest.raises(UserError, match="learned from documents, and there are none"):
        store.run(LOAD_VOCABULARY, VocabularyConfig(name="bpe"), ())
    with pytest.raises(StageError, match="there are no documents"):
        store.run(VOCABULARY, VocabularyConfig(name="bpe"), [make_documents([])])


# ------------------------------------------------------------------------------------------------ Hugging Face


def huggingface_folder(folder: Path, eos: object, tokens: tuple[str, ...] = ("<s>", "</s>")) -> Path:
    folder.mkdir()
    tokenizer = train_bpe(TEXTS, 300, 2)
    tokenizer.add_special_tokens(list(tokens))
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(folder / "tokenizer.json"))
    if eos is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos, "model_max_length": 99}))
    return folder


@pytest.mark.parametrize(
    ("eos", "given_token", "wanted"),
    [("</s>", None, 301), ({"content": "</s>"}, None, 301), ("</s>", "<s>", 300), (None, None, 299)],
)
def test_a_huggingface_folder_is_taken_over(
    store: ArtifactStore, tmp_path: Path, eos: object, given_token: str | None, wanted: int
) -> None:
    source = huggingface_folder(tmp_path / "source", eos)
    config = VocabularyConfig(name="huggingface", path=source, eod_token=given_token)
    artifact = store.run(LOAD_VOCABULARY, config, ())
    folder = store.path_of(artifact)
    assert (artifact.vocab_size, artifact.eod_token_id) == (302, wanted)
    assert (folder / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    assert (folder / "tokenizer_config.json").is_file()
    # Truncation and padding of the file must never reach the corpus.
    assert len(load_tokenizer(folder / "tokenizer.json").encode("a " * 50).ids) > 50


def test_a_huggingface_folder_that_cannot_be_used_is_refused(store: ArtifactStore, tmp_path: Path) -> None:
    def load(path: Path, **settings: str) -> None:
        store.run(LOAD_VOCABULARY, VocabularyConfig(name="huggingface", path=path, **settings), ())  # type: ignore[arg-type]

    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no tokenizer.json"):
        load(tmp_path / "empty")
    source = huggingface_folder(tmp_path / "source", None)
    with pytest.raises(UserError, match="eod_token = '<end>': the tokenizer has no such token"):
        load(source, eod_token="<end>")
    (source / "tokenizer_config.json").write_text("[]")
    with pytest.raises(UserError, match="it is no JSON object"):
        load(source)
    (source / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be read"):
        load(source)
