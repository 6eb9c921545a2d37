"""The model alone: its loss against torch's, padding that never counts, causality, shapes of stages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from ranks import run_ranks
from tiny_gpt import VOCAB_SIZE, TinySamples, tiny_train

from trainer.config import ParallelConfig
from trainer.models.gpt.model import GPT
from trainer.models.gpt.parallelize import build_gpt, shard_dimension, stage_part
from trainer.parallel.mesh import build_mesh, single_mesh
from trainer.parallel.tensor import TensorParallel, cross_entropy, embed

CPU = torch.device("cpu")


def tiny_model(**changes: Any) -> GPT:
    return build_gpt(tiny_train(**changes), VOCAB_SIZE, single_mesh(), CPU).eval()


def rows(number: int = 3) -> torch.Tensor:
    return torch.from_numpy(np.stack([TinySamples()[index] for index in range(number)]))


def _loss_against_torch() -> tuple[float, float]:
    logits = torch.randn(4, 7, 64, generator=torch.Generator().manual_seed(1)) * 5
    logits[..., 61:] = 1e4  # padding that would take all probability
    labels = torch.randint(61, (4, 7), generator=torch.Generator().manual_seed(2))
    weights = torch.rand(4, 7, generator=torch.Generator().manual_seed(3))
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    found = cross_entropy(ours, labels, 61, TensorParallel())
    wanted = F.cross_entropy(theirs[..., :61].transpose(1, 2), labels, reduction="none")
    (found * weights).sum().backward()
    (wanted * weights).sum().backward()
    assert ours.grad is not None and theirs.grad is not None
    assert not ours.grad[..., 61:].any()
    return float((found - wanted).abs().max().detach()), float((ours.grad - theirs.grad).abs().max())


def test_loss_and_gradient_are_torchs_without_the_padding() -> None:
    loss, grad = run_ranks(1, _loss_against_torch)[0]
    assert loss < 1e-5 and grad < 1e-6


def _vocabulary_parts() -> tuple[float, float]:
    """Embedding and loss over four ranks, where the last one's rows are all padding, against one rank."""
    mesh = build_mesh(ParallelConfig(tensor_parallel_size=4))
    tp = TensorParallel.of(mesh)
    table = torch.randn(32, 5, generator=torch.Generator().manual_seed(1))
    logits = torch.randn(6, 32, generator=torch.Generator().manual_seed(2)) * 4
    tokens = torch.tensor([0, 7, 8, 15, 16, 20])
    mine = slice(tp.rank * 8, tp.rank * 8 + 8)
    embedding = embed(tokens, table[mine], tp) - table[tokens]
    loss = cross_entropy(logits[:, mine], tokens, 21, tp) - cross_entropy(logits.clone(), tokens, 21, TensorParallel())
    return float(embedding.abs().max()), float(loss.abs().max())


def test_parts_of_the_vocabulary_make_the_whole() -> None:
    for embedding, loss in run_ranks(4, _vocabulary_parts):
        assert embedding == 0.0 and loss < 1e-6


def test_an_untrained_model_knows_nothing() -> None:
    model, tokens = tiny_model(), rows()
    with torch.no_grad():
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    assert abs(float(loss) - math.log(VOCAB_SIZE)) < 0.05


def test_no_place_sees_what_comes_after_it() -> None:
    model, tokens = tiny_model(), rows()[:, :-1]
    changed = tokens.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % VOCAB_SIZE
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :7], after[:, :7]) and not torch.equal(before[:, 7:], after[:, 7:])


def test_the_padding_does_not_change_the_model() -> None:
    with torch.no_grad():
        narrow = tiny_model(model={"make_vocab_size_divisible_by": 1})(rows()[:, :-1])
        wide = tiny_model(model={"make_vocab_size_divisible_by": 100})(rows()[:, :-1])
    assert narrow.shape[-1] == wide.shape[-1] == VOCAB_SIZE
    torch.testing.assert_close(narrow, wide, rtol=0, atol=1e-6)


def test_residual_projections_start_smaller() -> None:
    model = tiny_model(model={"hidden_size": 128, "num_attention_heads": 4})
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and name != "wte.weight":
            small = name.endswith(("attn.proj.weight", "mlp.down.weight"))
            expected = 0.02 / math.sqrt(8) if small else 0.02
            assert float(parameter.detach().std()) == pytest.approx(expected, rel=0.06), name


def test_stages_hold_the_layers_in_order() -> None:
    parts = [stage_part(12, 4, stage) for stage in range(4)]
    assert [(part.first_layer, part.num_layers) for part in parts] == [(0, 3), (3, 3), (6, 3), (9, 3)]
    assert [part.is_first for part in parts] == [True, False, False, False]
    assert [part.is_last for part in parts] == [False, False, False, True]


def test_the_table_names_every_matrix() -> None:
    model = tiny_model()
    cut = {name: shard_dimension(name) for name, _ in model.named_parameters() if name.startswith(("h.0.", "w", "ln"))}
    assert cut == {
        "wte.weight": 0, "wpe.weight": None, "ln_f.weight": None, "ln_f.bias": None,
        "h.0.ln_1.weight": None, "h.0.ln_1.bias": None, "h.0.ln_2.weight": None, "h.0.ln_2.bias": None,
        "h.0.attn.qkv.weight": 0, "h.0.attn.qkv.bias": 0, "h.0.attn.proj.weight": 1, "h.0.attn.proj.bias": None,
        "h.0.mlp.up.weight": 0, "h.0.mlp.up.bias": 0, "h.0.mlp.down.weight": 1, "h.0.mlp.down.bias": None,
    }  # fmt: skip


def test_the_number_of_parameters_is_what_the_settings_say() -> None:
    train = tiny_train(model={"make_vocab_size_divisible_by": 1})
    number = sum(parameter.numel() for parameter in tiny_model(model={"make_vocab_size_divisible_by": 1}).parameters())
    assert number == train.model.num_parameters(VOCAB_SIZE, train.num_positions)
