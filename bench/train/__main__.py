"""Training speed on one GPU, us and each peer that is given, in one run: tokens a second, MFU, peak memory, ratio.

    python -m bench.train [--sizes 124M 1.3B] [--nanogpt FOLDER] [--kernels auto reference] [--repeats 3]

One step is forward, backward, clipping to 1.0, AdamW on fp32 weights, zeroed gradients; bf16 products, no dropout,
random tokens, vocabulary padded to 50304 for all. We run `trainer.step.Stepper`, samples and all, as training does.
nanoGPT (its model.py) runs compiled, whole and block by block, under bf16 autocast with its own fused AdamW; the better
one counts. Without its folder it is not measured. MFU = (6 N + 12 L H Q T) x tokens/s over 989 TFLOP/s, N without
position embeddings (PaLM, arXiv 2204.02311, appendix B).
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trainer.config import AdamWConfig, ModelConfig, ScheduleConfig, TrainConfig, TrainResources
from trainer.parallel.mesh import single_mesh
from trainer.step import Stepper

PEAK_FLOPS = 989e12
VOCAB_SIZE = 50304
SIZES = {
    "124M": {"layers": 12, "hidden": 768, "heads": 12, "length": 1024, "micro": 64},
    "1.3B": {"layers": 24, "hidden": 2048, "heads": 16, "length": 2048, "micro": 16},
}


class RandomSamples:
    """Samples of random tokens, drawn before."""

    def __init__(self, length: int, number: int = 512) -> None:
        self._rows = np.random.default_rng(0).integers(0, VOCAB_SIZE, (number, length + 1), dtype=np.int64)

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, position: int) -> npt.NDArray[np.int64]:
        return self._rows[position % len(self._rows)]


def flops_per_token(size: dict[str, int]) -> float:
    layers, hidden, length = size["layers"], size["hidden"], size["length"]
    parameters = layers * (12 * hidden * hidden + 13 * hidden) + VOCAB_SIZE * hidden + 2 * hidden
    return 6 * parameters + 12 * layers * hidden * length


def timed(step: Callable[[], None], tokens: int, repeats: int, seconds: float) -> dict[str, float]:
    """Tokens a second: the median of `repeats` blocks of about `seconds`, after warming up."""
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    number = max(3, round(seconds * 3 / (time.perf_counter() - started)))
    rates = []
    torch.cuda.reset_peak_memory_stats()
    for _ in range(repeats):
        started = time.perf_counter()
        for _ in range(number):
            step()
        torch.cuda.synchronize()
        rates.append(number * tokens / (time.perf_counter() - started))
    peak = torch.cuda.max_memory_allocated() / 1e9
    return {"tokens_per_second": statistics.median(rates), "lowest": min(rates), "highest": max(rates), "peak_gb": peak}


def stepper_of(size: dict[str, int], kernels: str, micro: int, dropout: float) -> tuple[Stepper, RandomSamples]:
    config = TrainConfig(
        model=ModelConfig(
            num_layers=size["layers"], hidden_size=size["hidden"], num_attention_heads=size["heads"],
            hidden_dropout=dropout, attention_dropout=0.0,
        ),
        optimizer=AdamWConfig(learning_rate=1e-4, clip_grad=1.0),
        schedule=ScheduleConfig(name="constant", warmup_fraction=0.0),
        seq_length=size["length"], micro_batch_size=micro, global_batch_size=micro, num_steps=1_000_000,
        precision="bf16", resources=TrainResources.model_validate({"kernels": kernels, "device": "cuda"}),
    )  # fmt: skip
    device = torch.device("cuda", 0)
    stepper = Stepper(config, vocab_size=VOCAB_SIZE, eod_token_id=0, mesh=single_mesh(), device=device)
    return stepper, RandomSamples(size["length"])


def ours(size: dict[str, int], kernels: str, micro: int, dropout: float) -> Callable[[], None]:
    """One of our steps, as a function."""
    stepper, samples = stepper_of(size, kernels, micro, dropout)
    count = iter(range(1, 1 << 40))

    def step() -> None:
        assert stepper.run(next(count), samples).is_finite

    return step


def nanogpt(folder: Path, size: dict[str, int], micro: int, how: str) -> Callable[[], None]:
    """One of nanoGPT's steps: its model and optimizer, compiled whole or by block."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_model"] = module
    spec.loader.exec_module(module)
    settings = module.GPTConfig(
        block_size=size["length"], vocab_size=VOCAB_SIZE, n_layer=size["layers"], n_head=size["heads"],
        n_embd=size["hidden"], dropout=0.0, bias=True,
    )  # fmt: skip
    model: Any = module.GPT(settings).cuda()
    optimizer = model.configure_optimizers(0.1, 1e-4, (0.9, 0.95), "cuda")
    if how == "block":
        for block in model.transformer.h:
            block.compile()
    compiled = torch.compile(model) if how == "whole" else model
    rows = torch.from_numpy(RandomSamples(size["length"])._rows)
    count = iter(range(1 << 40))

    def step() -> None:
        first = next(count) * micro % (len(rows) - micro + 1)
        batch = rows[first : first + micro].pin_memory().cuda(non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            _, loss = compiled(batch[:, :-1], batch[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def measure(
    make: Callable[[], Callable[[], None]], size: dict[str, int], micro: int, repeats: int, seconds: float
) -> Any:
    """The row of one contender; what it held is freed afterwards."""
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()
    step = make()
    row = timed(step, micro * size["length"], repeats, seconds)
    return row | {"mfu": row["tokens_per_second"] * flops_per_token(size) / PEAK_FLOPS, "micro_batch_size": micro}


def main() -> None:
    """Print a line for each contender and, last, one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--nanogpt", type=Path, help="a checkout of karpathy/nanoGPT")
    parser.add_argument("--nanogpt-how", nargs="*", default=["whole", "block"])
    parser.add_argument("--kernels", nargs="*", default=["auto"])
    parser.add_argument("--micro", type=int, help="samples in one step")
    parser.add_argument("--dropout", type=float, default=0.0, help="ours alone: residual dropout")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    results: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name in arguments.sizes:
        size = SIZES[name]
        micro = arguments.micro or size["micro"]
        rows: dict[str, Any] = {}
        contenders: dict[str, Callable[[], Callable[[], None]]] = {
            f"url2lm {kernels}": partial(ours, size, kernels, micro, arguments.dropout) for kernels in arguments.kernels
        }
        if arguments.nanogpt:
            contenders |= {
                f"nanoGPT {how}": partial(nanogpt, arguments.nanogpt, size, micro, how) for how in arguments.nanogpt_how
            }
        else:
            print("nanoGPT: not measured (no --nanogpt)")
        for label, make in contenders.items():
            rows[label] = row = measure(make, size, micro, arguments.repeats, arguments.seconds)
            print(
                f"{name:<6}{label:<20}{row['tokens_per_second']:>10,.0f} tokens/s ({row['lowest']:,.0f} to "
                f"{row['highest']:,.0f})  MFU {row['mfu']:.1%}  {row['peak_gb']:.1f} GB",
                flush=True,
            )
        peers = [row["tokens_per_second"] for label, row in rows.items() if label.startswith("nanoGPT")]
        if peers:
            best = max(row["tokens_per_second"] for label, row in rows.items() if label.startswith("url2lm"))
            print(f"{name:<6}ratio to nanoGPT's better one: {best / max(peers):.3f}")
        results[name] = rows
    print(json.dumps(results))


if __name__ == "__main__":
    main()
