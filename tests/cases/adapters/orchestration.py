"""Cases of orchestration and caching: keys, reruns, kills, concurrent runs, time limits."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[2]
for folder in (TESTS / "tasks", TESTS / "flows"):
    sys.path.insert(0, str(folder))

from prefect_server import api_url  # noqa: E402
from static_site import NUM_ARTICLES, serving  # noqa: E402
from tiny import fingerprints, store_of, tiny_config  # noqa: E402
from toy_stages import COUNT, WRITE, CountConfig, WriteConfig  # noqa: E402

from flows.config import STAGE_NAMES, PipelineConfig  # noqa: E402
from tasks.artifacts import Artifact, UrlList  # noqa: E402
from tasks.configuration import StageConfig, plain  # noqa: E402
from tasks.launch import run_child  # noqa: E402
from tasks.progress import StageReport  # noqa: E402
from tasks.stages import Stage  # noqa: E402
from tasks.store import ArtifactStore, StageBuild  # noqa: E402

Case = dict[str, Any]
ROOT = TESTS.parent
LAST_STAGE = "tokenize"


@contextmanager
def prefect() -> Iterator[str]:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    address = api_url()
    with temporary_settings({PREFECT_API_URL: address}):
        yield address


def run(config: PipelineConfig) -> tuple[dict[str, Artifact], dict[str, str]]:
    """Run the flow; what each stage made, and in which state each ended."""
    from flows.pipeline import pipeline
    from flows.steps import StageEnd, on_stage_end

    states: dict[str, str] = {}

    def hear(end: StageEnd) -> None:
        states[end.stage] = end.state_name

    on_stage_end(hear)
    try:
        return pipeline(config), states
    finally:
        on_stage_end(None)


def start(config: PipelineConfig, folder: Path, address: str) -> subprocess.Popen[bytes]:
    """The same flow in a process of its own."""
    script, settings = folder / "child.py", folder / "config.json"
    script.write_text(
        "import sys\nfrom flows.config import PipelineConfig\nfrom flows.pipeline import pipeline\n"
        "if __name__ == '__main__':\n    pipeline(PipelineConfig.model_validate_json(open(sys.argv[1]).read()))\n"
    )
    settings.write_text(config.model_dump_json())
    environment = {**os.environ, "PREFECT_API_URL": address, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(settings)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# --- cache_keys -------------------------------------------------------------------------------------------------


def cache_keys(case: Case, tmp_path: Path) -> None:
    given = case["input"]
    if "tasks" in given:
        _keys_of_stages(given, tmp_path)
    elif "argument" in given:
        _keys_of_unknown_values(tmp_path)
    elif "pairs" in given:
        _keys_of_pairs(given, case["expect"], tmp_path)
    else:
        raise AssertionError(f"a cache_keys case of an unknown form: {sorted(given)}")


def _keys_of_stages(given: Case, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    documents = store.run(WRITE, WriteConfig(num_shards=1), ())
    calls: list[str] = []

    def body(name: str) -> Callable[..., UrlList]:
        def make(build: StageBuild, config: CountConfig, source: Artifact) -> UrlList:
            calls.append(name)
            (build.directory / "urls.txt").write_text(f"http://example.com/{name}\n")
            return build.publish(UrlList, StageReport(unit="urls", num_in=1, num_out=1), num_urls=1)

        return make

    names = [text.partition("(")[0] for text in given["tasks"]]
    shared = body("one body")
    for functions in ([body(name) for name in names], [shared for _ in names]):
        calls.clear()
        stages = [
            replace(COUNT, name=f"{name}-{id(functions)}", run=run_)
            for name, run_ in zip(names, functions, strict=True)
        ]
        made = [store.run(stage, CountConfig(), [documents]) for stage in stages]
        again = [store.produce(stage, CountConfig(), [documents]) for stage in stages]
        assert len({artifact.key for artifact in made}) == len(names)
        assert len(calls) == len(names), "each stage runs once"
        assert [artifact for artifact, _ in again] == made and all(cached for _, cached in again)


def _keys_of_unknown_values(tmp_path: Path) -> None:
    import logging
    import threading

    class AnyConfig(StageConfig):
        """Settings that may hold anything."""

        value: Any = None
        """Anything."""

    stage = Stage("any", 1, AnyConfig, (), UrlList, lambda build, config: None, "")  # type: ignore[arg-type,return-value]
    with (tmp_path / "file").open("w") as stream:
        for value in (threading.Lock(), stream, logging.getLogger("x"), object()):
            with pytest.raises(TypeError, match="cannot be part of a cache key"):
                ArtifactStore(tmp_path / "store").run(stage, AnyConfig(value=value), ())


def _keys_of_pairs(given: Case, expect: Case, tmp_path: Path) -> None:
    def key(value: Any) -> str:
        if isinstance(value, str) and value.startswith("tuple "):
            value = tuple(json.loads(value.removeprefix("tuple ").replace("(", "[").replace(")", "]")))
        if isinstance(value, str) and value.startswith("/"):
            path = tmp_path / value.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("content")
            value = Path(f"{tmp_path}{value}")
        return json.dumps(plain(value, "setting"), sort_keys=True)

    for number, (left, right) in enumerate(given["pairs"], start=1):
        same = key(left) == key(right)
        wanted = expect.get(f"pair_{number}_same_key", expect.get(f"pair_{number}_same_key_after_normalising"))
        if wanted is not None:
            assert same == wanted, f"pair {number}"
        elif not isinstance(left, list):
            # Value and type count. (A list becomes a tuple when settings are checked: there is one type of sequence.)
            assert not same, f"pair {number}: {left!r} and {right!r}"


# --- pipeline ---------------------------------------------------------------------------------------------------


def pipeline(case: Case, tmp_path: Path) -> None:
    given = case["input"]
    with prefect() as address:
        if "kill" in given:
            _kill(re.findall(r"'(\w+)'", given["kill"]), tmp_path, address)
        elif "inject" in given:
            _fail_once(given, case["expect"], tmp_path)
        else:
            _steps(given["steps"], case["expect"], tmp_path)


def _steps(steps: list[str], expect: Case, tmp_path: Path) -> None:
    log = tmp_path / "requests.log"
    log.touch()
    with serving(log) as port:
        folder = tmp_path / "run"
        config = tiny_config(folder, port, until=LAST_STAGE)
        wanted = [name for name in STAGE_NAMES if STAGE_NAMES.index(name) <= STAGE_NAMES.index(LAST_STAGE)]
        made: dict[str, Artifact] = {}
        states: dict[str, str] = {}
        damaged: set[str] = set()
        changed = False
        here = Path.cwd()
        for step in steps:
            if step.startswith("run"):
                current = config
                if "relative paths" in step:
                    os.chdir(folder)
                    current = config.model_copy(
                        update={"store": "store", "input": config.input.model_copy(update={"urls": ("urls.txt",)})}
                    )
                try:
                    made_before, made = made, {}
                    made, states = run(current)
                finally:
                    os.chdir(here)
                assert list(made) == wanted
            elif step.startswith("change one line"):
                path = folder / "urls.txt"
                status = path.stat()
                text = path.read_text()
                path.write_text(text.replace("story-1\n", "story-3\n", 1))
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
                assert path.stat().st_size == status.st_size
                changed = True
            elif step.startswith("cut a stored result file"):
                for name, size in (("clean", 40), ("extract", 0)):
                    target = next(store_of(config).path_of(made[name]).glob("documents-*"))
                    target.write_bytes(target.read_bytes()[:size])
                    damaged.add(name)
                records = sorted(path for path in (config.store_path / ".records").iterdir() if path.is_file())
                records[0].write_bytes(records[0].read_bytes()[:40])
            else:
                raise AssertionError(f"a step of an unknown form: {step}")
        if changed:
            assert states["filter"] == "Completed" and made["filter"].fingerprint != made_before["filter"].fingerprint
            assert "story-1\n" not in (store_of(config).path_of(made["filter"]) / "urls.txt").read_text()
        if damaged:
            assert {name for name, state in states.items() if state == "Completed"} == damaged
            assert fingerprints(made) == fingerprints(made_before)
        if expect.get("second_run_reruns") == []:
            assert set(states.values()) == {"Cached"}


def _kill(stages: list[str], folder: Path, address: str) -> None:
    """Kill a run in each stage in turn; what stands before the stage is found in the store, but for `fetch`."""
    log = folder / "requests.log"
    log.touch()
    with serving(log, delay_seconds=0.05) as port:
        undisturbed, _ = run(tiny_config(folder / "calm", port, until=LAST_STAGE))
        for stage in stages:
            log.write_text("")
            shutil.copytree(folder / "calm", folder / stage)
            config = tiny_config(folder / stage, port, until=LAST_STAGE)
            for name in list(undisturbed)[list(undisturbed).index(stage) :]:
                shutil.rmtree(store_of(config).path_of(undisturbed[name]))
            _kill_in(stage, config, folder / stage, log, address)
            made, _ = run(config)
            assert fingerprints(made)[LAST_STAGE] == fingerprints(undisturbed)[LAST_STAGE]
            assert not list((config.store_path / ".work").glob("*")), "nothing half-written is left"
            if stage != "fetch":
                assert not log.read_text(), "no page is fetched again"


def _kill_in(stage: str, config: PipelineConfig, folder: Path, log: Path, address: str) -> None:
    child = start(config, folder, address)
    end = time.monotonic() + 120
    while child.poll() is None and time.monotonic() < end and not list(config.store_path.glob(f".work/{stage}-*")):
        time.sleep(0.002)
    if stage == "fetch":
        while len(_stories(log)) < NUM_ARTICLES // 2 and time.monotonic() < end:
            time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL, "the run was killed before it ended"
    if stage == "fetch":
        first = _stories(log)
        run(config)
        repeated = sum(1 for path in first if _stories(log)[path] > 1)
        in_flight = config.fetch.resources.max_requests_per_host
        assert repeated <= 2 * in_flight < len(first), f"{repeated} of {len(first)} pages were fetched again"


def _stories(log: Path) -> Counter[str]:
    """How often each page was asked for."""
    return Counter(line for line in log.read_text().split() if line.startswith("/story"))


def _fail_once(given: Case, expect: Case, tmp_path: Path) -> None:
    from prefect import flow

    import tasks.orchestration as orchestration

    total = int(expect["output_lines"])
    armed = tmp_path / "armed"
    armed.touch()
    config = WriteConfig(num_shards=2, rows_per_shard=total // 2, fail_at="1", armed=str(armed))
    delays, orchestration.RETRY_DELAYS_SECONDS = orchestration.RETRY_DELAYS_SECONDS, [0.1] * given["retries"]
    calls: list[int] = []

    def counted(build: StageBuild, settings: WriteConfig) -> Any:
        calls.append(1)
        return WRITE.run(build, settings)

    try:
        stage = orchestration.stage_task(replace(WRITE, run=counted))
    finally:
        orchestration.RETRY_DELAYS_SECONDS = delays

    @flow(name="fails-once", validate_parameters=False)
    def fails_once() -> Any:
        single = config.model_copy(update={"resources": config.resources.model_copy(update={"workers": 1})})
        return stage(ArtifactStore(tmp_path / "store"), single, [])[0]

    artifact: Any = fails_once()
    from tasks.records import read_rows

    paths = sorted(ArtifactStore(tmp_path / "store").path_of(artifact).glob("*.zst"))
    identities = [row.document.id for path in paths for row in read_rows(path) if row.document]
    assert len(identities) == total and len(set(identities)) == total
    assert len(calls) == expect["attempts"]


def pipeline_concurrent(case: Case, tmp_path: Path) -> None:
    log = tmp_path / "requests.log"
    log.touch()
    with prefect() as address, serving(log) as port:
        alone, _ = run(tiny_config(tmp_path / "alone", port, until=LAST_STAGE))
        config = tiny_config(tmp_path / "both", port, until=LAST_STAGE)
        children = []
        for number in range(case["input"]["processes"]):
            (tmp_path / str(number)).mkdir()
            children.append(start(config, tmp_path / str(number), address))
        assert [child.wait(timeout=180) for child in children] == [0] * len(children)
        made, states = run(config)
    assert set(states.values()) == {"Cached"}
    assert fingerprints(made)[LAST_STAGE] == fingerprints(alone)[LAST_STAGE]
    for artifact in made.values():
        store_of(config).check(artifact, thorough=True)
        siblings = list(store_of(config).path_of(artifact).parent.glob(f"{artifact.key[:20]}-*"))
        assert len(siblings) == 1, "one key was made once"


# --- run_flow ---------------------------------------------------------------------------------------------------


def run_flow(case: Case, tmp_path: Path) -> None:
    given = case["input"]
    with prefect():
        if "concurrent_tasks" in given:
            _many_tasks(given["concurrent_tasks"], tmp_path)
        else:
            for submitted in given["submit"]:
                _time_limit(given, case["expect"], submitted, tmp_path / str(submitted))


def _many_tasks(number: int, tmp_path: Path) -> None:
    from prefect import flow, task

    store = ArtifactStore(tmp_path)

    @task
    def one(index: int) -> str:
        return store.run(WRITE, WriteConfig(num_shards=1, rows_per_shard=index + 1), ()).fingerprint

    @flow(name="many")
    def many() -> list[str]:
        futures = [one.submit(index) for index in range(number)]
        return [future.result() for future in futures]

    assert len(set(many())) == number


def _time_limit(given: Case, expect: Case, submitted: bool, folder: Path) -> None:
    from prefect import flow, task

    folder.mkdir()
    seconds, limit = (float(number) for number in re.findall(r"(\d+) s", given["stage"]))
    script = f"import os, time; open({str(folder / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep({seconds})"

    started = [0.0]

    @task
    def stage() -> None:
        started[0] = time.monotonic()
        run_child(
            [sys.executable, "-c", script],
            name="child",
            log_path=folder / "log",
            timeout_seconds=limit,
            grace_seconds=1,
        )

    @flow(name="limited")
    def limited() -> None:
        if submitted:
            stage.submit().result()
        else:
            stage()

    with pytest.raises(TimeoutError, match="longer than"):
        limited()
    assert time.monotonic() - started[0] < expect["fails_within_seconds"]
    pid = int((folder / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


ADAPTERS = {
    "cache_keys": cache_keys,
    "pipeline": pipeline,
    "pipeline_concurrent": pipeline_concurrent,
    "run_flow": run_flow,
}
