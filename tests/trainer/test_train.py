"""Training runs: exact resume in any layout, crashes, signals, numbers that are not finite, golden losses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import forked, run_ranks
from tiny_gpt import tiny_job, tiny_train

from trainer.config import TrainJob
from trainer.metrics import ExitCode

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parents[1] / "golden" / "losses.json"


def train_job(job: TrainJob) -> int:
    from trainer.train import train

    return int(train(job))


def run(job: TrainJob) -> int:
    """Train in forked ranks; the exit code, which all ranks agree on."""
    codes = set(run_ranks(job.train.parallel.world_size, train_job, job))
    assert len(codes) == 1
    return codes.pop()


def events(job: TrainJob, kind: str = "step") -> list[dict[str, Any]]:
    lines = (job.output_dir / "metrics.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def losses(job: TrainJob) -> list[float]:
    return [event["loss"] for event in events(job)]


def repeatable(job: TrainJob) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """All that must not depend on whether a run was stopped: its events but for timings, its files but for those."""
    lines = (job.output_dir / "metrics.jsonl").read_text().splitlines()
    timings = ("tokens_per_second", "step_seconds")
    kept = [{name: value for name, value in json.loads(line).items() if name not in timings} for line in lines]
    files = {str(path.relative_to(job.output_dir)): path.read_bytes() for path in job.output_dir.rglob("*.*")}
    del files["metrics.jsonl"]
    return kept, files


def layout(tp: int, pp: int, dp: int) -> dict[str, int]:
    return {"tensor_parallel_size": tp, "pipeline_parallel_size": pp, "data_parallel_size": dp}


def with_train(job: TrainJob, **changes: Any) -> TrainJob:
    return job.model_copy(update={"train": tiny_train(**changes)})


def tensors(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    from trainer.checkpoint.shards import ShardReader

    reader = ShardReader(folder)
    return {name: reader.full(name).numpy() for name in reader.names()}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> TrainJob:
    job = tiny_job(tmp_path_factory.mktemp("whole"), tiny_train(save_interval=3))
    assert run(job) == 0
    return job


def test_ten_losses_are_golden_and_fall(tmp_path: Path) -> None:
    """Pinned on a CPU in fp32; a change of meaning anywhere below moves them."""
    job = tiny_job(tmp_path, tiny_train(num_steps=10))
    assert run(job) == 0
    golden = json.loads(GOLDEN.read_text())
    np.testing.assert_allclose(losses(job), golden["ten_losses"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(events(job, "evaluate")[-1]["loss"], golden["validation_loss"], rtol=0, atol=1e-5)
    assert losses(job)[-1] < losses(job)[0] - 0.1


def test_the_run_says_how_it_ended(uninterrupted: TrainJob) -> None:
    state = json.loads((uninterrupted.output_dir / "run_state.json").read_text())
    assert state == {"status": "done", "step": 6, "exit_code": 0}
    assert events(uninterrupted, "done")[0]["num_parameters"] == 14_320
    assert [event["step"] for event in events(uninterrupted)] == [1, 2, 3, 4, 5, 6]


def test_resume_in_the_same_layout_is_bit_identical(uninterrupted: TrainJob, tmp_path: Path) -> None:
    job = uninterrupted.model_copy(update={"output_dir": tmp_path / "out"})
    job.output_dir.mkdir()
    shutil.copytree(uninterrupted.output_dir / "step_00000003", job.output_dir / "step_00000003")
    (job.output_dir / "latest.json").write_text('{"step": 3}')
    assert run(job) == 0
    assert [loss.hex() for loss in losses(job)] == [loss.hex() for loss in losses(uninterrupted)[3:]]
    ours, theirs = tensors(job.output_dir / "step_00000006"), tensors(uninterrupted.output_dir / "step_00000006")
    assert ours.keys() == theirs.keys() and any(name.startswith("exp_avg_sq/") for name in ours)
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)
    files = [
        sorted(path.read_bytes() for path in (place.output_dir / "step_00000006").glob("*.safetensors"))
        for place in (job, uninterrupted)
    ]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((1, 1, 1), (2, 1, 1)),
        ((2, 1, 1), (1, 2, 1)),
        ((1, 2, 1), (1, 1, 2)),
        ((2, 2, 1), (1, 1, 1)),
        ((1, 1, 2), (2, 2, 1)),
    ],
    ids=str,
)
def test_a_checkpoint_of_one_layout_goes_on_in_another(
    uninterrupted: TrainJob, tmp_path: Path, source: tuple[int, int, int], target: tuple[int, int, int]
) -> None:
    first = with_train(tiny_job(tmp_path), parallel=layout(*source), num_steps=6, save_interval=3)
    assert run(first) == 0
    shutil.rmtree(first.output_dir / "step_00000006")
    (first.output_dir / "latest.json").write_text('{"step": 3}')
    assert run(with_train(first, parallel=layout(*target), num_steps=6, save_interval=3)) == 0
    np.testing.assert_allclose(losses(first), losses(uninterrupted), rtol=0, atol=1e-6)
    ours, theirs = tensors(first.output_dir / "step_00000006"), tensors(uninterrupted.output_dir / "step_00000006")
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], rtol=0, atol=5e-6, err_msg=name)


def test_a_finished_run_trains_no_step_and_changes_nothing(
    uninterrupted: TrainJob, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = uninterrupted.model_copy(update={"output_dir": tmp_path / "out"})
    shutil.copytree(uninterrupted.output_dir, job.output_dir)
    before = {path: path.read_bytes() for path in job.output_dir.rglob("*") if path.is_file()}
    assert run(job) == 0
    assert {path: path.read_bytes() for path in job.output_dir.rglob("*") if path.is_file()} == before
    said = capfd.readouterr().out
    assert "already finished: step 6 of 6" in said and '"event": "step"' not in said


@pytest.mark.parametrize("damage", ["flip", "cut", "missing"])
def test_a_damaged_checkpoint_is_refused_by_name(uninterrupted: TrainJob, tmp_path: Path, damage: str) -> None:
    job = uninterrupted.model_copy(update={"output_dir": tmp_path / "out"})
    shutil.copytree(uninterrupted.output_dir, job.output_dir)
    path = job.output_dir / "step_00000006" / "rank_00000.safetensors"
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-5] ^= 64
        path.write_bytes(content)
    elif damage == "cut":
        path.write_bytes(content[:-5])
    else:
        path.unlink()
    with pytest.raises(AssertionError, match=r"TrainError: .*rank_00000.safetensors"):
        run(job)


def test_a_pointer_to_nothing_goes_on_from_the_newest_and_never_from_zero(
    uninterrupted: TrainJob, tmp_path: Path
) -> None:
    from trainer.checkpoint.folder import find_latest
    from trainer.metrics import TrainError

    out = tmp_path / "out"
    shutil.copytree(uninterrupted.output_dir, out)
    for content in ('{"step": 30}', "", "{"):
        (out / "latest.json").write_text(content)
        step, warning = find_latest(out)
        assert step == 6 and "going on from step 6" in warning
    (out / "step_00000006" / "manifest.json").unlink()
    assert find_latest(out)[0] == 3
    shutil.rmtree(out / "step_00000003")
    with pytest.raises(TrainError, match="no complete checkpoint"):
        find_latest(out)


@pytest.mark.parametrize("point", ["write", "manifest", "rename", "pointer"])
def test_a_kill_in_the_middle_of_a_save_leaves_the_last_whole_one(tmp_path: Path, point: str) -> None:
    job = tiny_job(tmp_path, tiny_train(save_interval=2, num_steps=4, keep_last=1))

    def dies() -> None:
        import trainer.checkpoint.state as state

        def die(*arguments: object, **named: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        calls = {"number": 0}

        def second(function: Any) -> Any:
            def wrapper(*arguments: Any, **named: Any) -> Any:
                calls["number"] += 1
                return die() if calls["number"] == 2 else function(*arguments, **named)

            return wrapper

        if point == "write":
            state.write_shard = second(state.write_shard)
        elif point == "manifest":
            state.publish = second(state.publish)
        elif point == "rename":
            state.point_at = second(state.point_at)
        else:
            state.keep_last = second(state.keep_last)
        train_job(job)

    child = forked(dies)
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert run(job) == 0
    fresh = tiny_job(tmp_path / "fresh", job.train)
    assert run(fresh) == 0
    assert repeatable(job) == repeatable(fresh)
    assert sorted(path.name for path in job.output_dir.iterdir()) == [
        "latest.json",
        "metrics.jsonl",
        "run_state.json",
        "step_00000004",
    ]


def test_steps_that_are_not_finite_are_skipped_and_then_stop(tmp_path: Path) -> None:
    job = tiny_job(tmp_path, tiny_train(max_skipped_steps=2, num_steps=6, parallel=layout(2, 1, 1)))
    assert run_ranks(2, _poisoned, job) == [int(ExitCode.NOT_FINITE)] * 2
    assert [event["step"] for event in events(job)] == [1, 2, 3, 4]
    assert "2 steps in a row" in events(job, "error")[0]["message"]
    state = json.loads((job.output_dir / "run_state.json").read_text())
    assert state["status"] == "failed" and state["exit_code"] == 4


def _poisoned(job: TrainJob) -> int:
    """From step 3 on one rank's gradient holds a NaN."""
    import torch

    import trainer.step as step_module
    from trainer.train import train

    reduce = step_module.reduce_gradients
    calls = {"number": 0}

    def poison(parameters: Any, mesh: Any, scale: Any) -> None:
        reduce(parameters, mesh, scale)
        calls["number"] += 1
        if calls["number"] >= 3 and mesh.rank == 1:
            next(iter(parameters.values())).grad[0, 0] = float("nan")

    step_module.reduce_gradients = poison
    before: list[Any] = []
    run_step = step_module.Stepper.run

    def watched(self: Any, step: int, dataset: Any, *, stop: bool = False) -> Any:
        copy = [parameter.detach().clone() for parameter in self.parameters.values()]
        result = run_step(self, step, dataset, stop=stop)
        if step >= 3:
            assert not result.is_finite
            assert all(torch.equal(old, new) for old, new in zip(copy, self.parameters.values(), strict=True))
            before.append(step)
        return result

    step_module.Stepper.run = watched
    code = int(train(job))
    assert before == [3, 4]
    return code


def test_how_often_one_evaluates_does_not_change_training(uninterrupted: TrainJob, tmp_path: Path) -> None:
    job = with_train(tiny_job(tmp_path), eval_interval=2)
    assert run(job) == 0
    assert [loss.hex() for loss in losses(job)] == [loss.hex() for loss in losses(uninterrupted)]
    assert [event["step"] for event in events(job, "evaluate")] == [2, 4, 6]


def launch(job: TrainJob, folder: Path, ranks: int) -> subprocess.Popen[str]:
    (folder / "job.json").write_text(job.model_dump_json())
    command = [sys.executable, "-m"]
    if ranks > 1:
        command += ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "--max-restarts=0"]
        command += ["--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1", "-m"]
    command += ["trainer", "--config", str(folder / "job.json")]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_step(job: TrainJob, step: int) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        if (job.output_dir / "metrics.jsonl").exists() and len(losses(job)) >= step:
            return
        time.sleep(0.05)
    raise AssertionError("the run did not get there")


def _told_to_stop_at(job: TrainJob, last_step: int) -> int:
    from trainer.train import StopSignal, train

    class StopAt(StopSignal):
        """Received as soon as step `last_step` begins on rank 1."""

        def __init__(self) -> None:
            self.asked = 0

        @property
        def received(self) -> bool:  # type: ignore[override]
            self.asked += 1
            return self.asked >= last_step and os.environ["RANK"] == "1"

    return int(train(job, StopAt()))


def test_a_run_that_is_told_to_stop_saves_and_goes_on_exactly(tmp_path: Path) -> None:
    train = tiny_train(parallel=layout(2, 1, 1))
    job, fresh = tiny_job(tmp_path, train), tiny_job(tmp_path / "fresh", train)
    assert run_ranks(2, _told_to_stop_at, job, 4) == [int(ExitCode.PREEMPTED)] * 2
    state = json.loads((job.output_dir / "run_state.json").read_text())
    assert state == {"status": "preempted_saved", "step": 4, "exit_code": 3}
    assert run(job) == 0 and run(fresh) == 0
    assert repeatable(job) == repeatable(fresh)


def test_sigterm_to_torchrun_saves_and_leaves_no_rank_behind(tmp_path: Path) -> None:
    job = tiny_job(tmp_path, tiny_train(num_steps=100_000, parallel=layout(2, 1, 1)))
    child = launch(job, tmp_path, 2)
    wait_for_step(job, 2)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    state = json.loads((job.output_dir / "run_state.json").read_text())
    assert state["status"] == "preempted_saved" and state["exit_code"] == 3
    assert (job.output_dir / f"step_{state['step']:08d}" / "manifest.json").is_file()
    assert not processes_with(str(tmp_path / "job.json"))


def processes_with(text: str) -> list[str]:
    """Command lines of running processes that contain `text`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended while we looked
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if text in line]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parallel": layout(2, 1, 1)}, "1 process started, but tensor_parallel_size 2"),
        ({"seq_length": 5000}, "holds no full sample"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_exit_code_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    job = tiny_job(tmp_path, tiny_train(**change))
    assert run_main(job, tmp_path) == 2
    said = json.loads(capfd.readouterr().out)
    assert said["event"] == "error" and message in said["message"] and said["remedy"]
    state = json.loads((job.output_dir / "run_state.json").read_text())
    assert state == {"status": "failed", "step": 0, "exit_code": 2}


def run_main(job: TrainJob, folder: Path) -> int:
    """The program's own entry, in a forked process."""
    from trainer.__main__ import main

    (folder / "job.json").write_text(job.model_dump_json())
    code: int = run_ranks(1, main, ["--config", str(folder / "job.json")])[0]
    return code


def test_a_token_id_beyond_the_vocabulary_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It would train a row that is padding, or read beyond the table."""
    job = tiny_job(tmp_path).model_copy(update={"vocab_size": 50, "eod_token_id": 49})
    assert run_main(job, tmp_path) == 2
    assert re.search(r"hold token id \d\d, vocab_size is 50", capfd.readouterr().out)


def test_what_nobody_foresaw_leaves_no_run_that_seems_to_go_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import trainer.train

    def breaks(self: Any, step: int) -> None:
        raise RuntimeError(f"step {step} cannot be evaluated")

    monkeypatch.setattr(trainer.train.Run, "_evaluate", breaks)
    job = tiny_job(tmp_path, tiny_train(eval_interval=2))
    with pytest.raises(AssertionError, match="step 2 cannot be evaluated"):
        run_main(job, tmp_path)
    assert json.loads((job.output_dir / "run_state.json").read_text())["status"] == "failed"
    assert "RuntimeError: step 2 cannot be evaluated" in capfd.readouterr().out


def test_a_time_limit_saves_and_stops(tmp_path: Path) -> None:
    resources = {"device": "cpu", "threads_per_process": 1, "timeout_seconds": 0.05}
    job = tiny_job(tmp_path, tiny_train(num_steps=1000, resources=resources))
    assert run(job) == ExitCode.PREEMPTED
    state = json.loads((job.output_dir / "run_state.json").read_text())
    assert state["status"] == "preempted_saved" and 0 < state["step"] < 1000
    assert (job.output_dir / f"step_{state['step']:08d}" / "manifest.json").is_file()


def test_other_settings_at_a_resume_are_said(
    uninterrupted: TrainJob, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = with_train(uninterrupted, num_steps=8, optimizer={"learning_rate": 5e-3}, eval_interval=1)
    job = job.model_copy(update={"output_dir": tmp_path / "out"})
    shutil.copytree(uninterrupted.output_dir, job.output_dir)
    assert run(job) == 0
    said = capfd.readouterr().out
    assert "other settings: num_steps 6 is now 8, optimizer.learning_rate 0.01 is now 0.005" in said


def test_a_wrong_job_file_names_the_field(tmp_path: Path) -> None:
    job = json.loads(tiny_job(tmp_path).model_dump_json())
    job["train"]["global_batch_size"] = 9
    (tmp_path / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-m", "trainer", "--config", str(tmp_path / "job.json")]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert child.returncode == 2
    assert "global_batch_size 9 does not divide by micro_batch_size 2 x data_parallel_size 1 = 2" in child.stdout
    job["train"]["global_batch_size"] = 8
    job["train"]["optimizer"]["learning_rte"] = 1
    (tmp_path / "job.json").write_text(json.dumps(job))
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = json.loads(child.stdout)
    assert said["message"] == "train.optimizer.learning_rte: there is no such setting"
    assert said["remedy"].startswith("Did you mean 'learning_rate'? Known: adam_beta1")
