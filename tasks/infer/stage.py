"""Sampling and evaluation of an exported model; the work is done in child processes."""

from __future__ import annotations

import json
from typing import Any

from tasks.artifacts import EvalReport, HFModel, Samples, TokenizedCorpus
from tasks.errors import StageError, UserError
from tasks.infer.config import EvaluateConfig, SampleConfig
from tasks.infer.jobs import EvaluateJob, GenerateJob, run_job
from tasks.progress import StageReport
from tasks.stages import Stage
from tasks.store import StageBuild
from trainer.inference.config import SamplingConfig


def sample_model(build: StageBuild, config: SampleConfig, model: HFModel) -> Samples:
    """Let the model continue the prompts. Raises as `tasks.infer.jobs.run_job` does."""
    num_samples = len(config.prompts) * config.num_samples_per_prompt
    build.progress.start("sample", num_samples, "samples")
    job = GenerateJob(
        model_directory=build.path_of(model),
        prompts=config.prompts,
        num_samples_per_prompt=config.num_samples_per_prompt,
        output_path=build.directory / "samples.jsonl",
        resources=config.resources,
        **{name: getattr(config, name) for name in SamplingConfig.model_fields},
    )
    report = StageReport(unit="samples", num_in=num_samples)

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "sample":
            report.num_out += 1
            report.count(f"finished_by_{event['finish_reason']}")
            report.count("generated_tokens", len(event["token_ids"]))
            build.progress.advance()
        elif event["event"] == "warning":
            build.progress.note(event["message"])

    _run(build, job, hear, config.resources.timeout_seconds)
    return build.publish(Samples, report, num_samples=report.num_out)


def evaluate_model(build: StageBuild, config: EvaluateConfig, model: HFModel, corpus: TokenizedCorpus) -> EvalReport:
    """Measure the perplexity of the model on a part of the corpus.

    Raises UserError when the two do not belong together (vocabulary, tokenizer, sequence length), StageError when the
    loss is no number that a language model can have, and as `tasks.infer.jobs.run_job` does.
    """
    if model.vocab_size != corpus.vocab_size:
        rule = f"the model has {model.vocab_size} token ids"
        remedy = "Evaluate on a corpus that was tokenized with the model's own tokenizer."
        raise UserError("corpus.vocab_size", corpus.vocab_size, rule, remedy)
    known = _tokenizer_fingerprint(build, model)
    if known and corpus.tokenizer_fingerprint and known != corpus.tokenizer_fingerprint:
        rule = f"the model's tokenizer is {known[:12]}"
        remedy = "Evaluate on a corpus that was tokenized with the model's own tokenizer."
        raise UserError("corpus.tokenizer_fingerprint", corpus.tokenizer_fingerprint[:12], rule, remedy)
    job = EvaluateJob(
        model_directory=build.path_of(model),
        corpus_prefix=build.path_of(corpus) / "corpus",
        eod_token_id=corpus.eod_token_id,
        config=config,
        output_path=build.directory / "evaluation.json",
        cache_directory=build.scratch / "indices",
    )

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "start":
            build.progress.start("evaluate", event["num_samples"], "samples")
        elif event["event"] == "advance":
            build.progress.advance(event["num_samples"])
        elif event["event"] == "warning":
            build.progress.note(event["message"])
        elif event["event"] == "evaluation":
            build.progress.metric(event)

    done = _run(build, job, hear, config.resources.timeout_seconds)
    report = StageReport(unit="samples", num_in=done["num_samples"], num_out=done["num_samples"])
    result = json.loads(job.output_path.read_text(encoding="utf-8"))
    report.numbers = {name: result[name] for name in ("loss", "perplexity", "bits_per_byte")}
    report.count("predicted_tokens", result["num_tokens"])
    return build.publish(
        EvalReport,
        report,
        loss=result["loss"],
        perplexity=result["perplexity"],
        bits_per_byte=result["bits_per_byte"],
        num_tokens=result["num_tokens"],
    )


def _run(build: StageBuild, job: GenerateJob | EvaluateJob, hear: Any, timeout_seconds: float | None) -> dict[str, Any]:
    done = run_job(
        job,
        job_path=build.scratch / "job.json",
        log_path=build.directory / "logs" / f"{job.do}.log",
        on_event=hear,
        timeout_seconds=timeout_seconds,
    )
    if job.output_path is None or not job.output_path.is_file():
        raise StageError(f"{job.do} reported success without its result {job.output_path}")
    return done


def _tokenizer_fingerprint(build: StageBuild, model: HFModel) -> str:
    """The fingerprint that the conversion wrote down, or empty for a model from elsewhere."""
    path = build.path_of(model) / "parity.json"
    if not path.is_file():
        return ""
    value = json.loads(path.read_text(encoding="utf-8")).get("tokenizer_fingerprint", "")
    return value if isinstance(value, str) else ""


SAMPLE = Stage(
    name="sample",
    version=1,
    config=SampleConfig,
    inputs=(HFModel,),
    output=Samples,
    run=sample_model,
    description="Let the model write",
)
EVALUATE = Stage(
    name="evaluate",
    version=1,
    config=EvaluateConfig,
    inputs=(HFModel, TokenizedCorpus),
    output=EvalReport,
    run=evaluate_model,
    description="Perplexity on the held-out part of the corpus",
)
