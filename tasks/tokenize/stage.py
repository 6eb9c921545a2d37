"""The stages `vocabulary` and `tokenize`: documents to a tokenizer, documents and tokenizer to .bin/.idx."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tasks.artifacts import DocumentShards, TokenizedCorpus, Tokenizer
from tasks.engine import map_shards
from tasks.errors import StageError, UserError
from tasks.progress import StageReport, add_reports
from tasks.records import Document, read_rows
from tasks.stages import Stage
from tasks.store import StageBuild
from tasks.tokenize.config import TokenizeConfig, VocabularyConfig
from tasks.tokenize.encode import EncodeJob, encode_piece
from tasks.tokenize.engines import choose_engine, open_engine
from tasks.tokenize.pieces import PieceFiles, join_pieces, plan_pieces
from tasks.tokenize.tokenizer_directory import TOKENIZER_NAME
from tasks.tokenize.vocabulary import write_vocabulary
from trainer.data.indexed_dataset import best_dtype

MEASURED_BYTES = 1_000_000
"""Bytes per token are measured on the first documents, up to this much text."""


def document_paths(build: StageBuild, documents: DocumentShards) -> list[Path]:
    """The shard files of an artifact, in order. Raises StageError when there is none."""
    directory = build.path_of(documents)
    names = [entry.name for entry in documents.files if entry.name.startswith("documents-")]
    if not names or documents.num_documents == 0:
        raise StageError(f"{documents.path}: there are no documents to work on; look at what earlier stages dropped")
    return [directory / name for name in sorted(names)]


def read_documents(paths: list[Path]) -> Iterator[Document]:
    """Every document of the shards, in order; lines that are none are passed over."""
    for path in paths:
        for row in read_rows(path):
            if row.document is not None:
                yield row.document


def train_vocabulary(build: StageBuild, config: VocabularyConfig, documents: DocumentShards) -> Tokenizer:
    """Make the tokenizer that `config` names. The report says how many bytes of text a token stands for.

    Raises UserError for vocabulary files that cannot be used, StageError when there are no documents.
    """
    paths = document_paths(build, documents)
    build.progress.start("vocabulary", None, "documents")

    def heard() -> Iterator[Document]:
        for document in read_documents(paths):
            build.progress.advance()
            yield document

    written = write_vocabulary(build.directory, config, heard(), documents.num_text_bytes)
    if config.name == "bpe" and written.vocab_size < config.vocab_size:
        build.progress.note(
            f"the vocabulary has {written.vocab_size:,} tokens, not {config.vocab_size:,}: no other pair is seen "
            f"{config.min_frequency} times"
        )
    report = StageReport(unit="vocabularies", num_in=1, num_out=1)
    report.count("tokens", written.vocab_size)
    report.numbers["bytes_per_token"] = bytes_per_token(build.directory / TOKENIZER_NAME, read_documents(paths))
    return build.publish(Tokenizer, report, vocab_size=written.vocab_size, eod_token_id=written.eod_token_id)


def load_vocabulary(build: StageBuild, config: VocabularyConfig) -> Tokenizer:
    """Make a tokenizer that needs no documents. Raises UserError when `config` asks for one that is learned."""
    if config.name == "bpe":
        rule = "a vocabulary is learned from documents, and there are none here"
        raise UserError("vocabulary.name", config.name, rule, "Use gpt2, or huggingface with the tokenizer's folder.")
    written = write_vocabulary(build.directory, config, (), 0)
    report = StageReport(unit="vocabularies", num_in=1, num_out=1)
    report.count("tokens", written.vocab_size)
    return build.publish(Tokenizer, report, vocab_size=written.vocab_size, eod_token_id=written.eod_token_id)


def bytes_per_token(tokenizer_path: Path, documents: Iterator[Document]) -> float:
    """UTF-8 bytes of text a token stands for, over the first documents, end-of-document tokens not counted."""
    encode = open_engine("tokenizers", tokenizer_path, "text")
    num_bytes = num_tokens = 0
    for document in documents:
        num_bytes += len(document.text.encode())
        num_tokens += int(encode([document.text])[1][0])
        if num_bytes >= MEASURED_BYTES:
            break
    return num_bytes / num_tokens if num_tokens else 0.0


def tokenize_documents(
    build: StageBuild, config: TokenizeConfig, documents: DocumentShards, tokenizer: Tokenizer
) -> TokenizedCorpus:
    """Encode all documents, in order, into corpus.bin and corpus.idx, and map document numbers to their sources.

    An empty document keeps its number and has no tokens. Raises StageError when no document has a token, UserError
    when an engine is asked for by name and cannot be used.
    """
    paths = document_paths(build, documents)
    tokenizer_path = build.path_of(tokenizer) / TOKENIZER_NAME
    resources = config.resources
    engine = choose_engine(resources.engine, tokenizer_path, config.special_tokens, documents.num_text_bytes)
    if engine.reason:
        build.progress.note(f"{engine.reason}; the documents are encoded by {engine.name}")
    dtype = best_dtype(tokenizer.vocab_size)
    pieces = plan_pieces(paths)
    build.scratch.mkdir(exist_ok=True)
    jobs = [
        EncodeJob(
            piece=piece,
            tokenizer_path=tokenizer_path,
            engine=engine.name,
            special_tokens=config.special_tokens,
            eod_token_id=tokenizer.eod_token_id if config.append_eod else None,
            dtype=dtype.str,
            checked_fraction=resources.checked_fraction,
        )
        for piece in pieces
    ]
    results = map_shards(
        encode_piece,
        [(job.piece.name, job) for job in jobs],
        build.directory,
        workers=resources.workers,
        progress=build.progress,
        description="tokenize",
    )
    report = add_reports((result.report for result in results), "documents")
    names = [PieceFiles.of(piece.name) for piece in pieces]
    num_documents, num_tokens = join_pieces(build.directory, names, dtype)
    if num_documents != report.num_out:
        raise StageError(f"{report.num_out} documents were encoded, the corpus has {num_documents}")
    if num_tokens == 0:
        raise StageError(f"{documents.path}: no document has a token; look at what earlier stages dropped")
    if report.counts.get("text_tokens"):
        report.numbers["bytes_per_token"] = report.counts["text_bytes"] / report.counts["text_tokens"]
    return build.publish(
        TokenizedCorpus,
        report,
        num_documents=num_documents,
        num_tokens=num_tokens,
        vocab_size=tokenizer.vocab_size,
        eod_token_id=tokenizer.eod_token_id,
        tokenizer_fingerprint=tokenizer.fingerprint,
    )


VOCABULARY = Stage(
    name="vocabulary",
    version=1,
    config=VocabularyConfig,
    inputs=(DocumentShards,),
    output=Tokenizer,
    run=train_vocabulary,
    description="Make the tokenizer: GPT-2's, a given one, or one learned from the documents",
)
LOAD_VOCABULARY = Stage(
    name="load-vocabulary",
    version=1,
    config=VocabularyConfig,
    inputs=(),
    output=Tokenizer,
    run=load_vocabulary,
    description="Take a tokenizer that needs no documents",
)
TOKENIZE = Stage(
    name="tokenize",
    version=1,
    config=TokenizeConfig,
    inputs=(DocumentShards, Tokenizer),
    output=TokenizedCorpus,
    run=tokenize_documents,
    description="Encode documents into Megatron's .bin/.idx",
)
