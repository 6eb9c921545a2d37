"""Settings of the vocabulary and of tokenizing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from tasks.configuration import Resources, StageConfig
from tasks.errors import nearest
from tasks.gpt2_vocabulary import GPT2_VOCAB_SIZE

VocabularyName = Literal["gpt2", "bpe", "huggingface"]
NUM_BYTES = 256
OWN_FIELDS: dict[str, tuple[str, ...]] = {
    "gpt2": ("vocab_path", "merges_path"),
    "bpe": ("vocab_size", "min_frequency", "sample_bytes", "seed"),
    "huggingface": ("path", "eod_token"),
}
"""Which settings belong to which kind of vocabulary."""


def _known_name(value: object) -> object:
    names = get_args(VocabularyName)
    if isinstance(value, str) and value not in names:
        raise ValueError(f"there is no such vocabulary. {nearest(value, names)}")
    return value


class VocabularyConfig(StageConfig):
    """Where the tokenizer comes from: GPT-2's own, trained on the corpus, or a Hugging Face directory."""

    name: Annotated[VocabularyName, BeforeValidator(_known_name)] = "gpt2"
    """gpt2: GPT-2's 50,257 tokens; bpe: byte-level BPE learned from the documents; huggingface: a tokenizer.json."""
    vocab_path: Path | None = None
    """gpt2 only: a vocab.json (encoder.json) of your own in place of GPT-2's; needs merges_path."""
    merges_path: Path | None = None
    """gpt2 only: the merges.txt (vocab.bpe) that belongs to vocab_path."""
    vocab_size: int = Field(default=GPT2_VOCAB_SIZE, gt=NUM_BYTES)
    """bpe only: number of tokens: 256 bytes, what is learned, and the end-of-document token, which has the last id."""
    min_frequency: int = Field(default=2, ge=1)
    """bpe only: a pair seen less often than this is not merged."""
    sample_bytes: int = Field(default=300_000_000, ge=1)
    """bpe only: learn from about so many bytes of text; a larger corpus is sampled document by document."""
    seed: int = Field(default=1234, ge=0, lt=2**64)
    """bpe only: which documents of a larger corpus are in the sample."""
    path: Path | None = None
    """huggingface only: the folder that holds tokenizer.json."""
    eod_token: str | None = None
    """huggingface only: the token that ends a document; none takes eos_token of tokenizer_config.json."""

    @model_validator(mode="after")
    def _fields_of_this_kind(self) -> Self:
        for owner, fields in OWN_FIELDS.items():
            for field in fields:
                if owner != self.name and getattr(self, field) != type(self).model_fields[field].default:
                    raise ValueError(
                        f"{field} belongs to name = {owner!r}, and the name is {self.name!r}; "
                        f"leave it out or change the name"
                    )
        if self.name == "gpt2" and (self.vocab_path is None) != (self.merges_path is None):
            raise ValueError("vocab_path and merges_path belong together; give both or neither")
        if self.name == "huggingface" and self.path is None:
            raise ValueError("name = 'huggingface' needs path, the folder that holds tokenizer.json")
        return self


class TokenizeResources(Resources):
    """How fast, never what: every engine gives the same tokens."""

    engine: Literal["auto", "tokenizers", "fastokens"] = "auto"
    """auto takes fastokens where it is installed and passes a check against tokenizers, else tokenizers."""
    checked_fraction: float = Field(default=1 / 2000, ge=0, le=1)
    """Part of the documents that tokenizers encodes too when another engine works; a difference ends the stage."""


class TokenizeConfig(StageConfig):
    """How documents become token numbers."""

    append_eod: bool = True
    """Put the end-of-document token after every document, once. A document without tokens gets none."""
    special_tokens: Literal["text", "parse"] = "text"
    """What a special token written in a document is: plain text, or the token itself (as Megatron's tool reads it)."""
    resources: TokenizeResources = TokenizeResources()
    """Workers and engine; they never change what is made."""
