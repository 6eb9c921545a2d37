"""Cases of the area convert_infer that need a model: conversion, loading, generation."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

from tasks.convert.directory import write_json, write_weights
from tasks.convert.export import export
from tasks.convert.gate import load_in_transformers
from tasks.convert.jobs import ExportJob
from tasks.errors import CorruptInputError, StageError
from tasks.gpt2_vocabulary import EOD_TOKEN, GPT2_EOD_TOKEN_ID, GPT2_VOCAB_SIZE, gpt2_tokenizer
from tasks.infer.generation import generate_texts
from tasks.infer.jobs import GenerateJob
from trainer.checkpoint.folder import publish
from trainer.checkpoint.state import save
from trainer.config import ModelConfig, TrainConfig, TrainJob
from trainer.inference.loading import load_gpt_directory
from trainer.models.gpt.hf import GptShape, entries, from_hf, hf_config, to_hf
from trainer.models.gpt.model import GPT
from trainer.models.gpt.parallelize import shard_dimension
from trainer.parallel.mesh import single_mesh

Case = dict[str, Any]
NUM_POSITIONS = 64


def write_tokenizer(directory: Path, vocab_size: int) -> None:
    """GPT-2's own tokenizer for its size, and otherwise bytes (as many as fit) with the end marker as the last id."""
    directory.mkdir(parents=True, exist_ok=True)
    if vocab_size == GPT2_VOCAB_SIZE:
        tokenizer = tokenizers.Tokenizer.from_str(gpt2_tokenizer().to_str())
    else:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokens = (alphabet + [left + right for left in alphabet for right in alphabet])[: vocab_size - 1]
        tokenizer = tokenizers.Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([EOD_TOKEN])
    tokenizer.save(str(directory / "tokenizer.json"))


def random_gpt(given: Mapping[str, Any], vocab_size: int) -> tuple[TrainConfig, GPT]:
    """A model of ours with large random weights; padding rows of the embedding as the case says."""
    padded = given.get("padded_rows", vocab_size)
    config = ModelConfig(
        num_layers=given.get("layers", 2),
        hidden_size=given.get("hidden", 8),
        num_attention_heads=given.get("heads", 2),
        make_vocab_size_divisible_by=padded,
    )
    model = GPT(config, vocab_size=vocab_size, num_positions=NUM_POSITIONS)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        model.wte.weight[vocab_size:] = 1e4
    assert model.wte.weight.shape[0] == padded
    return TrainConfig(model=config, seq_length=NUM_POSITIONS), model.eval()


def write_checkpoint(folder: Path, given: Mapping[str, Any], vocab_size: int) -> tuple[ExportJob, GPT]:
    """A checkpoint as the trainer saves it, its settings and a tokenizer; and the job that exports it."""
    train, model = random_gpt(given, vocab_size)
    optimizer = torch.optim.AdamW(model.parameters())
    save(
        folder / "checkpoint", 1, dict(model.named_parameters()), optimizer, single_mesh(), shard_dimension,
        vocab_size=vocab_size, keep=1, facts={"num_updates": 1},
    )  # fmt: skip
    settings = TrainJob(
        train=train, corpus_prefix=Path("c"), vocab_size=vocab_size, eod_token_id=vocab_size - 1, output_dir=Path("o")
    )
    (folder / "train.json").write_text(settings.model_dump_json())
    write_tokenizer(folder / "tokenizer", vocab_size)
    (folder / "out").mkdir()
    job = ExportJob(
        checkpoint_directory=folder / "checkpoint",
        train_path=folder / "train.json",
        tokenizer_directory=folder / "tokenizer",
        output_directory=folder / "out",
        vocab_size=vocab_size,
        eod_token_id=vocab_size - 1,
        tokenizer_fingerprint="",
    )
    return job, model


class _Hostile:
    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self._marker,))


def _convert_hostile(case: Case, folder: Path) -> None:
    expect, marker = case["expect"], folder / "marker"
    payload = pickle.dumps({"model": torch.zeros(2), "args": _Hostile(marker)})
    for number, name in enumerate(("rank_00000.safetensors", "model_optim_rng.pt", ".metadata")):
        job, _ = write_checkpoint(folder / str(number), {}, 50)
        step = next((job.checkpoint_directory).glob("step_*"))
        (step / name).write_bytes(payload)
        (step / "manifest.json").unlink()
        publish(step.rename(step.with_name("made")), step, {"step": 1, "num_updates": 1})
        message = ""
        try:
            export(job, lambda event: None)
        except (CorruptInputError, StageError) as error:
            message = str(error)
        assert expect["message"] in message, f"{name}: {message!r}"
        assert marker.exists() == expect["marker_file_created"]
        assert not list(job.output_directory.glob("*.safetensors"))
    pickle.loads(payload)
    assert marker.exists(), "the file was hostile indeed"


def adapter_convert(case: Case, tmp_path: Path) -> None:
    """A checkpoint of ours through the whole export, gate included."""
    given, expect = case["input"], case["expect"]
    if "__reduce__" in str(given.get("input", "")):
        _convert_hostile(case, tmp_path)
        return
    vocab_size = given.get("true_vocab", given.get("vocab", 50))
    job, model = write_checkpoint(tmp_path, given, vocab_size)
    events: list[dict[str, Any]] = []
    export(job, events.append)
    assert events[-1]["event"] == "done"
    tensors = load_file(job.output_directory / "model.safetensors")
    loaded = load_in_transformers(job.output_directory)
    tokens = (torch.arange(2 * 32).reshape(2, 32) * 7919) % vocab_size
    with torch.no_grad():
        theirs: Tensor = loaded(tokens).logits
        ours = model(tokens)
    checks: dict[str, Any] = {
        "embedding_rows": tensors["transformer.wte.weight"].shape[0],
        "config_vocab_size": json.loads((job.output_directory / "config.json").read_text())["vocab_size"],
        "logits_columns": theirs.shape[-1],
        "after_loading_same_storage": loaded.lm_head.weight.data_ptr() == loaded.transformer.wte.weight.data_ptr(),
        "exception": None,
    }
    for name, value in checks.items():
        if name in expect:
            assert value == expect[name], f"{name}: {value}"
    for suffix, shape in expect.get("shapes", {}).items():
        found = [list(tensor.shape) for name, tensor in tensors.items() if name.endswith(suffix)]
        assert found and all(size == shape for size in found), f"{suffix}: {found}"
    if "logits_close_to_trainer" in expect:
        assert (theirs - ours).abs().max() <= expect["logits_close_to_trainer"]
    if expect.get("c_proj_is_transposed"):
        mine = model.state_dict()["h.0.attn.proj.weight"]
        assert torch.equal(tensors["transformer.h.0.attn.c_proj.weight"], mine.t())
        assert not torch.equal(mine, mine.t())
    assert all(name in tensors for name in expect.get("file_has", ()))
    assert not any(name in tensors for name in expect.get("file_has_not", ()))
    if "sampled_ids_below" in expect:
        ids = _sampled_ids(job.output_directory, expect.get("samples", 100))
        assert len(ids) >= expect.get("samples", 100)
        assert max(ids) < expect["sampled_ids_below"]


def _sampled_ids(directory: Path, number: int) -> list[int]:
    per_text = NUM_POSITIONS // 2
    job = GenerateJob(
        model_directory=directory,
        num_samples_per_prompt=-(-number // per_text),
        max_new_tokens=per_text,
        temperature=5.0,
        stop_at_eod=False,
    )
    return [token for row in _samples(job) for token in row["token_ids"]]


def _samples(job: GenerateJob) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small tensors: threads that wait for each other only cost time
    try:
        generate_texts(job, events.append)
    finally:
        torch.set_num_threads(num_threads)
    return [event for event in events if event["event"] == "sample"]


def write_model(folder: Path, state: Mapping[str, Tensor], shape: GptShape, eod_token_id: int) -> None:
    """A Hugging Face directory of our weights."""
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder, to_hf(state, shape))
    write_json(folder / "config.json", hf_config(shape, eod_token_id, "float32"))
    write_tokenizer(folder, shape.vocab_size)


def adapter_load_converted(case: Case, tmp_path: Path) -> None:
    """A good directory, broken as the case says, is refused with the names by our loader and by the gate."""
    given, expect = case["input"], case["expect"]
    _, model = random_gpt({}, 50)
    shape = GptShape(2, 8, 2, 32, NUM_POSITIONS, 50)
    write_model(tmp_path, model.state_dict(), shape, 49)
    load_gpt_directory(tmp_path)
    load_in_transformers(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    quoted = re.findall(r"'([^']+)'", given["break"])
    if given["break"].startswith("rename"):
        before, after = (name.removesuffix("x") for name in quoted)
        broken = {re.sub(f"^{re.escape(before)}", after, name): tensor for name, tensor in tensors.items()}
    else:
        broken = {name: tensor for name, tensor in tensors.items() if name not in quoted}
    assert set(broken) != set(tensors), f"the adapter does not know how to {given['break']}"
    save_file(broken, path, metadata={"format": "pt"})
    for load in (load_gpt_directory, load_in_transformers):
        message = ""
        try:
            load(tmp_path)
        except (ValueError, StageError) as error:
            message = str(error)
        assert message, f"never: {expect.get('never')}"
        for name in sorted(set(tensors) - set(broken)) + sorted(set(broken) - set(tensors)):
            assert name in message, f"{name} is not named in: {message}"


def _random_directory(folder: Path) -> Path:
    shape = GptShape(2, 16, 2, 32, NUM_POSITIONS, GPT2_VOCAB_SIZE)
    generator = torch.Generator().manual_seed(1)
    weights = {e.theirs: 0.4 * torch.randn(e.shape, generator=generator) for e in entries(shape)}
    write_model(folder, from_hf(weights, shape), shape, GPT2_EOD_TOKEN_ID)
    return folder


def _forcing_directory(folder: Path, outputs: list[int]) -> Path:
    """A model whose most likely token after position p is outputs[p] (the last one from there on)."""
    outputs = outputs + [next(token for token in reversed(outputs) if token != GPT2_EOD_TOKEN_ID)] * NUM_POSITIONS
    outputs = outputs[:NUM_POSITIONS]
    wanted = sorted(set(outputs))
    size = 2 * (len(wanted) + 1)
    shape = GptShape(1, size, 2, 8, NUM_POSITIONS, GPT2_VOCAB_SIZE)
    weights = {entry.theirs: torch.zeros(entry.shape) for entry in entries(shape)}
    for axis, token in enumerate(wanted):
        weights["transformer.wte.weight"][token, axis] = 1.0
    for position, token in enumerate(outputs):
        weights["transformer.wpe.weight"][position, wanted.index(token)] = 100.0
    weights["transformer.ln_f.weight"].fill_(1.0)
    write_model(folder, from_hf(weights, shape), shape, GPT2_EOD_TOKEN_ID)
    return folder


def adapter_generate(case: Case, tmp_path: Path) -> None:
    """Texts from a small model with GPT-2's vocabulary, through the product's own generation."""
    if "force_tokens" in case["input"]:
        _generate_forced(case, tmp_path)
    elif "batch_sizes" in case["input"]:
        _generate_in_batches(case, tmp_path)
    else:
        _generate_plainly(case, tmp_path)


def _generate_forced(case: Case, folder: Path) -> None:
    given, expect = case["input"], case["expect"]
    forced = given["force_tokens"]
    directory = _forcing_directory(folder, forced)
    # The second row begins past the end marker, so that it has to go on when the first one stops.
    job = GenerateJob(
        model_directory=directory,
        prompts=("", " world" * (len(forced) + 1)),
        temperature=0,
        max_new_tokens=given.get("new_tokens", len(forced) + 2),
        stop_at_eod=given.get("stop_at_eod", True),
        stop=tuple(given.get("stop", ())),
    )
    first, second = _samples(job)
    assert first["text"] == expect["text"]
    if "tokens_after_eod_in_output" in expect:
        end = forced.index(GPT2_EOD_TOKEN_ID)
        assert first["token_ids"][:end] == forced[:end]
        assert len(first["token_ids"][end:]) == expect["tokens_after_eod_in_output"]
    if expect.get("other_rows_of_the_batch_go_on"):
        assert len(second["token_ids"]) == job.max_new_tokens > len(first["token_ids"])


def _generate_in_batches(case: Case, folder: Path) -> None:
    given, expect = case["input"], case["expect"]
    directory = _random_directory(folder)

    def rows(seed: int, batch_size: int) -> list[dict[str, Any]]:
        others = tuple("and so on " * (index + 1) for index in range(batch_size - 1))
        return _samples(
            GenerateJob(
                model_directory=directory,
                prompts=(given["prompt"], *others),
                seed=seed,
                temperature=given.get("temperature", 1.0),
                max_new_tokens=given.get("new_tokens", 12),
            )
        )

    first = [rows(given["seed"], size)[0] for size in given["batch_sizes"]]
    if expect.get("first_row_identical_for_every_batch_size"):
        assert all(row == first[0] for row in first)
    if expect.get("other_seed_differs"):
        assert rows(given["seed"] + 1, 1)[0]["token_ids"] != first[0]["token_ids"]
    if expect.get("seed_is_reported"):
        assert first[0]["seed"] == given["seed"]


def _generate_plainly(case: Case, folder: Path) -> None:
    given, expect = case["input"], case["expect"]
    directory = _random_directory(folder)
    prompts = given.get("prompts", [given.get("prompt", "")])
    fields = {name: given[name] for name in ("temperature", "top_k", "top_p", "seed") if name in given}
    new_tokens = given.get("new_tokens", 8)
    job = GenerateJob(model_directory=directory, prompts=tuple(prompts), max_new_tokens=new_tokens, **fields)
    rows = _samples(job)
    assert len(rows) == len(prompts)
    if marker := re.search(r"\d+", str(expect.get("starts_from", ""))):
        from trainer.inference.engine import DecodeEngine, Request

        loaded = load_gpt_directory(directory)
        engine = DecodeEngine(loaded.model, loaded.eod_token_id, [b"x"] * GPT2_VOCAB_SIZE)
        explicit = engine.generate([Request((int(marker[0]),), job)])[0]
        for row in rows:
            assert (row["num_prompt_tokens"], tuple(row["token_ids"])) == (1, explicit.token_ids)
    for row in rows:
        assert 0 < len(row["token_ids"]) <= new_tokens or row["finish_reason"] == "eod"
        if expect.get("marker_not_in_output_text"):
            assert EOD_TOKEN not in row["text"]
            assert GPT2_EOD_TOKEN_ID not in row["token_ids"]


ADAPTERS = {"convert": adapter_convert, "load_converted": adapter_load_converted, "generate": adapter_generate}
