"""The stage judge: cleaned documents by other rules of quality, from the numbers that were kept. No text is read twice
for a number: nothing is repaired, no language is looked for, nothing is measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tasks.artifacts import DocumentShards
from tasks.clean.config import JudgeConfig
from tasks.clean.kept_numbers import DROPPED_FOLDER, NUMBERS_FOLDER, read_numbers
from tasks.clean.quality_rules import Rule, first_failed
from tasks.clean.shards import document_shards, example_of, output_name, publish_documents
from tasks.engine import map_shards
from tasks.errors import UserError, nearest
from tasks.progress import StageReport
from tasks.records import Document, DocumentWriter, read_rows
from tasks.store import StageBuild


def _documents(path: Path) -> Iterator[Document]:
    return (row.document for row in read_rows(path) if row.document is not None)


def judge_shard(shard: tuple[str, JudgeConfig], directory: Path) -> tuple[list[str], StageReport]:
    """Write those documents of one cleaned shard, dropped ones included where they were kept, that pass now."""
    source, rules = Path(shard[0]), shard[1].quality.rules()
    report = StageReport(unit="documents")
    name = output_name(source)
    kept = _documents(source)
    dropped_path = source.parent / DROPPED_FOLDER / source.name
    dropped = _documents(dropped_path) if dropped_path.is_file() else None
    with DocumentWriter(directory / name) as writer:
        for _, was_kept, numbers in read_numbers(source.parent / NUMBERS_FOLDER / source.name):
            if not was_kept and dropped is None:
                continue
            document = next(kept) if was_kept else next(dropped or iter(()))
            report.num_in += 1
            failed = first_failed(rules, numbers)
            if failed is not None:
                report.drop(failed.name, f"{numbers[failed.measure]:g}: {example_of(document)}")
                continue
            if not was_kept:
                report.count("brought_back")
            writer.write(document)
            report.num_out += 1
        report.count("text_bytes", writer.num_text_bytes)
    return [name], report


def _check_numbers(rules: tuple[Rule, ...], paths: list[Path]) -> None:
    # Every document of an artifact has the same numbers: the first one answers for all.
    taken = next((numbers for path in paths for _, _, numbers in read_numbers(path)), {})
    for rule in rules if taken else ():
        if rule.measure not in taken:
            raise UserError(
                "quality", rule.name, f"its number {rule.measure} was not taken when the documents were cleaned",
                f"Clean with a preset that takes it, or leave the rule out (off). {nearest(rule.measure, taken)}",
            )  # fmt: skip


def judge_documents(build: StageBuild, config: JudgeConfig, documents: DocumentShards) -> DocumentShards:
    """Keep what passes the rules of quality now, in input order.

    Raises UserError when the documents have no numbers, or not those that a rule needs; StageError when none is kept.
    """
    folder = build.path_of(documents)
    paths = document_shards(folder)
    without = [path.name for path in paths if not (folder / NUMBERS_FOLDER / path.name).is_file()]
    if without or not paths:
        raise UserError(
            "documents", str(folder), "they have no kept numbers (folder measured)",
            "Give the artifact of a clean stage that ran with quality.presets.",
        )  # fmt: skip
    _check_numbers(config.quality.rules(), [folder / NUMBERS_FOLDER / path.name for path in paths])
    if not (folder / DROPPED_FOLDER).is_dir():
        build.progress.note("What the clean stage dropped was not kept (keep_dropped): rules can only become stricter.")
    results = map_shards(
        judge_shard,
        [(path.name, (str(path), config)) for path in paths],
        build.directory,
        workers=config.resources.workers,
        progress=build.progress,
        description="judging documents",
    )
    return publish_documents(build, [result.report for result in results])
