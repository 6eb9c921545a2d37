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
from tasks.clean.config import CleanConfig, DecontaminateConfig, DedupConfig, ShuffleConfig, ShuffleResources
from tasks.clean.stage import CLEAN, DECONTAMINATE, DEDUP, SHUFFLE
from tasks.store import ArtifactStore

ROOT = Path(__file__).resolve().parents[3]
STAGES = {stage.name: stage for stage in (CLEAN, DEDUP, DECONTAMINATE, SHUFFLE)}
CONFIGS = {
    "clean": CleanConfig(min_tokens=8),
    "dedup": DedupConfig(),
    "decontaminate": DecontaminateConfig(),
    "shuffle": ShuffleConfig(documents_per_shard=10, resources=ShuffleResources(memory_bytes=1 << 20)),
    "shuffle in memory": ShuffleConfig(documents_per_shard=10),
}
SENTENCE = "The harbour master opened the gate at dawn and counted every boat twice before the tide turned. "

# Runs a stage in which the process kills itself when so many shards of all steps together are done.
CHILD = """
import os, signal, sys
from pathlib import Path
from tasks.clean.stage import CLEAN, DECONTAMINATE, DEDUP, SHUFFLE
from tasks.progress import SilentProgress
from tasks.store import ArtifactStore

class Deadly(SilentProgress):
    left = int(sys.argv[4])
    def advance(self, amount=1):
        Deadly.left -= amount
        if not Deadly.left:
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    stage = {stage.name: stage for stage in (CLEAN, DEDUP, DECONTAMINATE, SHUFFLE)}[sys.argv[1]]
    store = ArtifactStore(Path(sys.argv[2]))
    config = stage.config.model_validate_json(sys.argv[3])
    store.run(stage, config, [store.load(Path(sys.argv[5]))], Deadly())
"""


@pytest.mark.parametrize(
    ("case", "done"),
    [
        ("clean", 2),
        ("dedup", 2),  # hashing
        ("dedup", 5),  # same words
        ("dedup", 12),  # bands
        ("dedup", 21),  # comparing
        ("dedup", 25),  # writing
        ("decontaminate", 2),  # searching
        ("decontaminate", 6),  # cutting
        ("shuffle", 2),  # dealing
        ("shuffle", 6),  # gathering
        ("shuffle in memory", 2),
    ],
)
def test_a_killed_stage_goes_on(
    store: ArtifactStore, corpus: Callable[..., DocumentShards], tmp_path: Path, case: str, done: int
) -> None:
    name = case.split()[0]
    # Pairs of near copies in every shard, so that each of the four shards has something to compare.
    texts = [f"{SENTENCE} {SENTENCE} {number // 2} " + "end " * (number % 2) for number in range(40)]
    if case == "shuffle":  # more than the least memory holds
        texts = [f"{text} {'x' * 30_000}" for text in texts]
    documents = corpus(texts, documents_per_shard=10)
    settings: dict[str, object] = {"resources": CONFIGS[case].resources.model_copy(update={"workers": 1})}
    if name == "decontaminate":
        (tmp_path / "exam.txt").write_text(f"{SENTENCE} 7 end")
        settings |= {"benchmarks": (tmp_path / "exam.txt",), "min_piece_characters": 0, "cut_characters": 0}
    config = CONFIGS[case].model_copy(update=settings)
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
