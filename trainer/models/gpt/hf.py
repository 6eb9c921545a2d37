"""Our GPT <-> Hugging Face GPT2LMHeadModel: names, layouts, config.json. Pure functions, both directions.

Theirs keeps linear weights as [in, out] (Conv1D) and the fused attention rows as [3, head, size]; ours keeps [out, in]
and [head, 3, size]. Square matrices load silently when the transpose is forgotten, so the table says it for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor

from trainer.models.gpt.megatron_layouts import QkvLayout, regroup_qkv

ARCHITECTURE = "GPT2LMHeadModel"
PREFIX = "transformer."
HEAD = "lm_head.weight"
TANH_GELUS = ("gelu_new", "gelu_fast", "gelu_pytorch_tanh")
BUFFERS = (".attn.bias", ".attn.masked_bias")
"""Causal masks in old files; no parameters."""


class Change(Enum):
    """What happens to a tensor on its way."""

    NONE = auto()
    TRANSPOSE = auto()
    """[out, in] <-> [in, out]."""
    QKV_WEIGHT = auto()
    """Rows regrouped, then transposed."""
    QKV_BIAS = auto()
    """Rows regrouped."""
    VOCABULARY = auto()
    """Padding rows dropped on the way out, made of zeros on the way in."""


@dataclass(frozen=True)
class GptShape:
    """The sizes both sides agree on. `vocab_size` counts ids with a meaning, not padding."""

    num_layers: int
    hidden_size: int
    num_attention_heads: int
    ffn_hidden_size: int
    max_position_embeddings: int
    vocab_size: int
    layernorm_epsilon: float = 1e-5


@dataclass(frozen=True)
class Entry:
    """One tensor of both models."""

    ours: str
    theirs: str
    change: Change
    shape: tuple[int, ...]
    """Theirs."""


def entries(shape: GptShape) -> list[Entry]:
    """Every tensor of a model of that shape, theirs with the shape it has there. The tied head is none of its own."""
    h, f = shape.hidden_size, shape.ffn_hidden_size
    table = [
        Entry("wte.weight", "wte.weight", Change.VOCABULARY, (shape.vocab_size, h)),
        Entry("wpe.weight", "wpe.weight", Change.NONE, (shape.max_position_embeddings, h)),
        Entry("ln_f.weight", "ln_f.weight", Change.NONE, (h,)),
        Entry("ln_f.bias", "ln_f.bias", Change.NONE, (h,)),
    ]
    layer: tuple[tuple[str, str, Change, tuple[int, ...]], ...] = (
        ("ln_1.weight", "ln_1.weight", Change.NONE, (h,)),
        ("ln_1.bias", "ln_1.bias", Change.NONE, (h,)),
        ("attn.qkv.weight", "attn.c_attn.weight", Change.QKV_WEIGHT, (h, 3 * h)),
        ("attn.qkv.bias", "attn.c_attn.bias", Change.QKV_BIAS, (3 * h,)),
        ("attn.proj.weight", "attn.c_proj.weight", Change.TRANSPOSE, (h, h)),
        ("attn.proj.bias", "attn.c_proj.bias", Change.NONE, (h,)),
        ("ln_2.weight", "ln_2.weight", Change.NONE, (h,)),
        ("ln_2.bias", "ln_2.bias", Change.NONE, (h,)),
        ("mlp.up.weight", "mlp.c_fc.weight", Change.TRANSPOSE, (h, f)),
        ("mlp.up.bias", "mlp.c_fc.bias", Change.NONE, (f,)),
        ("mlp.down.weight", "mlp.c_proj.weight", Change.TRANSPOSE, (f, h)),
        ("mlp.down.bias", "mlp.c_proj.bias", Change.NONE, (h,)),
    )
    for index in range(shape.num_layers):
        table += [
            Entry(f"h.{index}.{ours}", f"h.{index}.{theirs}", change, size) for ours, theirs, change, size in layer
        ]
    return [Entry(entry.ours, PREFIX + entry.theirs, entry.change, entry.shape) for entry in table]


def to_hf(state: Mapping[str, Tensor], shape: GptShape) -> dict[str, Tensor]:
    """Our full state by global name -> their state dict, without the tied head. Values keep their type.

    Raises ValueError, with the names, when a tensor is missing, unexpected or of the wrong shape.
    """
    table = entries(shape)
    _check_names(set(state), {entry.ours for entry in table}, "the checkpoint")
    converted = {}
    for entry in table:
        tensor = state[entry.ours]
        if entry.change is Change.VOCABULARY:
            tensor = tensor[: shape.vocab_size]
        elif entry.change in (Change.QKV_WEIGHT, Change.QKV_BIAS):
            ours, theirs = QkvLayout.HEAD_THREE_SIZE, QkvLayout.THREE_HEAD_SIZE
            tensor = regroup_qkv(tensor, shape.num_attention_heads, ours, theirs)
        if entry.change in (Change.TRANSPOSE, Change.QKV_WEIGHT):
            tensor = tensor.t()
        _check_shape(entry.ours, tensor, entry.shape)
        converted[entry.theirs] = tensor.contiguous()
    return converted


def from_hf(tensors: Mapping[str, Tensor], shape: GptShape, padded_vocab_size: int | None = None) -> dict[str, Tensor]:
    """Their state dict -> our full state by global name; padding rows of the vocabulary are zeros.

    Old files without the prefix "transformer." and with causal-mask buffers are read too. Raises ValueError, with the
    names, when a tensor is missing, unexpected or of the wrong shape, and when the head is not tied to the embedding.
    """
    table = entries(shape)
    given = {name: tensor for name, tensor in tensors.items() if not name.endswith(BUFFERS)}
    if not any(name.startswith(PREFIX) for name in given):
        given = {name if name == HEAD else PREFIX + name: tensor for name, tensor in given.items()}
    head = given.pop(HEAD, None)
    _check_names(set(given), {entry.theirs for entry in table}, "the Hugging Face model")
    if head is not None and not torch.equal(head, given[f"{PREFIX}wte.weight"]):
        raise ValueError("the output head is not the token embedding; untied heads are not supported")
    converted = {}
    for entry in table:
        tensor = given[entry.theirs]
        _check_shape(entry.theirs, tensor, entry.shape)
        if entry.change in (Change.TRANSPOSE, Change.QKV_WEIGHT):
            tensor = tensor.t()
        if entry.change in (Change.QKV_WEIGHT, Change.QKV_BIAS):
            theirs, ours = QkvLayout.THREE_HEAD_SIZE, QkvLayout.HEAD_THREE_SIZE
            tensor = regroup_qkv(tensor, shape.num_attention_heads, theirs, ours)
        elif entry.change is Change.VOCABULARY and padded_vocab_size is not None:
            padding = tensor.new_zeros(padded_vocab_size - shape.vocab_size, shape.hidden_size)
            tensor = torch.cat([tensor, padding])
        converted[entry.ours] = tensor.contiguous()
    return converted


def _check_names(found: set[str], wanted: set[str], what: str) -> None:
    if found != wanted:
        missing, unexpected = sorted(wanted - found), sorted(found - wanted)
        raise ValueError(
            f"{what} has other tensors than a GPT-2 of this shape; missing {missing}, unexpected {unexpected}"
        )


def _check_shape(name: str, tensor: Tensor, wanted: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != wanted:
        raise ValueError(f"{name} becomes {tuple(tensor.shape)}, a GPT-2 of this shape has {wanted}")


def hf_config(shape: GptShape, eod_token_id: int, dtype: str) -> dict[str, Any]:
    """The content of config.json. Dropout is off: a published model is for reading, and fine-tuning sets its own."""
    return {
        "activation_function": "gelu_new",
        "add_cross_attention": False,
        "architectures": [ARCHITECTURE],
        "attn_pdrop": 0.0,
        "bos_token_id": eod_token_id,
        "dtype": dtype,
        "embd_pdrop": 0.0,
        "eos_token_id": eod_token_id,
        "initializer_range": 0.02,
        "layer_norm_epsilon": shape.layernorm_epsilon,
        "model_type": "gpt2",
        "n_embd": shape.hidden_size,
        "n_head": shape.num_attention_heads,
        "n_inner": shape.ffn_hidden_size,
        "n_layer": shape.num_layers,
        "n_positions": shape.max_position_embeddings,
        "reorder_and_upcast_attn": False,
        "resid_pdrop": 0.0,
        "scale_attn_by_inverse_layer_idx": False,
        "scale_attn_weights": True,
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": shape.vocab_size,
    }


def shape_of_config(config: Mapping[str, Any]) -> GptShape:
    """The shape a config.json describes. Raises ValueError for a model that is no plain GPT-2, saying why."""
    wanted: dict[str, tuple[object, ...]] = {
        "model_type": ("gpt2",),
        "activation_function": TANH_GELUS,
        "add_cross_attention": (False,),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "tie_word_embeddings": (True,),
    }
    defaults: dict[str, object] = {"activation_function": "gelu_new", "scale_attn_weights": True}
    defaults |= {"add_cross_attention": False, "scale_attn_by_inverse_layer_idx": False, "tie_word_embeddings": True}
    for name, allowed in wanted.items():
        value = config.get(name, defaults.get(name))
        if value not in allowed:
            raise ValueError(f"config.json: {name} is {value!r}; supported is {' or '.join(map(repr, allowed))}")
    try:
        return GptShape(
            num_layers=int(config["n_layer"]),
            hidden_size=int(config["n_embd"]),
            num_attention_heads=int(config["n_head"]),
            ffn_hidden_size=int(config.get("n_inner") or 4 * config["n_embd"]),
            max_position_embeddings=int(config.get("n_positions") or config["n_ctx"]),
            vocab_size=int(config["vocab_size"]),
            layernorm_epsilon=float(config.get("layer_norm_epsilon", 1e-5)),
        )
    except KeyError as error:
        raise ValueError(f"config.json: {error.args[0]} is missing") from None
