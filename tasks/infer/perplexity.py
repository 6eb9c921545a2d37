"""Perplexity of a Hugging Face GPT-2 directory on a part of a .bin/.idx corpus. Runs in the child process (torch)."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tasks.errors import StageError, UserError
from tasks.infer.jobs import EvaluateJob
from tasks.infer.token_bytes import load_tokenizer, token_bytes
from trainer.data.errors import CorpusError
from trainer.data.gpt_dataset import GPTDataset
from trainer.data.indexed_dataset import IndexedDataset
from trainer.inference.loading import LoadedModel, choose_device, load_gpt_directory

Emit = Callable[[dict[str, Any]], None]


@dataclass
class LossSums:
    """Sums over predicted tokens; everything that is reported follows from them."""

    nats: float = 0.0
    """Negative log-likelihood, summed in fp64."""
    num_tokens: int = 0
    """Predicted tokens; the first token of a sample only is context."""
    num_bytes: int = 0
    """UTF-8 bytes that the predicted tokens stand for; the end-of-document token stands for none."""

    @property
    def loss(self) -> float:
        """Nats per predicted token."""
        return self.nats / self.num_tokens

    @property
    def perplexity(self) -> float:
        """exp(loss), without a cap. Raises StageError for a loss that is not finite or beyond what fp64 can raise."""
        if not math.isfinite(self.loss) or self.loss > 700:
            raise StageError(f"the loss is {self.loss} nats per token; the weights are damaged")
        return math.exp(self.loss)

    @property
    def bits_per_byte(self) -> float:
        """Sum of nats / (ln 2 * bytes): comparable over tokenizers. 0 when the tokens stand for no bytes."""
        return self.nats / (math.log(2) * self.num_bytes) if self.num_bytes else 0.0


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihoods [n] in nats, fp64, from logits [n, vocab_size]; the softmax is taken in fp32."""
    return F.cross_entropy(logits.float(), targets, reduction="none").double()


def _open_part(job: EvaluateJob, corpus: IndexedDataset, seq_length: int, emit: Emit) -> tuple[str, Any]:
    """The samples of the wanted part, or of the training part when it holds none."""
    for part in dict.fromkeys((job.config.part, "train")):
        try:
            samples = GPTDataset(
                corpus,
                split=part,
                split_weights=job.config.split,
                seq_length=seq_length,
                num_samples=None,
                seed=job.config.seed,
                cache_dir=job.cache_directory,
            )
        except CorpusError as error:
            raise UserError("split", job.config.split, str(error), "Give weights such as 969,30,1.") from error
        if len(samples):
            return part, samples
        message = f"the part {part!r} of split {job.config.split} holds no whole sample of {seq_length} tokens"
        if part != "train":
            emit({"event": "warning", "message": f"{message}; the training part is measured instead"})
    remedy = "Use a shorter seq_length or a larger corpus."
    raise UserError("seq_length", seq_length, "no part of the corpus holds a whole sample", remedy)


def evaluate_corpus(job: EvaluateJob, emit: Emit) -> None:
    """Measure loss, perplexity and bits per byte and write `job.output_path`.

    Every target token of the part is predicted once, from the tokens before it in its sample, as in training. Raises
    UserError for a model that cannot be used or a seq_length beyond its context.
    """
    device = choose_device(job.config.resources.device)
    try:
        loaded = load_gpt_directory(job.model_directory, device)
    except (ValueError, OSError) as error:
        remedy = "Give a GPT-2 directory with config.json and safetensors."
        raise UserError("model", str(job.model_directory), str(error), remedy) from error
    context_size = loaded.model.context_size
    seq_length = job.config.seq_length or context_size
    if seq_length > context_size:
        raise UserError(
            "seq_length", seq_length, f"the model's context is {context_size} tokens", "Take at most that many."
        )
    if loaded.eod_token_id != job.eod_token_id:
        rule = f"the model ends documents with {loaded.eod_token_id}"
        raise UserError("corpus.eod_token_id", job.eod_token_id, rule, "Evaluate on a corpus of the model's tokenizer.")
    part, samples = _open_part(job, IndexedDataset(job.corpus_prefix), seq_length, emit)
    vocabulary = token_bytes(load_tokenizer(job.model_directory), loaded.model.vocab_size)
    lengths = np.array([len(text) for text in vocabulary], dtype=np.int64)
    lengths[loaded.eod_token_id] = 0
    num_samples = min(len(samples), job.config.max_samples or len(samples))
    emit({"event": "start", "num_samples": num_samples})
    sums = LossSums()
    for start in range(0, num_samples, job.config.batch_size):
        stop = min(start + job.config.batch_size, num_samples)
        tokens = np.stack([samples[index] for index in range(start, stop)])
        add_batch(sums, loaded, tokens, lengths)
        emit({"event": "advance", "num_samples": stop - start})
    result = {
        "part": part,
        "split": job.config.split,
        "seq_length": seq_length,
        "num_samples": num_samples,
        "num_tokens": sums.num_tokens,
        "num_bytes": sums.num_bytes,
        "loss": sums.loss,
        "perplexity": sums.perplexity,
        "bits_per_byte": sums.bits_per_byte,
    }
    emit({"event": "evaluation", **result})
    _write(job, result)
    emit({"event": "done", "num_samples": num_samples})


@torch.inference_mode()
def add_batch(sums: LossSums, loaded: LoadedModel, tokens: np.ndarray, lengths: np.ndarray) -> None:
    """Add samples [batch, seq_length + 1] to the sums. Raises UserError for a token outside the vocabulary."""
    if tokens.min() < 0 or tokens.max() >= loaded.model.vocab_size:
        rule = f"the model's vocabulary ends at {loaded.model.vocab_size - 1}"
        raise UserError("corpus", int(tokens.max()), rule, "Evaluate on a corpus of the model's tokenizer.")
    inputs = torch.from_numpy(tokens[:, :-1]).to(loaded.device)
    targets = torch.from_numpy(tokens[:, 1:]).to(loaded.device)
    # Logits of one sample at a time: those of a whole batch over 50,257 tokens would need gigabytes.
    for hidden, wanted in zip(loaded.model.hidden(inputs), targets, strict=True):
        sums.nats += float(token_losses(loaded.model.head(hidden), wanted).sum())
    sums.num_tokens += targets.numel()
    sums.num_bytes += int(lengths[tokens[:, 1:]].sum())


def _write(job: EvaluateJob, result: dict[str, Any]) -> None:
    temporary = job.output_path.with_name(job.output_path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(result, indent=1) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(job.output_path)
