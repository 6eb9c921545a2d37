"""`url2lm inspect` and `url2lm verify`: what lies at a path, and whether it is whole."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.summary import funnel_row
from tasks.artifacts import Artifact
from tasks.errors import CorruptArtifactError, CorruptInputError, UserError
from tasks.manifest import MANIFEST_NAME, Manifest, problems, read_manifest
from tasks.records import DOCUMENT_SUFFIXES, read_rows
from tasks.store import ArtifactStore

console = Console()
NUM_SHOWN_DOCUMENTS = 3
NUM_SHOWN_DOMAINS = 5
SHOWN_CHARACTERS = 300


def inspect(path: Path, *, as_json: bool) -> None:
    """Print what lies at `path`. Raises UserError when it is nothing this project knows."""
    facts = describe_path(path.expanduser().resolve())
    if as_json:
        console.print_json(orjson.dumps(facts).decode())
        return
    funnel, examples = facts.pop("funnel", []), facts.pop("examples", {})
    table = Table(title=escape(str(path)), show_header=False, title_justify="left")
    table.add_column("what", style="bold")
    table.add_column("value", overflow="fold")
    for name, value in facts.items():
        table.add_row(name, escape(_text(value)))
    console.print(table)
    if funnel:
        console.print(_funnel_table(funnel))
    for reason, shown in examples.items():
        console.print(f"[bold]{escape(reason)}[/]", highlight=False)
        for example in shown:
            console.print(f"    {escape(example)}", highlight=False, soft_wrap=True)


def _funnel_table(funnel: list[dict[str, Any]]) -> Table:
    """One row a stage: what went in, what came out, and the reasons of the rest, most frequent first."""
    table = Table(title="From the first list to this artifact", title_justify="left")
    table.add_column("stage", style="bold")
    table.add_column("in", justify="right")
    table.add_column("out", justify="right")
    for name in ("dropped", "HTTP statuses", "sites with most records"):
        table.add_column(name, overflow="fold")
    for row in funnel:
        domains = {name: sum(counts.values()) for name, counts in row.get("domains", {}).items()}
        table.add_row(
            row["stage"], f"{row['in']:,} {row['unit']}", f"{row['out']:,}", _listed(row.get("dropped", {})),
            _listed(row.get("statuses", {})), _listed(domains, NUM_SHOWN_DOMAINS),
        )  # fmt: skip
    return table


def _listed(counts: Mapping[str, int], number: int | None = None) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:number]
    return escape("\n".join(f"{count:,} {name}" for name, count in ordered))


def describe_path(path: Path) -> dict[str, Any]:
    """The facts about a path as plain values. Raises CorruptInputError for what cannot be read."""
    try:
        return _facts(path)
    except (ValueError, TypeError, OSError) as error:
        raise CorruptInputError(f"{path}: it is damaged ({error})") from error


def _facts(path: Path) -> dict[str, Any]:
    if (path / MANIFEST_NAME).is_file() and "artifact" in json.loads((path / MANIFEST_NAME).read_bytes()):
        return _artifact_facts(path)
    if (path / "artifacts").is_dir():
        return _store_facts(path)
    prefix = _corpus_prefix(path)
    if prefix is not None:
        return corpus_facts(prefix)
    if path.is_file() and path.name.endswith(DOCUMENT_SUFFIXES):
        return _documents_facts(path)
    if (path / "config.json").is_file():
        settings = json.loads((path / "config.json").read_bytes())
        return {"kind": "Hugging Face model", **settings}
    if (path / "latest.json").is_file() or (path / MANIFEST_NAME).is_file():
        return _checkpoint_facts(path)
    if not path.exists():
        raise UserError("path", str(path), "there is no such file or folder", "Name an existing one.")
    rule = "it is no artifact, store, corpus (.bin/.idx), document file (.jsonl), model or checkpoint"
    raise UserError("path", str(path), rule, "URL lists and WARC files are read by url2lm run --urls and --pages.")


def _artifact_facts(path: Path) -> dict[str, Any]:
    record = read_manifest(path)
    artifact = record.load()
    facts: dict[str, Any] = {"kind": record.kind}
    facts |= artifact.model_dump(mode="json", exclude={"files"})
    facts["files"] = {entry.name: entry.num_bytes for entry in artifact.files}
    if record.report is not None:
        facts["report"] = record.report.model_dump(mode="json", exclude={"examples"})
        facts["examples"] = record.report.examples
        facts["funnel"] = _funnel(path, record)
    facts |= {"config": record.config, "versions": record.versions, "seconds": record.seconds}
    facts["made_from"] = record.input_paths
    prefix = path / "corpus"
    if prefix.with_suffix(".idx").is_file():
        facts["corpus"] = corpus_facts(prefix, _tokenizer_of(path, record))
    shards = sorted(path.glob("documents-*.jsonl*"))
    if shards:
        facts["first_documents"] = _documents_facts(shards[0])["first_documents"]
    return facts


def _funnel(path: Path, record: Manifest) -> list[dict[str, Any]]:
    """The stages that led to an artifact, first ones first, as far as their artifacts lie in the same store."""
    root = path.parents[2]
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()

    def visit(relative: str, manifest: Manifest) -> None:
        if relative in seen:
            return
        seen.add(relative)
        for above in manifest.input_paths:
            if (root / above / MANIFEST_NAME).is_file():
                visit(above, read_manifest(root / above))
        row = funnel_row(manifest.artifact.get("stage") or Path(relative).parent.name, manifest)
        if row is not None:
            rows.append(row)

    visit(str(path.relative_to(root)), record)
    return rows


def _tokenizer_of(path: Path, record: Manifest) -> Path | None:
    """The tokenizer a corpus was made with, when it lies in the same store."""
    root = path.parents[2]
    for relative in record.input_paths:
        if (root / relative / "tokenizer.json").is_file():
            return root / relative / "tokenizer.json"
    return None


def _store_facts(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": "artifact store"}
    for artifact, record in ArtifactStore(path).artifacts():
        facts[artifact.path] = f"{record.kind}, {artifact.num_file_bytes:,} bytes, {record.published_at[:19]}"
    return facts


def _corpus_prefix(path: Path) -> Path | None:
    if path.suffix in (".bin", ".idx"):
        path = path.with_suffix("")
    return path if path.with_name(path.name + ".idx").is_file() else None


def corpus_facts(prefix: Path, tokenizer_path: Path | None = None) -> dict[str, Any]:
    """Header, counts and length statistics of a .bin/.idx pair, and its first documents as token ids and text."""
    import numpy as np

    from trainer.data.indexed_dataset import IndexedDataset

    corpus = IndexedDataset(prefix)
    lengths = corpus.sequence_lengths
    facts: dict[str, Any] = {
        "kind": "corpus (.bin/.idx)",
        "dtype": str(np.dtype(corpus.dtype)),
        "num_documents": len(corpus.document_indices) - 1,
        "num_sequences": len(corpus),
        "num_tokens": int(lengths.sum()),
    }
    if len(lengths):
        percentiles = np.percentile(lengths, [0, 10, 50, 90, 100]).astype(int).tolist()
        facts["length_tokens"] = dict(zip(("min", "p10", "p50", "p90", "max"), percentiles, strict=True))
    shown = [corpus[index] for index in range(min(NUM_SHOWN_DOCUMENTS, len(corpus)))]
    facts["first_token_ids"] = [" ".join(map(str, tokens[:16].tolist())) for tokens in shown]
    if tokenizer_path is not None:
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_path))
        facts["first_documents"] = [tokenizer.decode(tokens[:120].tolist())[:SHOWN_CHARACTERS] for tokens in shown]
    return facts


def _documents_facts(path: Path) -> dict[str, Any]:
    num_documents, bad = 0, dict[str, int]()
    shown: list[dict[str, str]] = []
    for row in read_rows(path):
        if row.document is None:
            bad[row.reason] = bad.get(row.reason, 0) + 1
            continue
        num_documents += 1
        if len(shown) < NUM_SHOWN_DOCUMENTS:
            text = row.document.text[:SHOWN_CHARACTERS]
            shown.append({"id": row.document.id, "url": row.document.url, "text": text})
    return {"kind": "documents", "num_documents": num_documents, "bad_rows": bad, "first_documents": shown}


def _checkpoint_facts(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": "checkpoint"}
    for name in ("latest.json", MANIFEST_NAME):
        if (path / name).is_file():
            facts |= json.loads((path / name).read_bytes())
    facts["steps"] = sorted(item.name for item in path.glob("step_*") if item.is_dir())
    return facts


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, Mapping | list):
        return json.dumps(value, indent=1, ensure_ascii=False)
    return str(value)


def verify(path: Path, *, as_json: bool) -> bool:
    """Check an artifact, every artifact of a store, or a .bin/.idx pair byte by byte. Returns whether all is well."""
    results = verified(path.expanduser().resolve())
    if as_json:
        console.print_json(orjson.dumps(results).decode())
    else:
        for name, wrong in results.items():
            if wrong:
                for problem in itertools.islice(wrong, 10):
                    console.print(f"[red]damaged[/] {escape(name)}: {escape(problem)}", highlight=False)
            else:
                console.print(f"[green]whole[/]   {escape(name)}", highlight=False)
    return not any(results.values())


def verified(path: Path) -> dict[str, list[str]]:
    """What is wrong at a path, by artifact; an empty list is a whole one."""
    if (path / MANIFEST_NAME).is_file():
        return {str(path): _artifact_problems(path)}
    if (path / "artifacts").is_dir():
        folders = sorted(item for item in (path / "artifacts").glob("*/*") if item.is_dir())
        return {str(folder.relative_to(path)): _artifact_problems(folder) for folder in folders}
    prefix = _corpus_prefix(path)
    if prefix is not None:
        from trainer.data.indexed_dataset import IndexedDataset

        try:
            IndexedDataset(prefix)
        except (ValueError, OSError, CorruptInputError) as error:
            return {str(prefix): [str(error)]}
        return {f"{prefix} (sizes and index agree; no checksum of the content is known)": []}
    raise UserError("path", str(path), "it is no artifact, store or corpus", "Name one of these.")


def _artifact_problems(folder: Path) -> list[str]:
    try:
        artifact: Artifact = read_manifest(folder).load()
    except (CorruptArtifactError, ValueError) as error:
        return [str(error)]
    return problems(folder, artifact.files, thorough=True)
