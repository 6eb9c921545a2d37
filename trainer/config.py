"""Settings of the trainer. Free of torch: the flow's process reads them too.

`TrainConfig` is the recipe part (what is trained, and how fast); `TrainJob` adds where the data lies and where the
result goes, and is what `torchrun -m trainer --config job.json` reads.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Settings(BaseModel):
    """Frozen, no unknown keys, a sentence under each field."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )


class ModelConfig(Settings):
    """The GPT-2 family: learned positions, LayerNorm with bias before each part, GELU (tanh), tied head."""

    name: Literal["gpt"] = "gpt"
    """The architecture; "gpt" is GPT-2's."""
    num_layers: int = Field(default=12, ge=1)
    """Transformer layers."""
    hidden_size: int = Field(default=768, ge=1)
    """Width of the residual stream."""
    ffn_hidden_size: int | None = Field(default=None, ge=1)
    """Width between the two products of the feed-forward part; four times hidden_size when not given."""
    num_attention_heads: int = Field(default=12, ge=1)
    """Attention heads; hidden_size must divide by it."""
    max_position_embeddings: int | None = Field(default=None, ge=1)
    """Learned positions; seq_length when not given."""
    hidden_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of the residual contributions and embeddings set to zero in training."""
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Fraction of attention weights set to zero in training; 0 allows the fused attention kernels."""
    activation: Literal["gelu_tanh"] = "gelu_tanh"
    """Between the two products of the feed-forward part: GELU in its tanh form, GPT-2's; the erf form is another."""
    layernorm_epsilon: float = Field(default=1e-5, gt=0)
    """Added to the variance in LayerNorm."""
    init_std: float = Field(default=0.02, gt=0)
    """Standard deviation of initial weights; the two output projections of a layer get it over sqrt(2 num_layers)."""
    make_vocab_size_divisible_by: int = Field(default=128, ge=1)
    """The vocabulary is padded to a multiple of this times tensor_parallel_size; padding never enters the loss."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} does not divide by num_attention_heads {self.num_attention_heads}"
            )
        return self

    @property
    def ffn_size(self) -> int:
        """The feed-forward width with its default filled in."""
        return self.ffn_hidden_size or 4 * self.hidden_size

    def padded_vocab_size(self, vocab_size: int, tensor_parallel_size: int) -> int:
        """The smallest multiple of make_vocab_size_divisible_by x tensor_parallel_size that holds the vocabulary."""
        multiple = self.make_vocab_size_divisible_by * tensor_parallel_size
        return -(-vocab_size // multiple) * multiple

    def num_parameters(self, vocab_size: int, num_positions: int) -> int:
        """Parameters, tied head counted once, vocabulary without padding: 124,439,808 for GPT-2 small."""
        h, f = self.hidden_size, self.ffn_size
        layer = 4 * h * h + 2 * h * f + 9 * h + f
        return self.num_layers * layer + (vocab_size + num_positions) * h + 2 * h


class ParallelConfig(Settings):
    """How the ranks share the work: tensor x pipeline x data = number of processes."""

    tensor_parallel_size: int = Field(default=1, ge=1)
    """Ranks that share each layer's matrices."""
    pipeline_parallel_size: int = Field(default=1, ge=1)
    """Ranks that share the layers, one after the other."""
    data_parallel_size: int = Field(default=1, ge=1)
    """Replicas that share the global batch."""

    @property
    def world_size(self) -> int:
        """Number of processes."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size


class AdamWConfig(Settings):
    """Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101)."""

    name: Literal["adamw"] = "adamw"
    """The optimizer."""
    learning_rate: float = Field(default=6e-4, gt=0)
    """The highest learning rate, reached after warm-up."""
    min_learning_rate: float = Field(default=0.0, ge=0)
    """Where the schedule ends."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the mean of gradients."""
    adam_beta2: float = Field(default=0.95, ge=0, lt=1)
    """Decay of the mean of squared gradients."""
    adam_eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the mean of squared gradients."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Decoupled decay of matrices; vectors (biases, LayerNorm) are not decayed."""
    clip_grad: float = Field(default=1.0, ge=0)
    """Gradients are scaled down to this global L2 norm; 0 is off."""

    @model_validator(mode="after")
    def _rates_in_order(self) -> Self:
        if self.min_learning_rate > self.learning_rate:
            raise ValueError(f"min_learning_rate {self.min_learning_rate} is above learning_rate {self.learning_rate}")
        return self


OptimizerConfig = Annotated[AdamWConfig, Field()]


class ScheduleConfig(Settings):
    """The learning rate over training; counted in samples, so that it does not depend on the batch size."""

    name: Literal["cosine", "linear", "constant"] = "cosine"
    """The shape after warm-up."""
    warmup_fraction: float = Field(default=0.01, ge=0, lt=1)
    """Fraction of training in which the rate rises from 0."""


class TrainResources(Settings):
    """How fast the trainer runs, never what it makes."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where it runs; auto takes the GPU when there is one."""
    kernels: Literal["auto", "reference", "compile", "triton"] = "auto"
    """How operations run. reference: torch's own, one by one; compile: blocks through torch.compile; triton: our
    kernels; auto: the last two together on a GPU, the first elsewhere. Compiling needs a C compiler on the machine."""
    threads_per_process: int | None = Field(default=None, ge=1)
    """CPU threads of each process; the cores divided by the processes when not given."""
    collective_timeout_seconds: float = Field(default=600.0, gt=0)
    """A rank that waits longer than this for the others ends."""
    timeout_seconds: float | None = Field(default=None, gt=0)
    """Training is ended (saved first) after this time; none means no limit."""


class TrainConfig(Settings):
    """The model, its optimizer, its layout and the length of training."""

    model: ModelConfig = ModelConfig()
    """The architecture."""
    optimizer: OptimizerConfig = AdamWConfig()
    """How parameters are updated."""
    schedule: ScheduleConfig = ScheduleConfig()
    """The learning rate over time."""
    parallel: ParallelConfig = ParallelConfig()
    """The layout of ranks."""
    seq_length: int = Field(default=1024, ge=1)
    """Tokens of context in one sample."""
    micro_batch_size: int = Field(default=4, ge=1)
    """Samples in one forward pass of one replica."""
    global_batch_size: int = Field(default=32, ge=1)
    """Samples in one step over all replicas and accumulation."""
    num_steps: int = Field(default=1000, ge=1, le=10**9)
    """Optimizer steps."""
    seed: int = Field(default=1234, ge=0, lt=2**32)
    """Decides initial weights, the order of samples and dropout."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Type of activations and products; weights and optimizer state are fp32 in both."""
    split: str = "969,30,1"
    """Weights of the train, validation and test parts of the corpus, cut in this order."""
    epoch_order: Literal["separate", "mixed"] = "separate"
    """separate: each epoch has every sample once, in its own order. mixed: all epochs shuffled together, which is
    Megatron-LM's order for the same seed. A training of at most one epoch is the same in both."""
    eval_interval: int = Field(default=100, ge=0)
    """Steps between evaluations on the validation part; 0 evaluates at the end alone."""
    eval_steps: int = Field(default=10, ge=0)
    """Global batches in one evaluation at most; 0 never evaluates."""
    save_interval: int = Field(default=500, ge=0)
    """Steps between checkpoints; 0 saves at the end alone."""
    keep_last: int = Field(default=1, ge=1)
    """Complete checkpoints that are kept."""
    log_interval: int = Field(default=1, ge=1)
    """Steps between reported steps."""
    max_skipped_steps: int = Field(default=10, ge=1)
    """Steps in a row that may be skipped because loss or gradients are not finite, before training stops."""
    reset_position_ids: bool = False
    """Positions start again after each end of document."""
    reset_attention_mask: bool = False
    """Tokens do not attend to other documents of their sample."""
    eod_mask_loss: bool = False
    """What follows an end-of-document token is no part of the loss."""
    resources: TrainResources = TrainResources()
    """Device, threads and limits; they never change what is made."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        model, parallel = self.model, self.parallel
        tp, pp, dp = parallel.tensor_parallel_size, parallel.pipeline_parallel_size, parallel.data_parallel_size
        _divides("num_layers", model.num_layers, "pipeline_parallel_size", pp)
        _divides("num_attention_heads", model.num_attention_heads, "tensor_parallel_size", tp)
        _divides("ffn_hidden_size", model.ffn_size, "tensor_parallel_size", tp)
        block = self.micro_batch_size * dp
        if self.global_batch_size % block:
            raise ValueError(
                f"global_batch_size {self.global_batch_size} does not divide by micro_batch_size "
                f"{self.micro_batch_size} x data_parallel_size {dp} = {block}"
            )
        if self.num_positions < self.seq_length:
            raise ValueError(f"seq_length {self.seq_length} is above max_position_embeddings {self.num_positions}")
        weights = re.split(r"\s*[,/;]\s*|\s+", self.split.strip())
        are_numbers = all(re.fullmatch(r"\d+\.?\d*|\.\d+", weight) for weight in weights)
        if not are_numbers or len(weights) > 3 or not any(float(weight) for weight in weights):
            raise ValueError(f"split {self.split!r} is not one to three weights, not all 0, such as 969,30,1")
        return self

    @property
    def num_positions(self) -> int:
        """Learned positions with the default filled in."""
        return self.model.max_position_embeddings or self.seq_length

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of one replica in one step."""
        return self.global_batch_size // (self.micro_batch_size * self.parallel.data_parallel_size)

    @property
    def num_samples(self) -> int:
        """Samples of the whole training."""
        return self.num_steps * self.global_batch_size


def _divides(name: str, value: int, by_name: str, by: int) -> None:
    if value % by:
        raise ValueError(f"{name} {value} does not divide by {by_name} {by}")


class TrainJob(Settings):
    """One training run."""

    train: TrainConfig
    """What is trained."""
    corpus_prefix: Path
    """The corpus: PREFIX.bin and PREFIX.idx."""
    vocab_size: int = Field(gt=0)
    """Token ids of the tokenizer that made the corpus, without padding."""
    eod_token_id: int = Field(ge=0)
    """The id that ends a document."""
    output_dir: Path
    """Where checkpoints, metrics and the run state go."""
    index_cache_dir: Path | None = None
    """Where sample indices are kept for the next time; none builds them each time."""

    @model_validator(mode="after")
    def _eod_is_a_token(self) -> Self:
        if self.eod_token_id >= self.vocab_size:
            raise ValueError(f"eod_token_id {self.eod_token_id} is not below vocab_size {self.vocab_size}")
        return self
