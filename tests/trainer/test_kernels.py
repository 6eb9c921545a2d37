"""Our kernels against torch's operations: on a GPU as they are, on a CPU in Triton's interpreter."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from trainer.config import ModelConfig
from trainer.kernels.choice import Kernels, choose_kernels
from trainer.models.gpt.model import GPT, Batch
from trainer.models.gpt.parallelize import initialise
from trainer.models.loss import token_losses
from trainer.parallel.tensor import TensorParallel, cross_entropy

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def loss_and_gradient(
    logits: Tensor, labels: Tensor, vocab_size: int, weights: Tensor, *, use_triton: bool
) -> tuple[Tensor, Tensor]:
    leaf = logits.clone().requires_grad_()
    copy = leaf * 1.0  # what is overwritten must not be the leaf
    loss = token_losses(copy, labels, vocab_size, TensorParallel(), use_triton=use_triton)
    (loss * weights).sum().backward()
    assert leaf.grad is not None
    return loss.detach(), leaf.grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("width", "vocab_size"), [(7, 7), (128, 101), (4096, 4096), (9000, 8191), (5000, 4097)])
def test_cross_entropy_in_place_is_cross_entropy(dtype: torch.dtype, width: int, vocab_size: int) -> None:
    generator = torch.Generator().manual_seed(width)
    logits = (torch.randn(3, 5, width, generator=generator) * 4).to(DEVICE, dtype)
    labels = torch.randint(0, vocab_size, (3, 5), generator=generator).to(DEVICE)
    labels[0, 0], labels[0, 1] = vocab_size - 1, 0
    weights = torch.rand(3, 5, generator=generator).to(DEVICE)
    weights[1, 1] = 0
    ours = loss_and_gradient(logits, labels, vocab_size, weights, use_triton=True)
    exact = logits[..., :vocab_size].double().requires_grad_()
    wanted = torch.nn.functional.cross_entropy(exact.flatten(0, 1), labels.flatten(), reduction="none").view(3, 5)
    (wanted * weights).sum().backward()
    torch.testing.assert_close(ours[0].double(), wanted.detach(), rtol=0, atol=2e-5)
    atol = 1e-6 if dtype == torch.float32 else 4e-3
    assert exact.grad is not None
    torch.testing.assert_close(ours[1][..., :vocab_size].double(), exact.grad, rtol=0, atol=atol)
    assert not ours[1][..., vocab_size:].any(), "padding has no gradient"


def test_extreme_logits_stay_finite() -> None:
    logits = torch.full((1, 4, 300), -1e30, device=DEVICE)
    logits[0, 0, 299], logits[0, 1, 0], logits[0, 2] = 1e30, 80.0, float("-inf")
    logits[0, 2, 17] = -5.0
    labels = torch.tensor([[299, 0, 17, 3]], device=DEVICE)
    weights = torch.ones(1, 4, device=DEVICE)
    ours = loss_and_gradient(logits, labels, 300, weights, use_triton=True)
    theirs = loss_and_gradient(logits, labels, 300, weights, use_triton=False)
    assert torch.isfinite(ours[0]).all()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_the_reference_is_used_on_a_cpu_and_every_way_can_be_forced() -> None:
    assert choose_kernels("auto", torch.device("cpu")) == Kernels()
    assert choose_kernels("auto", torch.device("cuda")) == Kernels(compile_blocks=True, triton_loss=True)
    assert choose_kernels("reference", torch.device("cuda")) == Kernels()
    assert choose_kernels("compile", torch.device("cuda")) == Kernels(compile_blocks=True)
    assert choose_kernels("triton", torch.device("cuda")) == Kernels(triton_loss=True)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns about torch itself
@pytest.mark.skipif(DEVICE.type != "cuda", reason="compiling needs a GPU")
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_compiled_model_has_the_reference_s_loss_and_gradients(dropout: float, dtype: torch.dtype) -> None:
    config = ModelConfig(
        num_layers=2, hidden_size=96, num_attention_heads=3, hidden_dropout=dropout, attention_dropout=dropout
    )
    found = []
    for kernels in (Kernels(), Kernels(compile_blocks=True, triton_loss=True)):
        model = GPT(config, vocab_size=301, num_positions=48, dtype=dtype)
        initialise(model, 7)
        model.to(DEVICE).use(kernels)
        names = [name for name, _ in model.named_parameters()]
        tokens = torch.randint(0, 301, (4, 49), generator=torch.Generator().manual_seed(1)).to(DEVICE)
        positions = torch.arange(48, device=DEVICE).expand(4, 48)
        mask = torch.ones(4, 48, device=DEVICE)
        batch = Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), positions, mask, None)
        losses = []
        for step in (1, 2):
            model.context.begin(step, (4, 5, 6, 7), DEVICE)
            model.zero_grad()
            loss = model.token_losses(model.hidden(batch, None), batch.labels).mean()
            loss.backward()
            losses.append(loss.item())
        grads = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
        found.append((names, losses, grads))
    (names, losses, grads), (other_names, other_losses, other_grads) = found
    assert names == other_names
    if dropout:
        assert losses[0] != losses[1], "each step drops other elements"
    relative = float((grads - other_grads).norm() / grads.norm())
    assert relative < (1e-5 if dtype == torch.float32 else 2e-2), relative
    assert losses == pytest.approx(other_losses, abs=1e-5 if dtype == torch.float32 else 5e-3)


def test_the_reference_cross_entropy_masks_padding_too() -> None:
    logits = torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, 7, (2, 3))
    wanted = torch.nn.functional.cross_entropy(logits[..., :7].flatten(0, 1), labels.flatten(), reduction="none")
    torch.testing.assert_close(cross_entropy(logits.clone(), labels, 7, TensorParallel()).flatten(), wanted)
