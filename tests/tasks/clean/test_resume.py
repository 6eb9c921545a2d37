"""Killed in the middle of any step, a rerun keeps finished shards and makes the same bytes."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.artifacts import DocumentShards
from tasks.clean.config import CleanConfig, DedupConfig, ShuffleConfig
from tasks.clean.stage import CLEAN, DEDUP, SHUFFLE
from tasks.store import ArtifactStore

ROOT = Path(__file__).resolve().parents[3]
STAGES = {"clean": CLEAN, "dedup": DEDUP, "shuffle": SHUFFLE}
CONFIGS = {
    "clean": CleanConfig(min_tokens=8),
    "dedup": DedupConfig(),
    "shuffle": ShuffleConfig(documents_per_shard=10),
}
SENTENCE = "The harbour master opened the gate at dawn and counted every boat twice before the tide turned. "

# Runs a stage in which the process kills itself when so many shards of all steps together are done.
CHILD = """
import os, signal, sys
from pathlib import Path
from tasks.clean.stage import CLEAN, DEDUP, SHUFFLE
from tasks.progress import SilentProgress
from tasks.store import ArtifactStore

class Deadly(SilentProgress):
    left = int(sys.argv[4])
    def advance(self, amount=1):
        Deadly.left -= amount
        if not Deadly.left:
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    stage = {"clean": CLEAN, "dedup": DEDUP, "shuffle": SHUFFLE}[sys.argv[1]]
    store = ArtifactStore(Path(sys.argv[2]))
    config = stage.config.model_validate_json(sys.argv[3])
    store.run(stage, config, [store.load(Path(sys.argv[5]))], Deadly())
"""


@pytest.mark.parametrize(
    ("name", "done"), [("clean", 2), ("dedup", 2), ("dedup", 7), ("dedup", 11), ("shuffle", 2), ("shuffle", 6)]
)
def test_a_killed_stage_goes_on(
    store: ArtifactStore, corpus: Callable[..., DocumentShards], name: str, done: int
) -> None:
    # Pairs of near copies in every shard, so that each of the four shards has something to compare.
    texts = [f"{SENTENCE} {SENTENCE} {number // 2} " + "end " * (number % 2) for number in range(40)]
    documents = corpus(texts, documents_per_shard=10)
    config = CONFIGS[name].model_copy(update={"resources": type(CONFIGS[name].resources)(workers=1)})
    undisturbed = store.run(STAGES[name], config, [documents])
    work = store.work_directory(name, STAGES[name].key(config, [documents]))
    shutil.rmtree(store.path_of(undisturbed))
    command = [sys.executable, "-c", CHILD, name, str(store.root), config.model_dump_json(), str(done)]
    child = subprocess.run([*command, str(store.path_of(documents))], cwd=ROOT, timeout=120)
    assert child.returncode == -signal.SIGKILL
    assert not list((store.root / "artifacts" / name).glob("*/manifest.json")), "nothing is published"
    finished = {path: path.stat().st_mtime_ns for path in work.rglob(".shards/*.json")}
    assert len(finished) == done
    seen: dict[Path, int] = {}

    class Watch:
        """Sees whether markers of finished shards stay as they are while the stage goes on."""

        def start(self, description: str, total: int | None, unit: str) -> None:
            del description, total, unit

        def advance(self, amount: int = 1) -> None:
            del amount
            seen.update({path: path.stat().st_mtime_ns for path in finished})

        def note(self, message: str) -> None:
            raise AssertionError(message)

        def metric(self, event: dict[str, object]) -> None:
            del event

    made = store.run(STAGES[name], config, [documents], Watch())
    assert made.fingerprint == undisturbed.fingerprint
    assert seen == finished, "finished shards were not made again"
