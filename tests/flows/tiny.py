"""A configuration of the whole flow that takes seconds: two dozen pages, a small vocabulary, a tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from static_site import url_lines

from flows.config import PipelineConfig, build_config
from tasks.artifacts import Artifact
from tasks.store import ArtifactStore


def tiny_settings(port: int) -> dict[str, Any]:
    host = f"127.0.0.1:{port}"
    one = {"workers": 1}
    return {
        "filter": {"allow_private_hosts": [host], "resources": one},
        "fetch": {
            "allow_private_hosts": [host],
            "urls_per_shard": 8,
            "resources": {"delay_seconds": 0.0, "max_requests_per_host": 4, "workers": 1},
        },
        "extract": {"resources": one},
        "clean": {"min_tokens": 32, "resources": one},
        "dedup": {"resources": one},
        "shuffle": {"resources": one},
        "vocabulary": {"name": "bpe", "vocab_size": 400},
        "tokenize": {"resources": one},
        "train": {
            "seq_length": 32,
            "micro_batch_size": 4,
            "global_batch_size": 4,
            "num_steps": 8,
            "eval_interval": 4,
            "save_interval": 4,
            "split": "80,20,0",
            "model": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 2},
            "optimizer": {"name": "adamw", "learning_rate": 1e-3},
            "resources": {"threads_per_process": 1},
        },
        "sample": {"prompts": ["The harbour"], "num_samples_per_prompt": 1, "max_new_tokens": 8},
    }


def tiny_config(folder: Path, port: int, **changes: Any) -> PipelineConfig:
    """The configuration for a site on `port`, store and URL list under `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    list_path = folder / "urls.txt"
    if not list_path.exists():
        list_path.write_text("\n".join(url_lines(port)) + "\n")
    settings = tiny_settings(port)
    settings["input"] = {"urls": [str(list_path)]}
    settings["store"] = str(folder / "store")
    assignments = [(name.split("."), value) for name, value in changes.items()]
    return build_config(settings, assignments)


def fingerprints(produced: dict[str, Artifact]) -> dict[str, str]:
    return {name: artifact.fingerprint for name, artifact in produced.items()}


def digests(config: PipelineConfig, artifact: Artifact) -> dict[str, str]:
    del config
    return {entry.name: entry.sha256 for entry in artifact.files}


def store_of(config: PipelineConfig) -> ArtifactStore:
    return ArtifactStore(config.store_path)
