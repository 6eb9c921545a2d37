"""Small real stages that the tests of store, engine and flow run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tasks.artifacts import DocumentShards, UrlList
from tasks.configuration import StageConfig
from tasks.engine import map_shards
from tasks.errors import TransientError
from tasks.progress import StageReport, add_reports
from tasks.records import Document, DocumentWriter
from tasks.stages import Stage
from tasks.store import StageBuild


class WriteConfig(StageConfig):
    """Settings of the toy stage."""

    num_shards: int = 4
    """Shards to write."""
    rows_per_shard: int = 10
    """Documents in each."""
    kill_at: str = ""
    """Name of the shard in whose middle the process kills itself, while `armed` exists."""
    fail_at: str = ""
    """Name of the shard that raises TransientError, while `armed` exists."""
    armed: str = ""
    """A file; as long as it is there, kill_at and fail_at work. Each removes it first."""


def write_shard(shard: tuple[int, dict[str, object]], directory: Path) -> tuple[list[str], StageReport]:
    index, config = shard
    settings = WriteConfig.model_validate(config)
    name = f"documents-{index:05d}.jsonl.zst"
    with DocumentWriter(directory / name) as writer:
        for row in range(settings.rows_per_shard):
            if row == settings.rows_per_shard // 2 and settings.armed and Path(settings.armed).exists():
                if settings.kill_at == str(index):
                    Path(settings.armed).unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
                if settings.fail_at == str(index):
                    Path(settings.armed).unlink()
                    raise TransientError("the disk hiccupped")
            writer.write(Document(id=f"{index}-{row}", url=f"http://example.com/{index}/{row}", text="one two three"))
    # The log of what was worked on grows by whole lines only, so that a test can count attempts.
    with (directory / ".attempts").open("a") as log:
        log.write(f"{index}\n")
    rows = settings.rows_per_shard
    return [name], StageReport(unit="documents", num_in=rows, num_out=rows)


def write_documents(build: StageBuild, config: WriteConfig) -> DocumentShards:
    shards = [(str(index), (index, config.model_dump())) for index in range(config.num_shards)]
    results = map_shards(
        write_shard,
        shards,
        build.directory,
        workers=config.resources.workers,
        progress=build.progress,
        description="writing",
    )
    report = add_reports((result.report for result in results), "documents")
    return build.publish(DocumentShards, report, num_documents=report.num_out, num_text_bytes=13 * report.num_out)


class CountConfig(StageConfig):
    """Settings of the toy stage that counts."""

    factor: int = 1
    """Lines written for each document."""


def count_documents(build: StageBuild, config: CountConfig, documents: DocumentShards) -> UrlList:
    number = documents.num_documents * config.factor
    (build.directory / "urls.txt").write_text("".join(f"http://example.com/{line}\n" for line in range(number)))
    return build.publish(UrlList, StageReport(unit="documents", num_in=number, num_out=number), num_urls=number)


WRITE = Stage("write", 1, WriteConfig, (), DocumentShards, write_documents, "Write documents")
COUNT = Stage("count", 1, CountConfig, (DocumentShards,), UrlList, count_documents, "Count documents")
COUNT_TWIN = Stage("count-twin", 1, CountConfig, (DocumentShards,), UrlList, count_documents, "Count again")
