"""A user's own files become artifacts: the flow may start at URLs, WARC files, documents, a corpus or a model.

Adopting is a stage without inputs. Files count by content, so that the same list under another name, from
another folder or with another date is the same artifact, and a changed one never is.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field

from tasks.artifacts import DocumentShards, HFModel, PageShards, TokenizedCorpus, UrlList
from tasks.configuration import StageConfig
from tasks.errors import CorruptInputError, UserError
from tasks.parquet import PARQUET_SUFFIX, read_parquet_rows, require_pyarrow
from tasks.progress import Progress, StageReport
from tasks.records import DOCUMENT_SUFFIXES, DocumentWriter, Row, read_lines, read_rows
from tasks.stages import Stage
from tasks.store import ArtifactStore, StageBuild

DOCUMENTS_PER_SHARD = 20_000


class AdoptConfig(StageConfig):
    """Which files to take over."""

    paths: tuple[Path, ...]
    """The files, in the order in which they are read."""
    text_field: str = "text"
    """The field that holds a document's text (documents only)."""


class AdoptCorpusConfig(StageConfig):
    """Which .bin/.idx pair to take over, and the vocabulary it was made with."""

    bin_path: Path
    """The .bin file; the .idx lies beside it."""
    idx_path: Path
    """The .idx file."""
    vocab_size: int = Field(default=50257, gt=0)
    """Number of token ids of the tokenizer that made it; GPT-2's unless you say otherwise."""
    eod_token_id: int = Field(default=50256, ge=0)
    """The id that ends a document; GPT-2's unless you say otherwise."""


def expand_paths(
    field: str, patterns: Sequence[str | Path], suffixes: tuple[str, ...] | None = None
) -> tuple[Path, ...]:
    """Files named by paths, folders and globs, each pattern's matches sorted. Raises UserError when one names none."""
    found: list[Path] = []
    for pattern in patterns:
        if not str(pattern):
            raise UserError(field, "", "no file is named", "Give a file, folder or glob.")
        try:
            matches = _matches(Path(pattern).expanduser(), suffixes)
        except (OSError, ValueError, RuntimeError) as error:
            raise UserError(field, str(pattern), f"it cannot be looked up ({error})", "Give another path.") from error
        if not matches:
            raise UserError(field, str(pattern), "no such file", "Give an existing file, folder or glob.")
        found.extend(item.resolve() for item in matches)
    return tuple(found)


def _matches(path: Path, suffixes: tuple[str, ...] | None) -> list[Path]:
    if path.is_dir():
        found = sorted(item for item in path.rglob("*") if item.is_file() and not item.name.startswith("."))
        return [item for item in found if item.name.endswith(suffixes)] if suffixes else found
    if path.is_file():
        return [path]
    root = Path(path.anchor) if path.is_absolute() else Path()
    relative = path.relative_to(root) if path.is_absolute() else path
    return sorted(item for item in root.glob(str(relative)) if item.is_file())


def _suffixes(path: Path) -> str:
    known = [part for part in path.suffixes[-2:] if part in (".txt", ".gz", ".xz", ".zst", ".jsonl", ".json")]
    return "".join(known) or ".txt"


def take_urls(build: StageBuild, config: AdoptConfig) -> UrlList:
    """Copy URL lists as they are. Blank lines are no records. Raises UserError when no line is left."""
    report = StageReport(unit="lines")
    for index, path in enumerate(config.paths):
        target = build.directory / f"urls-{index:05d}{_suffixes(path)}"
        shutil.copyfile(path, target)
        num_lines = sum(1 for line in read_lines(target) if line.strip())
        report.num_in += num_lines
        report.num_out += num_lines
    if report.num_out == 0:
        names = ", ".join(path.name for path in config.paths)
        raise UserError("urls", names, "the list is empty", "Give a file with one URL a line.")
    return build.publish(UrlList, report, num_urls=report.num_out)


def take_pages(build: StageBuild, config: AdoptConfig) -> PageShards:
    """Copy WARC files as they are. Raises UserError when a file holds no response."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    report = StageReport(unit="pages")
    for index, path in enumerate(config.paths):
        suffix = {".warc": ".warc", ".zst": ".warc.zst"}.get(path.suffix, ".warc.gz")
        target = build.directory / f"pages-{index:05d}{suffix}"
        shutil.copyfile(path, target)
        try:
            with target.open("rb") as stream:
                responses = ArchiveIterator(stream, record_types=WarcRecordType.response, parse_http=False)
                num_pages = sum(1 for _ in responses)
        except (OSError, ValueError, RuntimeError) as error:
            raise CorruptInputError(f"{path}: this is no sound WARC file ({error})") from error
        if num_pages == 0:
            raise UserError("pages", str(path), "the file holds no WARC response record", "Give WARC files of a crawl.")
        report.num_in += num_pages
        report.num_out += num_pages
    return build.publish(PageShards, report, num_pages=report.num_out)


def rows_of(path: Path, text_field: str) -> Iterator[Row]:
    """The rows of a file of documents: JSON lines, or Parquet by its suffix."""
    if path.suffix == PARQUET_SUFFIX:
        return read_parquet_rows(path, text_field)
    return read_rows(path, text_field)


def take_documents(build: StageBuild, config: AdoptConfig) -> DocumentShards:
    """Cut JSON lines and Parquet into shards. A row that is no document is dropped under its reason.

    Raises CorruptInputError for a damaged compressed file and UserError when no document is left.
    """
    report = StageReport(unit="documents")
    num_text_bytes = 0
    writer: DocumentWriter | None = None
    num_shards = 0
    try:
        for path in config.paths:
            for row in rows_of(path, config.text_field):
                report.num_in += 1
                if row.document is None:
                    report.drop(row.reason, f"{path.name}:{row.line_number}: {row.raw.decode(errors='replace')}")
                    continue
                if row.repaired:
                    report.count("surrogates_replaced")
                if writer is None or writer.num_documents >= DOCUMENTS_PER_SHARD:
                    if writer is not None:
                        writer.__exit__(None, None, None)
                        num_text_bytes += writer.num_text_bytes
                    writer = DocumentWriter(build.directory / f"documents-{num_shards:05d}.jsonl.zst")
                    num_shards += 1
                writer.write(row.document)
                report.num_out += 1
    except BaseException as error:
        if writer is not None:
            writer.__exit__(type(error), error, None)
        raise
    if writer is None:
        names = ", ".join(path.name for path in config.paths)
        reasons = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items())
        rule = f"no line holds a document with the text field {config.text_field!r} ({reasons})"
        raise UserError("documents", names, rule, 'Give JSON lines such as {"text": "..."}.')
    writer.__exit__(None, None, None)
    num_text_bytes += writer.num_text_bytes
    return build.publish(DocumentShards, report, num_documents=report.num_out, num_text_bytes=num_text_bytes)


def take_corpus(build: StageBuild, config: AdoptCorpusConfig) -> TokenizedCorpus:
    """Copy a .bin/.idx pair after checking that the two belong together and that the tokenizer knows every id."""
    from trainer.data.errors import CorpusError
    from trainer.data.indexed_dataset import IndexedDataset

    shutil.copyfile(config.bin_path, build.directory / "corpus.bin")
    shutil.copyfile(config.idx_path, build.directory / "corpus.idx")
    try:
        corpus = IndexedDataset(build.directory / "corpus")
    except CorpusError as error:
        raise CorruptInputError(str(error)) from error
    if (highest := corpus.highest_token_id()) >= config.vocab_size:
        rule = f"it holds the token id {highest}, and the tokenizer knows 0 to {config.vocab_size - 1}"
        raise UserError(
            "corpus", str(config.bin_path), rule, "Name the tokenizer that made it: vocabulary.name, .path."
        )
    num_documents = len(corpus.document_indices) - 1
    report = StageReport(unit="documents", num_in=num_documents, num_out=num_documents)
    return build.publish(
        TokenizedCorpus,
        report,
        num_documents=num_documents,
        num_tokens=int(corpus.sequence_lengths.sum()),
        vocab_size=config.vocab_size,
        eod_token_id=config.eod_token_id,
        tokenizer_fingerprint="",
    )


def take_hf_model(build: StageBuild, config: AdoptConfig) -> HFModel:
    """Copy a Hugging Face GPT-2 directory. Its weights are the user's: no parity was measured."""
    for path in config.paths:
        shutil.copyfile(path, build.directory / path.name)
    try:
        settings = json.loads((build.directory / "config.json").read_text(encoding="utf-8"))
        vocab_size = int(settings["vocab_size"])
        num_parameters = sum(_num_elements(path) for path in sorted(build.directory.glob("*.safetensors")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        folder = config.paths[0].parent
        raise CorruptInputError(f"{folder}: this is no sound Hugging Face model ({error})") from error
    report = StageReport(unit="models", num_in=1, num_out=1)
    return build.publish(
        HFModel, report, num_parameters=num_parameters, vocab_size=vocab_size, max_logit_difference=None
    )


def _num_elements(path: Path) -> int:
    """Elements of the tensors of a safetensors file, by its header. Raises ValueError for no such file."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > size - 8:
            raise ValueError(f"{path.name}: its header would pass its end")
        header = json.loads(stream.read(length))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


ADOPT_URLS = Stage("adopt-urls", 1, AdoptConfig, (), UrlList, take_urls, "Take over a URL list")
ADOPT_PAGES = Stage("adopt-pages", 1, AdoptConfig, (), PageShards, take_pages, "Take over WARC files")
ADOPT_DOCUMENTS = Stage("adopt-documents", 1, AdoptConfig, (), DocumentShards, take_documents, "Take over documents")
ADOPT_CORPUS = Stage("adopt-corpus", 1, AdoptCorpusConfig, (), TokenizedCorpus, take_corpus, "Take over .bin/.idx")
ADOPT_HF_MODEL = Stage("adopt-model", 1, AdoptConfig, (), HFModel, take_hf_model, "Take over a Hugging Face model")


def adopt_urls(store: ArtifactStore, patterns: Sequence[str | Path], progress: Progress | None = None) -> UrlList:
    """URL lists (.txt, .jsonl, also .gz, .xz, .zst) as one UrlList."""
    return store.run(ADOPT_URLS, AdoptConfig(paths=expand_paths("urls", patterns)), (), progress)


def adopt_pages(store: ArtifactStore, patterns: Sequence[str | Path], progress: Progress | None = None) -> PageShards:
    """WARC files as PageShards."""
    paths = expand_paths("pages", patterns, (".warc", ".warc.gz", ".warc.zst"))
    return store.run(ADOPT_PAGES, AdoptConfig(paths=paths), (), progress)


def adopt_documents(
    store: ArtifactStore,
    patterns: Sequence[str | Path],
    progress: Progress | None = None,
    text_field: str = "text",
) -> DocumentShards:
    """JSON lines (.jsonl, also .gz, .zst) and Parquet (.parquet, with pyarrow) as DocumentShards."""
    paths = expand_paths("documents", patterns, (*DOCUMENT_SUFFIXES, PARQUET_SUFFIX))
    if any(path.suffix == PARQUET_SUFFIX for path in paths):
        require_pyarrow("documents")
    return store.run(ADOPT_DOCUMENTS, AdoptConfig(paths=paths, text_field=text_field), (), progress)


def corpus_paths(prefix: str | Path) -> tuple[Path, Path]:
    """The two files of a corpus. Raises UserError when one is not there."""
    text = str(Path(prefix).expanduser()).removesuffix(".bin").removesuffix(".idx")
    for path in (bin_path := Path(text + ".bin"), idx_path := Path(text + ".idx")):
        if not path.is_file():
            raise UserError("corpus", str(prefix), f"{path} does not exist", "Give the prefix of a .bin/.idx pair.")
    return bin_path.resolve(), idx_path.resolve()


def adopt_corpus(
    store: ArtifactStore, prefix: str | Path, vocab_size: int, eod_token_id: int, progress: Progress | None = None
) -> TokenizedCorpus:
    """PREFIX.bin and PREFIX.idx as a TokenizedCorpus. The prefix may also be given as one of the two file names."""
    bin_path, idx_path = corpus_paths(prefix)
    config = AdoptCorpusConfig(bin_path=bin_path, idx_path=idx_path, vocab_size=vocab_size, eod_token_id=eod_token_id)
    return store.run(ADOPT_CORPUS, config, (), progress)


def adopt_hf_model(store: ArtifactStore, directory: str | Path, progress: Progress | None = None) -> HFModel:
    """A Hugging Face model directory as an HFModel."""
    folder = Path(directory).expanduser()
    if not (folder / "config.json").is_file():
        raise UserError("model", str(directory), "it holds no config.json", "Give a Hugging Face model directory.")
    paths = tuple(
        sorted(path.resolve() for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    )
    if not any(path.suffix == ".safetensors" for path in paths):
        raise UserError("model", str(directory), "it holds no .safetensors file", "Save it with save_pretrained first.")
    return store.run(ADOPT_HF_MODEL, AdoptConfig(paths=paths), (), progress)
