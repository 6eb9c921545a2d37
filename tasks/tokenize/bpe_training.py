"""A byte-level BPE vocabulary learned from documents, laid out as GPT-2's: 256 bytes, merges, end-of-document."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator

import tokenizers
from tokenizers import pre_tokenizers, trainers

from tasks.gpt2_vocabulary import EOD_TOKEN, byte_level_bpe
from tasks.records import Document
from tasks.tokenize.tokenizer_directory import merge_pairs


def sample_documents(documents: Iterable[Document], fraction: float, seed: int) -> Iterator[Document]:
    """Keep about `fraction` of the documents, and with them of the bytes.

    A document's own id decides, so that neither order nor number of the others matters.
    """
    if fraction >= 1:
        yield from documents
        return
    limit = int(fraction * 2**64)
    key = seed.to_bytes(16, "little", signed=False)
    for document in documents:
        digest = hashlib.blake2b(document.id.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
        if int.from_bytes(digest, "little") < limit:
            yield document


def train_bpe(texts: Iterable[str], vocab_size: int, min_frequency: int) -> tokenizers.Tokenizer:
    """Learn merges until the vocabulary has `vocab_size` tokens, or until no pair is left that is frequent enough.

    Each text is one document: a token may hold a line break. The 256 bytes come first, in GPT-2's order, so that any
    text can be encoded; the end-of-document token has the last id and is never learned.
    """
    learner = byte_level_bpe({}, [])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        min_frequency=min_frequency,
        special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    model = json.loads(learner.to_str())["model"]
    vocabulary: dict[str, int] = model["vocab"]
    # The marker itself is never learned: letters and punctuation are different words, and no merge crosses a word.
    merges = list(merge_pairs(model["merges"]))
    return byte_level_bpe(vocabulary | {EOD_TOKEN: len(vocabulary)}, merges)
