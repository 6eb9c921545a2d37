"""Cases of the area convert_infer that need no model: row orders, parts, draws, decoding, imports."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from tasks.gpt2_vocabulary import GPT2_EOD_TOKEN_ID, GPT2_VOCAB_SIZE, gpt2_tokenizer
from tasks.infer.token_bytes import token_bytes
from trainer.inference.config import SamplingConfig
from trainer.inference.randomness import uniform
from trainer.inference.sampling import adjust_logits, next_tokens
from trainer.inference.streaming import StreamDecoder
from trainer.models.gpt.megatron_layouts import PartKind, QkvLayout, merge_parts, merge_qkv_parts, regroup_qkv

Case = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("flows", "tasks", "trainer")


def _labels(ids: np.ndarray, names: list[str]) -> list[str]:
    return [names[int(index)] for index in ids]


def _axes(layout: str) -> list[str]:
    return [part.strip() for part in layout.strip("[]").split(",")]


def adapter_convert_qkv(case: Case) -> None:
    """The rows in every layout and cut over every tensor-parallel size give the same columns."""
    given, expect = case["input"], case["expect"]
    heads, size, names = given["heads"], given["head_size"], given["rows"]
    sizes = {"head": heads, "3": 3, "head_size": size}
    axes = _axes(given["layout"])
    # The rows as a cube [3, head, head_size] of row numbers, from which any layout is written out.
    cube = np.arange(len(names)).reshape([sizes[axis] for axis in axes])
    cube = cube.transpose([axes.index(axis) for axis in ("3", "head", "head_size")])
    also = given.get("also") or []
    for other in [{"layout": given["layout"]}, *(also if isinstance(also, list) else [also])]:
        layout = QkvLayout(f"[{', '.join(_axes(other['layout']))}]")
        order = [("3", "head", "head_size").index(axis) for axis in _axes(other["layout"])]
        for num_parts in given.get("tp", [1]):
            step = heads // num_parts
            parts = [
                torch.from_numpy(cube[:, start : start + step].transpose(order).reshape(-1).copy())
                for start in range(0, heads, step)
            ]
            bias = merge_qkv_parts(parts, heads, layout, QkvLayout.THREE_HEAD_SIZE)
            assert _labels(bias.numpy(), names) == expect["columns"]
            weights = [part[:, None].repeat(1, 3) for part in parts]
            merged = merge_qkv_parts(weights, heads, layout, QkvLayout.THREE_HEAD_SIZE)
            assert torch.equal(merged, bias[:, None].repeat(1, 3)), "weight and bias are permuted alike"
            if num_parts == 1:
                back = regroup_qkv(bias, heads, QkvLayout.THREE_HEAD_SIZE, layout)
                assert torch.equal(back, parts[0]), "the way back"


def _part_kind(name: str) -> PartKind:
    if "norm" in name or "position" in name:
        return PartKind.REPLICATED
    if "row" in name:
        return PartKind.REPLICATED if "bias" in name else PartKind.ROW
    if "column" in name or "embedding" in name or "head" in name:
        return PartKind.COLUMN
    raise AssertionError(f"no rule for a tensor called {name!r}")


def adapter_merge_tp(case: Case) -> None:
    """Every kind of tensor from its parts in rank order."""
    for name, parts in case["input"]["parts"].items():
        assert len(parts) == case["input"]["tp"]
        merged = merge_parts([torch.tensor(part) for part in parts], _part_kind(name))
        assert merged.tolist() == case["expect"][name], name


def adapter_sample(case: Case) -> None:
    """Draw many times from given logits; every value of a list is tried."""
    given, expect = case["input"], case["expect"]
    names = [name for name in SamplingConfig.model_fields if name in given]
    logits = torch.tensor(given["logits"], dtype=torch.float32)
    lists = {name: given[name] if isinstance(given[name], list) else [given[name]] for name in names}
    settings = [{}]  # type: list[dict[str, Any]]
    for name, values in lists.items():
        settings = [chosen | {name: value} for chosen in settings for value in values]
    allowed = {expect["always"]} if "always" in expect else set(expect.get("one_of", range(len(logits))))
    forbidden = {token for token in expect.get("never", []) if isinstance(token, int)}
    drawn: set[int] = set()
    for fields in settings:
        config = SamplingConfig(**fields)
        for run in range(given.get("runs", 20)):
            adjusted = adjust_logits(logits, config, [], [])
            token = next_tokens(adjusted[None], [config], [uniform(config.seed, run)]).item()
            assert not math.isnan(token)
            drawn.add(int(token))
    assert drawn <= allowed - forbidden, f"drawn {drawn}"
    for name, outcome in expect.items():
        if outcome == "rejected" and name.endswith("_below_zero"):
            field = name.removesuffix("_below_zero")
            try:
                SamplingConfig(**{field: -1})
            except ValidationError as error:
                assert field in str(error)
            else:
                raise AssertionError(f"{field} = -1 was accepted")


def gpt2_bytes() -> list[bytes]:
    table = token_bytes(gpt2_tokenizer(), GPT2_VOCAB_SIZE)
    table[GPT2_EOD_TOKEN_ID] = b""
    return table


def adapter_stream_decode(case: Case) -> None:
    """Pieces as they come: whole characters only, broken ones replaced at the very end at the earliest."""
    given, expect = case["input"], case["expect"]
    decoder = StreamDecoder(gpt2_bytes(), tuple(given.get("stop", ())))
    pieces = [decoder.push(token) for token in given["tokens"]]
    last = decoder.finish()
    if never := expect.get("never_emits"):
        assert not any(never in piece for piece in pieces)
    if "joined_text" in expect:
        joined = "".join(pieces)
        assert expect["joined_text"] in (joined, joined + last)
        assert joined + last == gpt2_tokenizer().decode(given["tokens"], skip_special_tokens=True)


def adapter_import_check(case: Case) -> None:
    """No module of the product imports the module, or anything in it."""
    module = case["input"]["module"]
    found = []
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.module:
                    names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                if any(name == module or name.startswith(f"{module}.") for name in names):
                    found.append(str(path))
    assert case["expect"]["product_does_not_import_it"] == (not found), found


ADAPTERS = {
    "convert_qkv": adapter_convert_qkv,
    "merge_tp": adapter_merge_tp,
    "sample": adapter_sample,
    "stream_decode": adapter_stream_decode,
    "import_check": adapter_import_check,
}
