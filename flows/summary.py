"""What came of a run: the facts as one dictionary, the table and the samples for a person."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tasks.artifacts import Artifact, Checkpoint, DocumentShards, EvalReport, PageShards, TokenizedCorpus, Tokenizer
from tasks.manifest import Manifest
from tasks.store import ArtifactStore

NUM_SHOWN_SAMPLES = 3
PLACES = {
    "tokenize": "corpus (.bin/.idx)",
    "train": "checkpoint",
    "convert": "Hugging Face model",
    "sample": "samples",
}
"""Stages whose result a person goes on with, and what it is called."""


def facts(store: ArtifactStore, produced: Mapping[str, Artifact], seconds: float) -> dict[str, Any]:
    """Counts, losses and places of everything a run made, by name; only what was made is there."""
    found: dict[str, Any] = {"store": str(store.root), "seconds": round(seconds, 1)}
    if "filter" in produced:
        report = store.manifest_of(produced["filter"]).report
        if report is not None:
            found["lines_in"], found["urls_kept"], found["urls_dropped"] = report.num_in, report.num_out, report.dropped
    for artifact in produced.values():
        if isinstance(artifact, PageShards):
            found["pages_fetched"] = artifact.num_pages
            found["pages_dropped"] = dropped(store, artifact)
        elif isinstance(artifact, DocumentShards):
            found["documents_kept"] = artifact.num_documents
            found.setdefault("documents_dropped", {})[artifact.stage] = dropped(store, artifact)
        elif isinstance(artifact, Tokenizer):
            found["vocab_size"] = artifact.vocab_size
        elif isinstance(artifact, TokenizedCorpus):
            found["tokens"] = artifact.num_tokens
        elif isinstance(artifact, Checkpoint):
            found["parameters"], found["steps"] = artifact.num_parameters, artifact.num_steps
            found["first_loss"], found["last_loss"] = artifact.first_loss, artifact.last_loss
            found["validation_loss"] = artifact.validation_loss
        elif isinstance(artifact, EvalReport):
            found["perplexity"], found["bits_per_byte"] = artifact.perplexity, artifact.bits_per_byte
    found["funnel"] = [
        row for name, artifact in produced.items() if (row := funnel_row(name, store.manifest_of(artifact)))
    ]
    found["artifacts"] = {name: str(store.path_of(artifact)) for name, artifact in produced.items()}
    return found


def funnel_row(stage: str, manifest: Manifest) -> dict[str, Any] | None:
    """What went into a stage, what came out and why the rest did not; by site and HTTP status where it is known."""
    report = manifest.report
    if report is None:
        return None
    row: dict[str, Any] = {"stage": stage, "unit": report.unit, "in": report.num_in, "out": report.num_out}
    more = {"dropped": report.dropped, "statuses": report.statuses, "domains": report.domains}
    return row | {name: value for name, value in more.items() if value}


def dropped(store: ArtifactStore, artifact: Artifact) -> dict[str, int]:
    """How many records a stage did not keep, by reason."""
    report = store.manifest_of(artifact).report
    return {} if report is None else report.dropped


def samples(store: ArtifactStore, produced: Mapping[str, Artifact]) -> list[dict[str, Any]]:
    """The generated texts of a run, in file order."""
    if "sample" not in produced:
        return []
    path = store.path_of(produced["sample"]) / "samples.jsonl"
    return [orjson.loads(line) for line in path.read_bytes().split(b"\n") if line]


def print_summary(
    console: Console, store: ArtifactStore, produced: Mapping[str, Artifact], found: Mapping[str, Any]
) -> None:
    """The table at the end of a run, then a few samples."""
    table = Table(title="What came of it", show_header=False, title_justify="left")
    table.add_column("what", style="bold")
    table.add_column("value", overflow="fold")
    for name, text in _rows(found):
        table.add_row(name, text)
    console.print()
    console.print(table)
    for name, label in PLACES.items():
        if name in found["artifacts"]:  # below the table and on lines of their own: they are there to be copied
            console.print(f"[bold]{label}[/]\n  {escape(found['artifacts'][name])}", highlight=False, soft_wrap=True)
    for number, sample in enumerate(samples(store, produced)[:NUM_SHOWN_SAMPLES], start=1):
        console.print()
        console.rule(f"sample {number}", align="left", style="dim")
        console.print(f"[bold]{escape(sample['prompt'])}[/]{escape(sample['text'])}", highlight=False, soft_wrap=True)
    if "convert" in found["artifacts"]:
        console.print("\nTo let it write more:", highlight=False)
        command = f"url2lm sample {shlex.quote(found['artifacts']['convert'])} --prompt 'The '"
        console.print(f"  {escape(command)}", highlight=False, soft_wrap=True)


def _rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if "lines_in" in found:
        rows.append(("URLs in", f"{found['lines_in']:,}{_reasons(found['urls_dropped'])}"))
    if "pages_fetched" in found:
        rows.append(("pages fetched", f"{found['pages_fetched']:,}{_reasons(found['pages_dropped'])}"))
    if "documents_kept" in found:
        total: dict[str, int] = {}
        for reasons in found["documents_dropped"].values():
            for reason, count in reasons.items():
                total[reason] = total.get(reason, 0) + count
        rows.append(("documents kept", f"{found['documents_kept']:,}{_reasons(total)}"))
    if "tokens" in found:
        vocabulary = f" (vocabulary {found['vocab_size']:,})" if "vocab_size" in found else ""
        rows.append(("tokens", f"{found['tokens']:,}{vocabulary}"))
    if "parameters" in found:
        rows.append(("parameters", f"{found['parameters']:,}"))
        rows.append(
            (
                "training loss",
                f"{found['first_loss']:.3f} first, {found['last_loss']:.3f} last ({found['steps']:,} steps)",
            )
        )
        if found["validation_loss"] is not None:
            rows.append(("validation loss", f"{found['validation_loss']:.3f}"))
    if "perplexity" in found:
        rows.append(("perplexity", f"{found['perplexity']:.2f} ({found['bits_per_byte']:.3f} bits per byte)"))
    rows.append(("seconds", f"{found['seconds']:.1f}"))
    rows.append(("store", escape(str(found["store"]))))
    return rows


def _reasons(dropped: Mapping[str, int]) -> str:
    if not dropped:
        return ""
    listed = ", ".join(f"{count:,} {reason}" for reason, count in sorted(dropped.items(), key=lambda item: -item[1]))
    return f"  (dropped: {listed})"
