"""Training: start the trainer as a child process, follow it, publish its last checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tasks.artifacts import Checkpoint, TokenizedCorpus
from tasks.errors import ChildFailedError, StageError, UserError
from tasks.launch import python_module, run_child
from tasks.progress import StageReport
from tasks.stages import Stage
from tasks.store import StageBuild
from tasks.train.config import TrainConfig
from tasks.train.curve import draw_loss_curve
from tasks.train.watch import TrainingWatch
from trainer.config import TrainConfig as TrainerConfig
from trainer.config import TrainJob

# What a step's event holds that is the same in every run; the rest (speed, memory) is kept in logs/.
REPEATABLE_FIELDS = ("event", "step", "loss", "learning_rate", "grad_norm", "num_tokens", "perplexity", "num_samples")
SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
GRACE_SECONDS = 300.0


def train_model(build: StageBuild, config: TrainConfig, corpus: TokenizedCorpus) -> Checkpoint:
    """Train on the corpus until `config.num_steps`, going on from the last checkpoint of an earlier attempt.

    The artifact holds `checkpoint/` (the trainer's output folder), `train.json` (the job, with relative paths),
    `losses.jsonl` (what is the same in every run) and `logs/` (metrics with timings, log, loss curve).
    Raises UserError for settings the trainer refuses, StageError when training ends without finishing.
    """
    if corpus.num_tokens <= config.seq_length:
        rule = f"the corpus has {corpus.num_tokens} tokens, which is less than one sample"
        raise UserError("train.seq_length", config.seq_length, rule, "Use a shorter seq_length or more text.")
    output = build.directory / "checkpoint"
    logs = build.directory / "logs"
    logs.mkdir(exist_ok=True)
    output.mkdir(exist_ok=True)
    job = TrainJob(
        train=TrainerConfig.model_validate(config.model_dump()),
        corpus_prefix=build.path_of(corpus) / "corpus",
        vocab_size=corpus.vocab_size,
        eod_token_id=corpus.eod_token_id,
        output_dir=output,
        index_cache_dir=build.scratch / "index",
    )
    job_path = build.scratch / "job.json"
    job_path.write_text(job.model_dump_json(indent=1), encoding="utf-8")
    (output / "run_state.json").unlink(missing_ok=True)
    watch = TrainingWatch(build.progress, config.num_steps)
    try:
        run_child(
            command(config, job_path),
            name="trainer",
            log_path=logs / "train.log",
            on_event=watch.hear,
            environment={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(int(GRACE_SECONDS))},
            timeout_seconds=config.resources.timeout_seconds,
            grace_seconds=GRACE_SECONDS,
        )
    except ChildFailedError as failure:
        raise watch.explain(failure, output / "run_state.json") from failure
    return _publish(build, config, corpus, job, output, logs)


def command(config: TrainConfig, job_path: Path) -> list[str]:
    """One plain process for one rank, torchrun on this machine for more."""
    parallel = config.parallel
    num_ranks = parallel.tensor_parallel_size * parallel.pipeline_parallel_size * parallel.data_parallel_size
    if num_ranks == 1:
        return python_module("trainer", "--config", str(job_path))
    torchrun = ["--standalone", f"--nproc-per-node={num_ranks}", "--max-restarts=0", f"--signals-to-handle={SIGNALS}"]
    return python_module("torch.distributed.run", *torchrun, "-m", "trainer", "--config", str(job_path))


def _publish(
    build: StageBuild, config: TrainConfig, corpus: TokenizedCorpus, job: TrainJob, output: Path, logs: Path
) -> Checkpoint:
    events = _events(output / "metrics.jsonl")
    steps = [(int(event["step"]), float(event["loss"])) for event in events if event["event"] == "step"]
    evaluations = [(int(event["step"]), float(event["loss"])) for event in events if event["event"] == "evaluate"]
    done = next((event for event in reversed(events) if event["event"] == "done"), None)
    if not steps or done is None:
        raise StageError(f"the trainer ended without training a step; its log: {logs / 'train.log'}")
    for name in ("metrics.jsonl", "run_state.json"):
        shutil.move(output / name, logs / name)
    draw_loss_curve(steps, evaluations, logs / "loss_curve.png")
    with (build.directory / "losses.jsonl").open("w", encoding="utf-8") as stream:
        for event in events:
            if event["event"] in ("step", "evaluate"):
                kept = {name: event[name] for name in REPEATABLE_FIELDS if name in event}
                stream.write(json.dumps(kept) + "\n")
    relative = job.model_copy(
        update={"corpus_prefix": Path("corpus"), "output_dir": Path("checkpoint"), "index_cache_dir": None}
    )
    (build.directory / "train.json").write_text(relative.model_dump_json(indent=1), encoding="utf-8")
    validation_loss = evaluations[-1][1] if evaluations and evaluations[-1][0] == config.num_steps else None
    report = StageReport(unit="steps", num_in=config.num_steps, num_out=config.num_steps)
    report.numbers = {"first_loss": steps[0][1], "last_loss": steps[-1][1]}
    return build.publish(
        Checkpoint,
        report,
        num_steps=config.num_steps,
        num_parameters=int(done["num_parameters"]),
        vocab_size=corpus.vocab_size,
        eod_token_id=corpus.eod_token_id,
        tokenizer_fingerprint=corpus.tokenizer_fingerprint,
        first_loss=steps[0][1],
        last_loss=steps[-1][1],
        validation_loss=validation_loss,
    )


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    except (OSError, ValueError) as error:
        raise StageError(f"{path}: the trainer's metrics cannot be read ({error})") from error


TRAIN = Stage(
    name="train",
    version=2,
    config=TrainConfig,
    inputs=(TokenizedCorpus,),
    output=Checkpoint,
    run=train_model,
    description="Train a GPT on the token stream",
)
