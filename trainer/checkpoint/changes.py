"""What a resume goes on with that is not what the checkpoint was made with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.config import TrainConfig

FREE_TO_CHANGE = {
    "parallel",
    "micro_batch_size",
    "eval_interval",
    "eval_steps",
    "save_interval",
    "keep_last",
    "log_interval",
}


def changed_settings(saved: Mapping[str, Any], config: TrainConfig) -> str:
    """Settings that decide what is trained and that differ from those of the checkpoint; empty when all are the same.

    The layout, and how often one evaluates, saves and reports, may change freely.
    """
    changes: list[str] = []

    def compare(path: str, old: Any, new: Any) -> None:
        if isinstance(old, dict) and isinstance(new, dict):
            for name in sorted(old.keys() | new.keys()):
                compare(f"{path}.{name}" if path else name, old.get(name), new.get(name))
        elif old != new:
            changes.append(f"{path} {old} is now {new}")

    compare("", _deciding(saved), _deciding(config.model_dump(mode="json", exclude={"resources"})))
    return ", ".join(changes)


def _deciding(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in FREE_TO_CHANGE}
