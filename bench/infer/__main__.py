"""Tokens a second on the CPU: our decoder and transformers on the same random GPT-2, greedy, same process.

python bench/infer [--layers 6 --hidden 384 --heads 6 --vocab 50257 --context 512 --prompt 64 --new 64 --batch 1 8]

Prints a table and, as the last line, one JSON object. Tokens of the two must agree, or nothing is printed.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers

from trainer.inference.config import SamplingConfig
from trainer.inference.engine import DEFAULT_SLOTS, DecodeEngine, Request
from trainer.inference.gpt_slots import GptSlots
from trainer.models.gpt.hf import GptShape, from_hf, hf_config


def timed(work: Callable[[], Any], repeats: int) -> tuple[Any, float]:
    """The result and the median seconds of `repeats` runs after one warm-up."""
    result = work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return result, statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 6), ("hidden", 384), ("heads", 6), ("vocab", 50257), ("context", 512)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt")
    parser.add_argument("--new", type=int, default=64, help="tokens generated")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    eod = args.vocab - 1
    shape = GptShape(args.layers, args.hidden, args.heads, 4 * args.hidden, args.context, args.vocab)
    reference: Any = transformers.GPT2LMHeadModel(
        transformers.GPT2Config.from_dict(hf_config(shape, eod, "float32"))
    ).eval()
    ours = GptSlots(from_hf(reference.state_dict(), shape), shape)
    table = [b"a"] * args.vocab
    greedy = SamplingConfig(temperature=0, max_new_tokens=args.new, stop_at_eod=False)
    rows = []
    for batch in args.batch:
        prompts = torch.randint(0, eod, (batch, args.prompt))
        # The product always runs DEFAULT_SLOTS slots, so that a text does not depend on its company; so does this.
        engine = DecodeEngine(ours, eod, table, num_slots=max(batch, DEFAULT_SLOTS))
        requests = [Request(tuple(prompt), greedy) for prompt in prompts.tolist()]
        mine, our_seconds = timed(lambda e=engine, r=requests: e.generate(r), args.repeats)
        options = {
            "attention_mask": torch.ones_like(prompts), "min_new_tokens": args.new, "max_new_tokens": args.new,
            "do_sample": False, "pad_token_id": eod,
        }  # fmt: skip
        theirs, their_seconds = timed(lambda p=prompts, o=options: reference.generate(p, **o), args.repeats)
        if [list(got.token_ids) for got in mine] != theirs[:, args.prompt :].tolist():
            raise SystemExit("the two do not generate the same tokens; nothing to compare")
        tokens = batch * args.new
        rows.append(
            {
                "batch": batch,
                "url2lm_tokens_per_second": round(tokens / our_seconds, 1),
                "transformers_tokens_per_second": round(tokens / their_seconds, 1),
                "ratio": round(their_seconds / our_seconds, 2),
            }
        )
    print(f"{sum(p.numel() for p in reference.parameters()):,} parameters, fp32, {args.threads} threads, "
          f"prompt {args.prompt}, {args.new} new tokens")  # fmt: skip
    print("batch   url2lm tok/s   transformers tok/s   ratio")
    for row in rows:
        ours_speed, their_speed = row["url2lm_tokens_per_second"], row["transformers_tokens_per_second"]
        print(f"{row['batch']:5d} {ours_speed:14.1f} {their_speed:20.1f} {row['ratio']:7.2f}")
    versions = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    print(json.dumps({"bench": "infer", "machine": platform.machine(), **versions, "rows": rows}))


if __name__ == "__main__":
    main()
