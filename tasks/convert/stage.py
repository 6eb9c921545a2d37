"""Conversion: a checkpoint and its tokenizer become a Hugging Face directory, published after its gate."""

from __future__ import annotations

from typing import Any

from tasks.artifacts import Checkpoint, HFModel, Tokenizer
from tasks.convert.config import ConvertConfig
from tasks.convert.jobs import ExportJob, run_export
from tasks.errors import StageError, UserError
from tasks.progress import StageReport
from tasks.stages import Stage
from tasks.store import StageBuild


def check_belong_together(checkpoint: Checkpoint, tokenizer: Tokenizer) -> None:
    """Raises UserError unless the checkpoint was trained on tokens of this tokenizer."""
    remedy = "Give the tokenizer that made the training corpus."
    pairs = (
        ("tokenizer.vocab_size", tokenizer.vocab_size, checkpoint.vocab_size, "token ids"),
        ("tokenizer.eod_token_id", tokenizer.eod_token_id, checkpoint.eod_token_id, "as its end-of-document token"),
    )
    for field, given, trained, what in pairs:
        if given != trained:
            raise UserError(field, given, f"the checkpoint was trained with {trained} {what}", remedy)
    if checkpoint.tokenizer_fingerprint and checkpoint.tokenizer_fingerprint != tokenizer.fingerprint:
        rule = f"the checkpoint was trained with the tokenizer {checkpoint.tokenizer_fingerprint[:12]}"
        raise UserError("tokenizer", tokenizer.fingerprint[:12], rule, remedy)


def convert_checkpoint(
    build: StageBuild, config: ConvertConfig, checkpoint: Checkpoint, tokenizer: Tokenizer
) -> HFModel:
    """Export the last checkpoint. Raises UserError when the two do not belong together, StageError when a check fails.

    Nothing is published before transformers has loaded the directory without a missing or unexpected weight and has
    given the logits that the trainer's own model gives.
    """
    check_belong_together(checkpoint, tokenizer)
    if not checkpoint.tokenizer_fingerprint:
        build.progress.note(
            "the checkpoint does not say which tokenizer it was trained with; sizes alone were compared"
        )
    build.progress.start("convert", 1, "models")
    job = ExportJob(
        checkpoint_directory=build.path_of(checkpoint) / "checkpoint",
        train_path=build.path_of(checkpoint) / "train.json",
        tokenizer_directory=build.path_of(tokenizer),
        output_directory=build.directory,
        vocab_size=checkpoint.vocab_size,
        eod_token_id=checkpoint.eod_token_id,
        tokenizer_fingerprint=tokenizer.fingerprint,
        dtype=config.dtype,
        logit_tolerance=config.logit_tolerance,
    )

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "warning":
            build.progress.note(event["message"])
        elif event["event"] == "parity":
            build.progress.metric(event)

    done = run_export(
        job,
        job_path=build.scratch / "job.json",
        log_path=build.directory / "logs" / "convert.log",
        on_event=hear,
        timeout_seconds=config.resources.timeout_seconds,
    )
    if done["num_parameters"] != checkpoint.num_parameters:
        raise StageError(
            f"{done['num_parameters']} parameters were exported, the checkpoint has {checkpoint.num_parameters}"
        )
    build.progress.advance()
    report = StageReport(unit="models", num_in=1, num_out=1)
    report.numbers["max_logit_difference"] = done["max_logit_difference"]
    return build.publish(
        HFModel,
        report,
        num_parameters=done["num_parameters"],
        vocab_size=checkpoint.vocab_size,
        max_logit_difference=done["max_logit_difference"],
    )


CONVERT = Stage(
    name="convert",
    version=1,
    config=ConvertConfig,
    inputs=(Checkpoint, Tokenizer),
    output=HFModel,
    run=convert_checkpoint,
    description="Write a Hugging Face directory and check it against the trainer's model",
)
