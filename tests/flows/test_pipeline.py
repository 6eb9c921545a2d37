"""The whole way over a real local web server and a real Prefect server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from static_site import NUM_ARTICLES, serving
from tiny import fingerprints, store_of, tiny_config

from flows.config import STAGE_NAMES, PipelineConfig
from tasks.artifacts import Artifact, DocumentShards
from tasks.errors import UserError

pytestmark = pytest.mark.usefixtures("prefect_api")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    log = tmp_path_factory.mktemp("site") / "requests.log"
    log.touch()
    with serving(log) as port:
        yield port, log


def run(config: PipelineConfig) -> tuple[dict[str, Artifact], dict[str, str]]:
    """What each stage made, and in which state each ended."""
    from flows.pipeline import pipeline
    from flows.steps import StageEnd, on_stage_end

    states: dict[str, str] = {}

    def hear(end: StageEnd) -> None:
        states[end.stage] = end.state_name

    on_stage_end(hear)
    try:
        produced = pipeline(config)
    finally:
        on_stage_end(None)
    return produced, states


@pytest.fixture(scope="module")
def whole(site: tuple[int, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Artifact]]:
    folder = tmp_path_factory.mktemp("whole")
    produced, states = run(tiny_config(folder, site[0]))
    assert set(states.values()) == {"Completed"} and set(states) == set(STAGE_NAMES)
    return folder, produced


@pytest.fixture
def copied(whole: tuple[Path, dict[str, Artifact]], tmp_path: Path) -> Path:
    """A folder of its own with the same list and store."""
    shutil.copytree(whole[0], tmp_path / "run")
    return tmp_path / "run"


def test_the_funnel_says_where_every_url_went(site: tuple[int, Path], whole: tuple[Path, dict[str, Artifact]]) -> None:
    folder, produced = whole
    store = store_of(tiny_config(folder, site[0]))
    reports = {name: store.manifest_of(artifact).report for name, artifact in produced.items()}
    filtered, fetched, deduplicated = reports["filter"], reports["fetch"], reports["dedup"]
    assert filtered is not None and fetched is not None and deduplicated is not None
    assert filtered.num_in == NUM_ARTICLES + 5 and sum(filtered.dropped.values()) == 3
    assert fetched.num_out == NUM_ARTICLES and sum(fetched.dropped.values()) == 2
    assert deduplicated.num_in - deduplicated.num_out == 1
    for report in reports.values():
        if report is not None:
            report.check_balance()


def test_training_learned_and_the_model_loads_elsewhere(
    site: tuple[int, Path], whole: tuple[Path, dict[str, Artifact]]
) -> None:
    folder, produced = whole
    store = store_of(tiny_config(folder, site[0]))
    checkpoint: Any = produced["train"]
    assert checkpoint.last_loss < checkpoint.first_loss
    script = (
        "import sys, torch\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "model = AutoModelForCausalLM.from_pretrained(sys.argv[1]); tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "ids = tokenizer('The harbour master', return_tensors='pt').input_ids\n"
        "assert tokenizer.decode(ids[0]) == 'The harbour master' and model(ids).logits.shape[-1] == len(tokenizer)\n"
    )
    path = store.path_of(produced["convert"])
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(path)], check=True, env=environment)
    samples = [
        json.loads(line) for line in (store.path_of(produced["sample"]) / "samples.jsonl").read_text().splitlines()
    ]
    assert samples[0]["prompt"] == "The harbour" and samples[0]["text"]


def test_a_second_run_is_cached_and_asks_for_no_page(site: tuple[int, Path], copied: Path) -> None:
    before = site[1].read_text()
    _, states = run(tiny_config(copied, site[0]))
    assert states == dict.fromkeys(STAGE_NAMES, "Cached")
    assert site[1].read_text() == before


def test_another_learning_rate_runs_training_and_what_follows(site: tuple[int, Path], copied: Path) -> None:
    _, states = run(tiny_config(copied, site[0], **{"train.optimizer.learning_rate": 2e-3}))
    expected = dict.fromkeys(STAGE_NAMES, "Cached") | dict.fromkeys(
        ("train", "convert", "evaluate", "sample"), "Completed"
    )
    assert states == expected


def test_a_dry_run_says_what_is_cached(site: tuple[int, Path], copied: Path) -> None:
    from flows.plan import plan

    before = sorted(copied.rglob("*"))
    assert plan(tiny_config(copied, site[0])) == dict.fromkeys(STAGE_NAMES, "cached")
    changed = plan(tiny_config(copied, site[0], **{"clean.min_tokens": 33, "until": "shuffle"}))
    after = "depends on what comes before"
    assert changed == dict.fromkeys(("filter", "fetch", "extract"), "cached") | {
        "clean": "would run",
        "dedup": after,
        "shuffle": after,
    }
    assert plan(tiny_config(copied, site[0], refresh=["train"]))["train"] == "would run"
    assert sorted(copied.rglob("*")) == before, "nothing was made"


def test_a_deleted_file_makes_its_stage_run_again(
    site: tuple[int, Path], copied: Path, whole: tuple[Path, dict[str, Artifact]]
) -> None:
    config = tiny_config(copied, site[0])
    (store_of(config).path_of(whole[1]["clean"]) / "documents-00000.jsonl.zst").unlink()
    produced, states = run(config)
    assert states == dict.fromkeys(STAGE_NAMES, "Cached") | {"clean": "Completed"}
    assert fingerprints(produced) == fingerprints(whole[1])


def test_a_flow_stops_and_starts_where_it_is_told(site: tuple[int, Path], copied: Path, tmp_path: Path) -> None:
    produced, _ = run(tiny_config(copied, site[0], until="clean"))
    assert list(produced) == ["filter", "fetch", "extract", "clean"]
    _, states = run(tiny_config(copied, site[0], only="dedup"))
    assert states["dedup"] == "Completed" and list(states) == ["filter", "fetch", "extract", "clean", "dedup"]
    lines = [
        json.dumps({"text": f"The keeper of lamp {number} wrote the number in the green book. " * 8})
        for number in range(9)
    ]
    (tmp_path / "own.jsonl").write_text("\n".join(lines))
    own = tiny_config(
        tmp_path / "own",
        site[0],
        **{"input.urls": [], "input.documents": [str(tmp_path / "own.jsonl")], "until": "shuffle"},
    )
    produced, _ = run(own)
    assert list(produced) == ["clean", "dedup", "shuffle"]
    (tmp_path / "exam.txt").write_text("the keeper of lamp 3 wrote the number in the green book")
    tested = tiny_config(
        tmp_path / "own",
        site[0],
        **{
            "input.urls": [],
            "input.documents": [str(tmp_path / "own.jsonl")],
            "until": "shuffle",
            "decontaminate.benchmarks": [str(tmp_path / "exam.txt")],
        },
    )
    with_benchmark, states = run(tested)
    assert list(states) == ["clean", "dedup", "decontaminate", "shuffle"] and states["dedup"] == "Cached"
    before, after = produced["shuffle"], with_benchmark["shuffle"]
    assert isinstance(before, DocumentShards) and isinstance(after, DocumentShards)
    assert after.num_documents == before.num_documents - 1
    with pytest.raises(UserError, match="until = decontaminate, but decontaminate.benchmarks is empty"):
        tiny_config(tmp_path / "own", site[0], until="decontaminate")


def test_a_flow_starts_at_a_corpus(
    site: tuple[int, Path], whole: tuple[Path, dict[str, Artifact]], tmp_path: Path
) -> None:
    store = store_of(tiny_config(whole[0], site[0]))
    changes = {
        "input.urls": [],
        "input.corpus": str(store.path_of(whole[1]["tokenize"]) / "corpus"),
        "vocabulary": {"name": "huggingface", "path": str(store.path_of(whole[1]["vocabulary"]))},
    }
    config = tiny_config(tmp_path / "own", site[0], **changes, until="convert")
    produced, _ = run(config)
    assert list(produced) == ["train", "convert"]
    losses = [
        (place.path_of(made["train"]) / "losses.jsonl").read_bytes()
        for place, made in ((store_of(config), produced), (store, whole[1]))
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(("stage", "until"), [("clean", "tokenize"), ("train", "train")])
def test_kill_in_the_middle_of_a_stage_and_run_again(
    site: tuple[int, Path],
    whole: tuple[Path, dict[str, Artifact]],
    copied: Path,
    tmp_path: Path,
    prefect_api: str,
    stage: str,
    until: str,
) -> None:
    """The run is killed while the stage works; the next one ends with the same bytes as an undisturbed one.

    What comes before the stage is cached; fetch, dedup and tokenize are killed by case ORC-07.
    """
    config = tiny_config(copied, site[0], until=until)
    for name in STAGE_NAMES[STAGE_NAMES.index(stage) :]:
        shutil.rmtree(store_of(config).path_of(whole[1][name]))
    script = tmp_path / "child.py"
    script.write_text(
        "import sys\nfrom flows.config import PipelineConfig\nfrom flows.pipeline import pipeline\n"
        "if __name__ == '__main__':\n    pipeline(PipelineConfig.model_validate_json(open(sys.argv[1]).read()))\n"
    )
    (tmp_path / "config.json").write_text(config.model_dump_json())
    child = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "config.json")],
        cwd=ROOT,
        env={**os.environ, "PREFECT_API_URL": prefect_api, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    work = config.store_path / ".work"
    end = time.monotonic() + 120
    while child.poll() is None and time.monotonic() < end and not list(work.glob(f"{stage}-*")):
        time.sleep(0.005)
    time.sleep({"clean": 0.02, "train": 3.0}[stage])
    child.send_signal(signal.SIGKILL)
    child.wait()
    produced, _ = run(config)
    ours, theirs = fingerprints(produced), fingerprints(whole[1])
    timed = ("train", "convert", "evaluate", "sample")  # their folders hold speeds or dates
    assert {name: ours[name] for name in ours if name not in timed} == {
        name: theirs[name] for name in ours if name not in timed
    }
    if "train" in ours:
        store, undisturbed = store_of(config), store_of(tiny_config(whole[0], site[0]))
        losses = [
            (place.path_of(made["train"]) / "losses.jsonl").read_text()
            for place, made in ((store, produced), (undisturbed, whole[1]))
        ]
        assert losses[0] == losses[1]
    assert not list(work.glob("*"))


def test_the_process_that_holds_the_flow_never_loads_torch() -> None:
    script = (
        "import sys\nimport flows.cli, flows.run_command, flows.pipeline, flows.registry, flows.inspect_command\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules, 'loaded'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
