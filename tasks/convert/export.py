"""The child process of the conversion: `python -m tasks.convert.export --job job.json`.

Prints one JSON event a line: warning, parity, and at the end done, or error with exit code 2 (the user asked for
something wrong) or 5 (a check failed and nothing may be published).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.convert.card import model_card
from tasks.convert.directory import copy_tokenizer, write_json, write_text, write_weights
from tasks.convert.gate import Difference, check_tokenizer, difference, load_in_transformers, probe_tokens
from tasks.convert.jobs import REFUSED_EXIT_CODE, USER_ERROR_EXIT_CODE, ExportJob
from tasks.convert.probe import large_weight_difference
from tasks.convert.trained import TrainedModel, open_checkpoint
from tasks.errors import CorruptInputError, StageError, UserError
from trainer.inference.loading import load_gpt_directory, read_weights
from trainer.models.gpt.hf import from_hf, hf_config, to_hf

Emit = Callable[[dict[str, Any]], None]

PROBE_POSITIONS = 128
LARGE_WEIGHT_TOLERANCE = 1e-9
"""In fp64, where rounding leaves about 1e-13."""


def emit(event: dict[str, Any]) -> None:
    """One event line on standard output."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def export(job: ExportJob, report: Emit) -> None:
    """Write the directory, then check it. Raises UserError, StageError, or CorruptInputError for a bad checkpoint."""
    trained = open_checkpoint(job.checkpoint_directory, job.train_path, job.vocab_size)
    dtype: torch.dtype = getattr(torch, job.dtype)
    try:
        weights = {name: tensor.to(dtype) for name, tensor in to_hf(trained.state, trained.shape).items()}
    except ValueError as error:
        raise CorruptInputError(f"{job.checkpoint_directory}: {error}") from error
    num_parameters = sum(tensor.numel() for tensor in weights.values())
    config = hf_config(trained.shape, job.eod_token_id, job.dtype)
    target = job.output_directory
    write_weights(target, weights)
    write_json(target / "config.json", config)
    ids = {"bos_token_id": job.eod_token_id, "eos_token_id": job.eod_token_id, "pad_token_id": job.eod_token_id}
    write_json(target / "generation_config.json", ids)
    copy_tokenizer(job.tokenizer_directory, target, trained.shape.max_position_embeddings, job.eod_token_id)
    write_text(target / "README.md", model_card(config, num_parameters, trained.step, job.dtype))
    check_round_trip(target, trained, dtype)
    check_tokenizer(target, job.vocab_size, job.eod_token_id)
    measured = measure_parity(target, trained, dtype)
    for what, apart, tolerance in (
        ("trained weights", measured["trainer"], job.logit_tolerance),
        ("trained weights in the decoder", measured["decoder"], job.logit_tolerance),
        ("large random weights", measured["large"], LARGE_WEIGHT_TOLERANCE),
    ):
        apart.check(tolerance, what)
    # What was measured differs in its last digits between machines, so it is kept out of what the artifact is.
    (target / "logs").mkdir(exist_ok=True)
    numbers = {name: {"largest": apart.largest, "scale": apart.scale} for name, apart in measured.items()}
    write_json(target / "logs" / "parity_measured.json", numbers)
    write_json(target / "parity.json", parity_record(job, trained))
    report({"event": "parity", **numbers})
    report(
        {
            "event": "done",
            "num_parameters": num_parameters,
            "max_logit_difference": measured["trainer"].largest,
            "step": trained.step,
        }
    )


def parity_record(job: ExportJob, trained: TrainedModel) -> dict[str, Any]:
    """What held when the directory was published."""
    return {
        "checks": {
            "names": "no weight missing or unexpected in transformers; output head and token embedding share storage",
            "round_trip": "the file, read back into the trainer's names, is bit-equal to the checkpoint in this dtype",
            "logits": f"transformers = trainer within {job.logit_tolerance:g} of the largest logit, fp32",
            "large_weights": f"transformers = trainer within {LARGE_WEIGHT_TOLERANCE:g}, fp64, random large weights",
            "tokenizer": "transformers and tokenizer.json agree on ids, vocabulary size and end-of-document id",
        },
        "dtype": job.dtype,
        "eod_token_id": job.eod_token_id,
        "logit_tolerance": job.logit_tolerance,
        "step": trained.step,
        "tokenizer_fingerprint": job.tokenizer_fingerprint,
        "vocab_size": job.vocab_size,
    }


def check_round_trip(directory: Path, trained: TrainedModel, dtype: torch.dtype) -> None:
    """The written file says what the checkpoint says, padding apart. Raises StageError otherwise."""
    back = from_hf(read_weights(directory), trained.shape)
    for name, tensor in back.items():
        wanted = trained.state[name].to(dtype)
        if not torch.equal(tensor, wanted[: tensor.shape[0]]):
            raise StageError(f"{name} read back from {directory} is not what the checkpoint holds")


@torch.inference_mode()
def measure_parity(directory: Path, trained: TrainedModel, dtype: torch.dtype) -> dict[str, Difference]:
    """Differences of logits: transformers and our decoder against the trainer's model, and on large random weights."""
    tokens = probe_tokens(trained.shape.vocab_size, min(trained.shape.max_position_embeddings, PROBE_POSITIONS))
    wanted = trained.rounded(dtype).logits(tokens)
    theirs: Tensor = load_in_transformers(directory)(tokens).logits
    return {
        "trainer": difference(wanted, theirs),
        "decoder": difference(wanted, load_gpt_directory(directory).model.logits(tokens)),
        "large": large_weight_difference(trained),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the job file and do it."""
    parser = argparse.ArgumentParser(description="One checkpoint to one Hugging Face directory.")
    parser.add_argument("--job", type=Path, required=True, help="JSON file of the job")
    job = ExportJob.model_validate_json(parser.parse_args(arguments).job.read_bytes())
    try:
        export(job, emit)
    except UserError as error:
        fields = {"field": error.field, "value": str(error.value), "rule": error.rule, "remedy": error.remedy}
        emit({"event": "error", "message": str(error), **fields})
        return USER_ERROR_EXIT_CODE
    except (StageError, CorruptInputError) as error:
        emit({"event": "error", "message": str(error)})
        return REFUSED_EXIT_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main())
