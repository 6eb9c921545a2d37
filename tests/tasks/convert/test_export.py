"""What the gate stops, and checkpoints that are no checkpoints."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.convert import export as exporting
from tasks.convert.directory import copy_tokenizer
from tasks.convert.gate import Difference, check_tokenizer, difference, load_in_transformers, probe_tokens
from tasks.convert.jobs import ExportJob
from tasks.convert.probe import large_weight_difference
from tasks.convert.trained import TrainedModel, open_checkpoint
from tasks.errors import CorruptInputError, StageError, UserError
from trainer.checkpoint.folder import publish
from trainer.checkpoint.shards import Slice, write_shard
from trainer.models.gpt import hf
from trainer.models.gpt.hf import Change
from trainer.models.gpt.parallelize import shard_dimension


@pytest.fixture
def job(make: Callable[..., Any], tmp_path: Path) -> ExportJob:
    store, checkpoint, tokenizer = make()
    (tmp_path / "out").mkdir()
    return ExportJob(
        checkpoint_directory=store.path_of(checkpoint) / "checkpoint",
        train_path=store.path_of(checkpoint) / "train.json",
        tokenizer_directory=store.path_of(tokenizer),
        output_directory=tmp_path / "out",
        vocab_size=257,
        eod_token_id=256,
        tokenizer_fingerprint=tokenizer.fingerprint,
    )


def test_events_and_files(job: ExportJob) -> None:
    events: list[dict[str, Any]] = []
    exporting.export(job, events.append)
    assert [event["event"] for event in events] == ["parity", "done"]
    names = {path.name for path in job.output_directory.iterdir() if path.is_file()}
    assert names == {
        "README.md", "config.json", "generation_config.json", "model.safetensors", "parity.json", "tokenizer.json",
        "tokenizer_config.json",
    }  # fmt: skip


def test_the_same_bytes_again(job: ExportJob, tmp_path: Path) -> None:
    again = job.model_copy(update={"output_directory": tmp_path / "again"})
    again.output_directory.mkdir()
    for one in (job, again):
        exporting.export(one, lambda event: None)
    for path in job.output_directory.iterdir():
        if path.is_file():  # logs/ holds what was measured, which may differ in its last digits
            assert path.read_bytes() == (again.output_directory / path.name).read_bytes()


def test_half_precision_is_what_it_says(job: ExportJob) -> None:
    events: list[dict[str, Any]] = []
    exporting.export(job.model_copy(update={"dtype": "bfloat16"}), events.append)
    assert {tensor.dtype for tensor in load_file(job.output_directory / "model.safetensors").values()} == {
        torch.bfloat16
    }
    assert json.loads((job.output_directory / "config.json").read_text())["dtype"] == "bfloat16"
    assert events[-1]["max_logit_difference"] < 1e-3, "against the trainer's model on the same rounded weights"


def test_parts_of_two_tensor_ranks_and_two_stages_are_joined(job: ExportJob) -> None:
    whole = open_checkpoint(job.checkpoint_directory, job.train_path, 257).state
    folder = job.checkpoint_directory / "step_00000003"
    (folder / "manifest.json").unlink()
    (folder / "rank_00000.safetensors").unlink()
    for stage in (0, 1):
        for rank in (0, 1):
            tensors, slices = {}, {}
            for name, full in whole.items():
                dim = shard_dimension(name)
                if name.startswith(("h.1.", "ln_f")) != bool(stage) or (dim is None and rank):
                    continue
                bounds = (0, 0) if dim is None else ((0, 129), (129, 257))[rank] if full.shape[dim] == 257 else None
                start, stop = bounds or (rank * full.shape[dim] // 2, (rank + 1) * full.shape[dim] // 2)
                part = full if dim is None else full.narrow(dim, start, stop - start)
                tensors[f"model/{name}"], slices[f"model/{name}"] = part, Slice(tuple(full.shape), dim, start, stop)
            write_shard(folder / f"rank_{2 * stage + rank:05d}.safetensors", tensors, slices)
    publish(folder.rename(folder.with_name("made")), folder, {"step": 3, "num_updates": 3})
    joined = open_checkpoint(job.checkpoint_directory, job.train_path, 257).state
    assert set(joined) == set(whole)
    assert all(torch.equal(joined[name], whole[name]) for name in whole)


def mistaken(monkeypatch: pytest.MonkeyPatch, **changes: Change) -> None:
    """The mapping with a mistake: other changes for tensors whose names end so."""
    right = hf.entries

    def wrong(shape: hf.GptShape) -> list[hf.Entry]:
        table = []
        for entry in right(shape):
            change = next(
                (c for part, c in changes.items() if entry.ours.endswith(part.replace("__", "."))), entry.change
            )
            table.append(hf.Entry(entry.ours, entry.theirs, change, entry.shape))
        return table

    monkeypatch.setattr(hf, "entries", wrong)


@pytest.mark.parametrize(
    "changes",
    [{"attn__proj__weight": Change.NONE}, {"attn__qkv__bias": Change.NONE}, {"attn__qkv__weight": Change.TRANSPOSE}],
    ids=["square matrix not transposed", "bias not regrouped", "rows not regrouped"],
)
def test_a_mistake_that_loads_silently_is_caught(
    job: ExportJob, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Change]
) -> None:
    mistaken(monkeypatch, **changes)
    with pytest.raises(StageError, match="transformers' logits differ from the trainer's by"):
        exporting.export(job, lambda event: None)
    assert not (job.output_directory / "parity.json").exists()


def test_the_wrong_gelu_is_caught_even_on_tiny_weights(
    make: Callable[..., Any], job: ExportJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = open_checkpoint(job.checkpoint_directory, job.train_path, 257)
    tiny = TrainedModel(trained.shape, {name: t * 0.02 for name, t in trained.state.items()}, 3)
    assert large_weight_difference(tiny).largest < 1e-9
    plain = torch.nn.functional.gelu
    monkeypatch.setattr("trainer.models.gpt.model.F.gelu", lambda x, approximate: plain(x))
    assert large_weight_difference(tiny).largest > 1e-4


def test_wrong_names_are_listed_and_never_loaded_as_random_weights(job: ExportJob) -> None:
    exporting.export(job, lambda event: None)
    path = job.output_directory / "model.safetensors"
    save_file({f"model.{name}": tensor for name, tensor in load_file(path).items()}, path, metadata={"format": "pt"})
    with pytest.raises(StageError, match=r"missing: .*transformer\.wte\.weight.*unexpected: model\.transformer\.h\.0"):
        load_in_transformers(job.output_directory)


def test_a_tokenizer_with_other_ids_is_refused(job: ExportJob) -> None:
    exporting.export(job, lambda event: None)
    with pytest.raises(StageError, match="the tokenizer has 257 ids, the model 300"):
        check_tokenizer(job.output_directory, 300, 256)
    with pytest.raises(StageError, match="the tokenizer ends a text with id 256, the model with 0"):
        check_tokenizer(job.output_directory, 257, 0)
    with pytest.raises(UserError, match="it has no token with the id 999"):
        copy_tokenizer(job.tokenizer_directory, job.output_directory, 24, 999)
    with pytest.raises(UserError, match=r"holds no tokenizer\.json"):
        copy_tokenizer(job.checkpoint_directory, job.output_directory, 24, 256)


class Hostile:
    """Unpickling it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize("name", ["rank_00000.safetensors", "model_optim_rng.pt", "__0_0.distcp", ".metadata"])
def test_a_checkpoint_with_code_in_it_is_refused_unopened(job: ExportJob, tmp_path: Path, name: str) -> None:
    marker = tmp_path / "marker"
    folder = job.checkpoint_directory / "step_00000003"
    (folder / "manifest.json").unlink()
    (folder / name).write_bytes(pickle.dumps({"model": Hostile(marker)}))
    renamed = folder.rename(folder.with_name("made"))
    publish(renamed, folder, {"step": 3, "num_updates": 3})  # a manifest with the right digests
    with pytest.raises(CorruptInputError, match="refused"):
        exporting.export(job, lambda event: None)
    assert not marker.exists()
    with (folder / name).open("rb") as stream:
        pickle.load(stream)
    assert marker.exists(), "the file was hostile indeed"


def test_damaged_and_missing_checkpoints_are_refused(job: ExportJob, tmp_path: Path) -> None:
    path = job.checkpoint_directory / "step_00000003" / "rank_00000.safetensors"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptInputError, match="the checkpoint is refused: .*not what was saved"):
        open_checkpoint(job.checkpoint_directory, job.train_path, 257)
    with pytest.raises(CorruptInputError, match="holds no complete checkpoint"):
        open_checkpoint(tmp_path, job.train_path, 257)
    with pytest.raises(CorruptInputError, match=r"none\.json: the settings of the training cannot be read"):
        open_checkpoint(job.checkpoint_directory, tmp_path / "none.json", 257)
    with pytest.raises(UserError, match="the checkpoint was trained with 257 token ids"):
        open_checkpoint(job.checkpoint_directory, job.train_path, 300)


def test_weights_of_another_shape_are_refused(job: ExportJob) -> None:
    settings = json.loads(job.train_path.read_text())
    settings["train"]["model"]["num_layers"] = 3
    job.train_path.write_text(json.dumps(settings))
    with pytest.raises(CorruptInputError, match=r"missing \['h\.2\.attn"):
        exporting.export(job, lambda event: None)


def test_probe_tokens_touch_the_last_id() -> None:
    tokens = probe_tokens(50257, 64)
    assert tokens.max() == 50256
    assert tokens.min() >= 0
    assert tokens.shape == (2, 64)


def test_differences_are_judged_by_the_size_of_the_logits() -> None:
    apart = difference(torch.tensor([100.0]), torch.tensor([100.005]))
    apart.check(1e-4, "probe")
    with pytest.raises(StageError, match="probe: transformers' logits differ from the trainer's by"):
        apart.check(1e-5, "probe")
    with pytest.raises(StageError, match="nothing is published"):
        Difference(float("nan"), 1.0).check(1e-4, "probe")
    with pytest.raises(StageError, match="logits have the shape"):
        difference(torch.zeros(2), torch.zeros(3))
