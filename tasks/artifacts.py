"""The typed artifacts that stages hand to each other: small frozen records that point at files in the store."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from tasks.errors import UserError, nearest


class FileEntry(BaseModel):
    """One published file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Path relative to the artifact's directory, with forward slashes."""
    num_bytes: int
    sha256: str


class Artifact(BaseModel):
    """What every artifact knows about itself. Paths are relative to the store, so that a store can be moved."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: ClassVar[str] = "Artifact"

    stage: str
    """The stage that made it ("filter", "train" ...), or "adopt" for a user's own files."""
    key: str
    """What made it: sha256 of stage, version, settings without resources, and fingerprints of the inputs."""
    fingerprint: str
    """What it is: digest over names and sha256 of its files. Later stages depend on this alone."""
    path: str
    """Directory relative to the store's root."""
    files: tuple[FileEntry, ...]
    """Every file of the artifact, sorted by name."""
    inputs: tuple[str, ...] = ()
    """Fingerprints of the artifacts it was made from, in order."""

    @property
    def num_file_bytes(self) -> int:
        """Bytes on disk."""
        return sum(entry.num_bytes for entry in self.files)


class UrlList(Artifact):
    """URLs, one a line, UTF-8, `\\n` at the end of each line."""

    kind = "UrlList"
    num_urls: int = Field(ge=0)


class PageShards(Artifact):
    """Fetched pages as WARC files (one gzip member a record) and the outcome of every URL."""

    kind = "PageShards"
    num_pages: int = Field(ge=0)


class DocumentShards(Artifact):
    """Documents as `*.jsonl.zst` shards; see tasks.records.Document for the fields."""

    kind = "DocumentShards"
    num_documents: int = Field(ge=0)
    num_text_bytes: int = Field(ge=0)
    """UTF-8 bytes of all texts."""


class Tokenizer(Artifact):
    """A tokenizer directory that `tokenizers` and transformers load (tokenizer.json and companions)."""

    kind = "Tokenizer"
    vocab_size: int = Field(gt=0)
    """Number of token ids, special tokens included; not padded."""
    eod_token_id: int = Field(ge=0)


class TokenizedCorpus(Artifact):
    """Megatron's `corpus.bin` and `corpus.idx`, and the map from document number to its source."""

    kind = "TokenizedCorpus"
    num_documents: int = Field(ge=0)
    num_tokens: int = Field(ge=0)
    """Tokens in corpus.bin, end-of-document tokens counted."""
    vocab_size: int = Field(gt=0)
    eod_token_id: int = Field(ge=0)
    tokenizer_fingerprint: str
    """Training or exporting with another tokenizer is refused. Empty for adopted files of unknown origin."""


class Checkpoint(Artifact):
    """A finished training run: the last checkpoint, its config and the metrics of every step."""

    kind = "Checkpoint"
    num_steps: int = Field(ge=0)
    num_parameters: int = Field(gt=0)
    vocab_size: int = Field(gt=0)
    eod_token_id: int = Field(ge=0)
    tokenizer_fingerprint: str
    first_loss: float
    """Training loss of the first step, nats per token."""
    last_loss: float
    """Training loss of the last step, nats per token."""
    validation_loss: float | None
    """Loss on the validation split after the last step, nats per token; None when the split is empty."""


class HFModel(Artifact):
    """A Hugging Face model directory (safetensors, config, tokenizer) that passed its parity gate."""

    kind = "HFModel"
    num_parameters: int = Field(gt=0)
    vocab_size: int = Field(gt=0)
    max_logit_difference: float | None
    """Largest difference to the trainer's own logits in the parity gate (fp32); None for an adopted model."""


class Samples(Artifact):
    """Generated texts: samples.jsonl, one {prompt, text, seed, token_ids} a line."""

    kind = "Samples"
    num_samples: int = Field(ge=0)


class EvalReport(Artifact):
    """Perplexity on a held-out split: evaluation.json."""

    kind = "EvalReport"
    loss: float
    """Nats per predicted token."""
    perplexity: float
    bits_per_byte: float
    num_tokens: int = Field(ge=0)


KINDS: dict[str, type[Artifact]] = {
    model.kind: model
    for model in (
        UrlList,
        PageShards,
        DocumentShards,
        Tokenizer,
        TokenizedCorpus,
        Checkpoint,
        HFModel,
        Samples,
        EvalReport,
    )
}


def artifact_kind(name: str) -> type[Artifact]:
    """The artifact class of that name. Raises UserError for an unknown one."""
    if name not in KINDS:
        raise UserError("kind", name, "there is no such artifact", nearest(name, KINDS))
    return KINDS[name]
