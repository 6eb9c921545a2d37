"""The training loop: go on from the last checkpoint, step, evaluate, save, end well."""

from __future__ import annotations

import math
import os
import signal
import time
from types import FrameType

import torch

from trainer.checkpoint.changes import changed_settings
from trainer.checkpoint.folder import find_latest, keep_last, point_at, step_folder
from trainer.checkpoint.state import load, save
from trainer.config import TrainJob
from trainer.evaluate import evaluate
from trainer.job_data import open_data
from trainer.metrics import EventLog, ExitCode, TrainError, write_run_state
from trainer.parallel.mesh import Mesh, barrier, launched_world_size, start_ranks
from trainer.step import Stepper, StepResult


class StopSignal:
    """Remembers that this process was told to end (SIGTERM, SIGINT, SIGUSR1); the step in work is finished first."""

    def __init__(self) -> None:
        self.received = False

    def install(self) -> None:
        """Take over the signals of this process."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.received = True


def choose_device(name: str) -> torch.device:
    """The device of this rank. Raises TrainError when a GPU is asked for and there is none."""
    if name == "cuda" and not torch.cuda.is_available():
        raise TrainError("resources.device is cuda, but torch finds no GPU", "Set it to cpu or auto.", ExitCode.CONFIG)
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def check_world(job: TrainJob) -> None:
    """Raises TrainError when the number of processes is not what the layout needs."""
    parallel, found = job.train.parallel, launched_world_size()
    if found != parallel.world_size:
        raise TrainError(
            f"{found} process{'es' if found > 1 else ''} started, but tensor_parallel_size "
            f"{parallel.tensor_parallel_size} x pipeline_parallel_size {parallel.pipeline_parallel_size} x "
            f"data_parallel_size {parallel.data_parallel_size} is {parallel.world_size}",
            f"Start torchrun with --nproc-per-node {parallel.world_size}, or change train.parallel.",
            ExitCode.CONFIG,
        )


def train(job: TrainJob, stop: StopSignal | None = None) -> ExitCode:
    """Train to the last step, or until told to stop. Every rank calls it and returns the same code.

    Raises TrainError for a layout, data or checkpoint that cannot be used.
    """
    check_world(job)
    device = choose_device(job.train.resources.device)
    _use_threads(job)
    mesh = start_ranks(job.train.parallel, device, job.train.resources.collective_timeout_seconds)
    run = Run(job, mesh, device, stop or StopSignal())
    return run.to_the_end()


def _use_threads(job: TrainJob) -> None:
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(job.train.resources.threads_per_process or max(1, cores // ranks_here))


class Run:
    """One run of a job on this rank."""

    def __init__(self, job: TrainJob, mesh: Mesh, device: torch.device, stop: StopSignal) -> None:
        self.job, self.mesh, self.stop, self.config = job, mesh, stop, job.train
        if mesh.rank == 0:
            job.output_dir.mkdir(parents=True, exist_ok=True)
        self.training, self.validation = open_data(job, mesh)
        self.stepper = Stepper(
            job.train, vocab_size=job.vocab_size, eod_token_id=job.eod_token_id, mesh=mesh, device=device
        )
        self.log = EventLog(job.output_dir, enabled=mesh.rank == 0)
        self.num_parameters = job.train.model.num_parameters(job.vocab_size, job.train.num_positions)
        self.skipped_in_a_row = 0
        limit = job.train.resources.timeout_seconds
        self.end = math.inf if limit is None else time.monotonic() + limit

    def to_the_end(self) -> ExitCode:
        """Steps from where the last checkpoint stands to the last one."""
        done = self._resume()
        self._say_state("running", done)
        if done >= self.config.num_steps:
            self.log.say("warning", message=f"already finished: step {done} of {self.config.num_steps} is saved")
            return self._finish(done)
        if len(self.validation) == 0 and self.config.eval_steps:
            say = self.log.say if done else self.log.emit
            say("warning", message="the validation part holds no full sample; there is no validation loss")
        for step in range(done + 1, self.config.num_steps + 1):
            started = time.perf_counter()
            stop = self.stop.received or time.monotonic() >= self.end
            result = self.stepper.run(step, self.training, stop=stop)
            self._report(step, result, time.perf_counter() - started)
            if not self._accept(step, result):
                self._say_state("failed", step, ExitCode.NOT_FINITE)
                return ExitCode.NOT_FINITE
            if self._is_due(step, self.config.eval_interval):
                self._evaluate(step)
            if self._is_due(step, self.config.save_interval) or result.wants_to_stop:
                self._save(step)
            if result.wants_to_stop and step < self.config.num_steps:
                self.log.emit("preempted", step=step)
                self._say_state("preempted_saved", step, ExitCode.PREEMPTED)
                return ExitCode.PREEMPTED
        return self._finish(self.config.num_steps)

    def _is_due(self, step: int, interval: int) -> bool:
        return step == self.config.num_steps or (interval > 0 and step % interval == 0)

    def _resume(self) -> int:
        step, warning = find_latest(self.job.output_dir)
        barrier(self.mesh.world_group)  # nobody looks after somebody has saved
        if warning:
            self.log.say("warning", message=warning)
        if step is None:
            self.log.cut_after(0, saved=False)
            return 0
        manifest = load(
            step_folder(self.job.output_dir, step),
            self.stepper.parameters,
            self.stepper.optimizer,
            self.mesh,
            self.stepper.sharding,
            vocab_size=self.job.vocab_size,
        )
        self.stepper.num_updates = int(manifest["num_updates"])
        self.skipped_in_a_row = int(manifest["skipped_in_a_row"])
        if self.mesh.rank == 0:  # what a kill between renaming and tidying left undone
            point_at(self.job.output_dir, step)
            keep_last(self.job.output_dir, self.config.keep_last, self.config.save_interval)
        self.log.cut_after(step, saved=self._is_due(step, self.config.save_interval))
        changed = changed_settings(manifest["config"], self.config)
        if changed:
            self.log.say("warning", message=f"the checkpoint was made with other settings: {changed}")
        self.log.say("resume", step=step)
        return step

    def _accept(self, step: int, result: StepResult) -> bool:
        """Count steps in a row that were not finite. False: there were too many."""
        self.skipped_in_a_row = 0 if result.is_finite else self.skipped_in_a_row + 1
        if not result.is_finite:
            message = f"step {step} was skipped on all ranks: loss {result.loss}, gradient norm {result.grad_norm}"
            self.log.emit("warning", step=step, message=message)
        if self.skipped_in_a_row < self.config.max_skipped_steps:
            return True
        message = f"{self.skipped_in_a_row} steps in a row were not finite, the last one step {step}"
        remedy = "Lower optimizer.learning_rate."
        self.log.emit("error", message=message, remedy=remedy, exit_code=int(ExitCode.NOT_FINITE))
        return False

    def _report(self, step: int, result: StepResult, seconds: float) -> None:
        if step % self.config.log_interval and step != self.config.num_steps:
            return
        self.log.emit(
            "step",
            step=step,
            loss=result.loss,
            learning_rate=result.learning_rate,
            grad_norm=result.grad_norm,
            num_tokens=result.num_tokens,
            tokens_per_second=round(result.num_tokens / seconds, 1),
            step_seconds=round(seconds, 4),
        )

    def _evaluate(self, step: int) -> None:
        number = self.config.eval_steps * self.config.global_batch_size
        if number == 0 or len(self.validation) == 0:
            return
        found = evaluate(self.stepper, self.validation, number)
        self.log.emit(
            "evaluate",
            step=step,
            loss=found.loss,
            perplexity=math.exp(found.loss) if found.loss < 700 else math.inf,
            num_samples=found.num_samples,
            num_tokens=found.num_tokens,
        )

    def _save(self, step: int) -> None:
        facts = {
            "num_updates": self.stepper.num_updates,
            "skipped_in_a_row": self.skipped_in_a_row,
            "consumed_samples": step * self.config.global_batch_size,
            "num_parameters": self.num_parameters,
            "vocab_size": self.job.vocab_size,
            "eod_token_id": self.job.eod_token_id,
            "num_positions": self.config.num_positions,
            "config": self.config.model_dump(mode="json", exclude={"resources"}),
        }
        save(
            self.job.output_dir,
            step,
            self.stepper.parameters,
            self.stepper.optimizer,
            self.mesh,
            self.stepper.sharding,
            vocab_size=self.job.vocab_size,
            keep=self.config.keep_last,
            interval=self.config.save_interval,
            facts=facts,
        )
        tell = self.log.emit if self._is_due(step, self.config.save_interval) else self.log.say
        tell("checkpoint", step=step)

    def _finish(self, step: int) -> ExitCode:
        self.log.emit("done", step=step, num_parameters=self.num_parameters)
        self._say_state("done", step, ExitCode.DONE)
        return ExitCode.DONE

    def _say_state(self, status: str, step: int, code: ExitCode | None = None) -> None:
        if self.mesh.rank == 0:
            write_run_state(self.job.output_dir, status, step, code)
