"""Cases of training, resuming and layouts. An expectation that no line here looks at fails the case."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "trainer"))

from ranks import run_ranks  # noqa: E402
from tiny_gpt import TinySamples, tiny_job, tiny_train  # noqa: E402

from trainer.__main__ import main  # noqa: E402
from trainer.checkpoint.folder import complete_steps  # noqa: E402
from trainer.checkpoint.shards import ShardReader  # noqa: E402
from trainer.checkpoint.state import parameter_slice  # noqa: E402
from trainer.config import TrainJob  # noqa: E402
from trainer.data.indexed_dataset import IndexedDatasetBuilder  # noqa: E402
from trainer.evaluate import evaluate  # noqa: E402
from trainer.job_data import open_data  # noqa: E402
from trainer.metrics import ExitCode  # noqa: E402
from trainer.models.gpt.batch import make_batch  # noqa: E402
from trainer.models.gpt.parallelize import initialise  # noqa: E402
from trainer.models.randomness import Dropout, DropoutContext  # noqa: E402
from trainer.models.registry import BUILDERS  # noqa: E402
from trainer.optim.gradients import gradient_norm  # noqa: E402
from trainer.parallel.mesh import build_mesh, single_mesh  # noqa: E402
from trainer.sample_order import positions_of_rank, positions_of_step  # noqa: E402
from trainer.step import Stepper  # noqa: E402
from trainer.train import StopSignal, train  # noqa: E402

Case = dict[str, Any]
CPU = torch.device("cpu")


def looked_at(expect: dict[str, Any], *names: str) -> None:
    unknown = set(expect) - set(names)
    assert not unknown, f"no check for {sorted(unknown)}"


def layout(tp: int = 1, pp: int = 1, dp: int = 1) -> dict[str, int]:
    return {"tensor_parallel_size": tp, "pipeline_parallel_size": pp, "data_parallel_size": dp}


def counting_job(folder: Path, num_samples: int, seq_length: int, **settings: Any) -> TrainJob:
    """A job whose corpus is one document of the numbers 0, 1, 2 ..., so that what is read can be recognised."""
    num_tokens = num_samples * seq_length + 1
    return stream_job(folder, num_tokens, seq_length=seq_length, **settings)


def stream_job(folder: Path, num_tokens: int, **settings: Any) -> TrainJob:
    folder.mkdir(parents=True, exist_ok=True)
    with IndexedDatasetBuilder(folder / "corpus", np.int32) as builder:
        builder.add_document(np.arange(num_tokens))
    return TrainJob(
        train=tiny_train(split="1,0,0", eval_steps=0, **settings),
        corpus_prefix=folder / "corpus",
        vocab_size=num_tokens + 1,
        eod_token_id=num_tokens,
        output_dir=folder / "out",
        index_cache_dir=folder / "index",
    )


class StopAfter(StopSignal):
    """Received in the course of step `step`."""

    def __init__(self, step: int) -> None:
        self._left = step

    @property
    def received(self) -> bool:  # type: ignore[override]
        self._left -= 1
        return self._left < 1


def trained(job: TrainJob, stop_after: int | None = None) -> tuple[int, list[dict[str, Any]], list[int]]:
    """Train in this process: exit code, all events, first token of each sample in the order of reading."""
    seen: list[int] = []
    whole_batch = Stepper.batch

    def watched(self: Stepper, dataset: Any, positions: Any) -> Any:
        batch = whole_batch(self, dataset, positions)
        if self.model.training:
            seen.extend(batch.tokens[:, 0].tolist())
        return batch

    Stepper.batch = watched  # type: ignore[method-assign]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = train(job, None if stop_after is None else StopAfter(stop_after))
    return int(code), [json.loads(line) for line in output.getvalue().splitlines()], seen


def in_child(job: TrainJob, stop_after: int | None = None) -> tuple[int, list[dict[str, Any]], list[int]]:
    """The same in a process of its own, which is what a resume always is."""
    found: tuple[int, list[dict[str, Any]], list[int]] = run_ranks(1, trained, job, stop_after)[0]
    return found


def losses(events: list[dict[str, Any]]) -> list[str]:
    return [float(event["loss"]).hex() for event in events if event["event"] == "step"]


# ------------------------------------------------------------------------------------------------------ sample order


def adapter_sample_order(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    second = re.compile(r"position_(\d+)_starts_second_epoch")
    marks = [name for name in expect if second.fullmatch(name)]
    known = ("positions_per_step", "first_epoch_is_a_permutation", "resumed_equals_uninterrupted")
    looked_at(expect, *known, *marks)
    number, batch, steps = given["samples"], given["global_batch"], given["steps"]
    job = counting_job(tmp_path, number, 4, global_batch_size=batch, micro_batch_size=1, num_steps=steps)
    assert [list(positions_of_step(step, batch)) for step in range(1, steps + 1)] == expect["positions_per_step"]
    code, _, seen = in_child(job)
    assert code == 0 and len(seen) == batch * steps
    everything = {4 * index for index in range(number)}
    assert (set(seen[:number]) == everything) == expect["first_epoch_is_a_permutation"]
    for mark in marks:
        start = int(second.fullmatch(mark)[1])  # type: ignore[index]
        following = seen[start : start + number]
        begins = len(set(following)) == len(following) and set(seen[:start]) == everything and start == number
        assert begins == expect[mark]
    if given.get("resume_after_each_step"):
        again = job.model_copy(update={"output_dir": tmp_path / "resumed"})
        parts = [in_child(again, 1)[2] for _ in range(steps)]
        assert [len(part) for part in parts] == [batch] * steps
        assert (list(itertools.chain(*parts)) == seen) == expect["resumed_equals_uninterrupted"]


def adapter_rank_batches(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "distinct_tokens_read_before_wrap_at_least", "not", "no_two_ranks_read_the_same")
    ranks, micro, length = given["ranks"], given["micro_batch"], given["sequence"]
    batch = ranks * micro
    job = stream_job(
        tmp_path, given["tokens"], seq_length=length, micro_batch_size=micro, global_batch_size=batch,
        num_steps=2 * given["tokens"] // (batch * length) + 2, parallel=layout(dp=ranks),
    )  # fmt: skip
    samples, _ = open_data(job.model_copy(update={"index_cache_dir": None}), single_mesh())
    per_epoch = samples.samples_per_epoch  # type: ignore[attr-defined]
    read: list[list[int]] = [[] for _ in range(ranks)]
    for step in itertools.count(1):
        positions = positions_of_step(step, batch)
        if positions[0] >= per_epoch:
            break
        for rank in range(ranks):
            for position in itertools.chain(*positions_of_rank(positions, micro, rank, ranks)):
                if position < per_epoch:
                    read[rank] += samples[position][:-1].tolist()
    everything = list(itertools.chain(*read))
    assert len(set(everything)) >= expect["distinct_tokens_read_before_wrap_at_least"]
    assert "not" not in expect or len(set(everything)) != expect["not"]
    assert (len(set(everything)) == len(everything)) == expect["no_two_ranks_read_the_same"]


def _split_of_rank(job: TrainJob, offset: bool) -> tuple[list[int], list[int], list[int]]:
    """Documents of training and of validation, and what this rank reads in the first epoch, by first token."""
    mesh = build_mesh(job.train.parallel)
    shift = mesh.rank if offset else 0
    np.random.seed(job.train.seed + shift)
    torch.manual_seed(job.train.seed + shift)
    samples, validation = open_data(job, mesh)
    training = samples._epoch  # type: ignore[attr-defined]
    replicas = job.train.parallel.data_parallel_size
    mine = positions_of_rank(range(len(training)), 1, mesh.dp_rank, replicas)
    read = [int(samples[position][0]) for position in itertools.chain(*mine)]
    return list(range(training.first, training.stop)), list(range(validation.first, validation.stop)), read


def adapter_split_on_ranks(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(
        expect, "splits_identical_on_all_ranks", "train_and_validation_disjoint", "every_training_sample_once_per_epoch"
    )
    number, ranks = given["documents"], given["dp"]
    with IndexedDatasetBuilder(tmp_path / "corpus", np.int32) as builder:
        for index in range(number):
            builder.add_document(np.arange(4 * index, 4 * index + 4))
    settings = tiny_train(
        split="90,10,0", seq_length=4, seed=given["seed"], parallel=layout(dp=ranks), micro_batch_size=1,
        global_batch_size=ranks, num_steps=number,
    )  # fmt: skip
    job = tiny_job(tmp_path, settings).model_copy(update={"vocab_size": 4 * number + 1, "eod_token_id": 4 * number})
    found = run_ranks(ranks, _split_of_rank, job, bool(given.get("per_rank_seed_offset")))
    splits = {json.dumps(parts[:2]) for parts in found}
    assert (len(splits) == 1) == expect["splits_identical_on_all_ranks"]
    training, validation, _ = found[0]
    assert training and validation
    assert set(training).isdisjoint(validation) == expect["train_and_validation_disjoint"]
    counts = Counter(itertools.chain(*(parts[2] for parts in found)))
    per_epoch = (4 * len(training) - 1) // 4
    once = len(counts) == per_epoch and set(counts.values()) == {1}
    assert once == expect["every_training_sample_once_per_epoch"]
    assert {first // 4 for first in counts} <= set(training), "only documents of the training part are read"


# ---------------------------------------------------------------------------------------------------------- training


def adapter_train(case: Case, tmp_path: Path) -> None:
    given = case["input"]
    if "epochs" in given:
        _train_epochs(case, tmp_path)
    elif "compare" in given:
        _train_in_parts(case, tmp_path)
    else:
        _train_with_evaluation(case, tmp_path)


def _train_epochs(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    counts_name = f"counts_per_sample_over_{given['epochs']}_epochs"
    looked_at(expect, "each_epoch_after_resume_sees", counts_name)
    assert given["then"] == "resume"
    number, batch = given["samples"], given["global_batch"]
    steps = number * given["epochs"] // batch
    job = counting_job(tmp_path, number, 4, global_batch_size=batch, micro_batch_size=1, num_steps=steps)
    code, _, before = in_child(job, given["stop_after_step"])
    assert code == ExitCode.PREEMPTED and len(before) == given["stop_after_step"] * batch
    code, _, after = in_child(job)
    assert code == 0
    seen = before + after
    first_whole = -(-len(before) // number)
    for epoch in range(first_whole, given["epochs"]):
        assert len(set(seen[epoch * number : (epoch + 1) * number])) == expect["each_epoch_after_resume_sees"]
    counts = Counter(seen)
    assert len(counts) == number and set(counts.values()) == {expect[counts_name]}


def _train_in_parts(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "max_abs_difference", "also_equal")
    assert given["optimizer"].lower() == "adamw" and given["dtype"] == "float32" and given["device"] == "cpu"
    whole, first = map(
        int, re.match(r"(\d+) steps at once against (\d+) steps, new process", given["compare"]).groups()
    )  # type: ignore[union-attr]
    assert whole == given["steps"]
    # The rate must not end at 0: the last step, the one that is resumed, would then change nothing.
    rates = {"learning_rate": 1e-2, "min_learning_rate": 5e-3}
    job = tiny_job(tmp_path, tiny_train(num_steps=whole, optimizer=rates))
    parts = job.model_copy(update={"output_dir": tmp_path / "parts"})
    assert in_child(job)[0] == 0
    assert in_child(parts, first)[0] == ExitCode.PREEMPTED
    assert in_child(parts)[0] == 0
    folders = [place.output_dir / f"step_{whole:08d}" for place in (job, parts)]
    left, right = (ShardReader(folder) for folder in folders)
    assert left.names() == right.names()
    for name in left.names():
        difference = (left.full(name) - right.full(name)).abs().max().item()
        assert difference <= expect["max_abs_difference"], f"{name} differs by {difference}"
    for item in expect["also_equal"]:
        if item == "step":
            counts = [json.loads((folder / "manifest.json").read_text())["num_updates"] for folder in folders]
            assert counts == [whole, whole]
        else:
            assert any(name.startswith(f"{item}/") and bool(left.full(name).any()) for name in left.names()), item


def _train_with_evaluation(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "training_losses_identical")
    dropout = given.get("dropout", 0.0)
    found = []
    for every in given["eval_every"]:
        settings = tiny_train(
            num_steps=given["steps"],
            eval_interval=every,
            model={"hidden_dropout": dropout, "attention_dropout": dropout},
        )
        code, events, _ = in_child(tiny_job(tmp_path / str(every), settings))
        evaluations = [event for event in events if event["event"] == "evaluate"]
        assert code == 0 and len(evaluations) >= (given["steps"] // every if every else 1)
        found.append(losses(events))
    assert all(len(one) == given["steps"] for one in found)
    assert all(one == found[0] for one in found) == expect["training_losses_identical"]


def adapter_resume(case: Case, tmp_path: Path) -> None:
    if "checkpoint_step" in case["input"]:
        _resume_finished(case, tmp_path)
    else:
        _resume_by_pointer(case, tmp_path)


def _resume_finished(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "trains_steps", "exit_code", "checkpoint_unchanged", "message")
    job = tiny_job(tmp_path, tiny_train(num_steps=given["train_steps"]))
    assert given["checkpoint_step"] == given["train_steps"]
    assert in_child(job)[0] == 0
    assert complete_steps(job.output_dir)[-1] == given["checkpoint_step"]

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in job.output_dir.glob("step_*/*")}

    before = files()
    code, events, _ = in_child(job)
    assert code == expect["exit_code"]
    assert len(losses(events)) == expect["trains_steps"]
    assert (files() == before) == expect["checkpoint_unchanged"]
    assert any(expect["message"] in str(event.get("message")) for event in events)


def _resume_by_pointer(case: Case, tmp_path: Path) -> None:
    """Its folder is told in words: "pointer says 30; step folders 10 and 20 complete, 30 absent; ..."."""
    given, expect = case["input"], case["expect"]
    looked_at(expect, "one_of", "never")
    assert expect["never"] == "starts from step 0 silently"
    words = given["folder"]
    pointer = int(re.search(r"pointer says (\d+)", words)[1])  # type: ignore[index]
    complete = [int(number) for number in re.findall(r"\d+", re.search(r"step folders (.*?) complete", words)[1])]  # type: ignore[index]
    wanted = [re.fullmatch(r"resumes from (\d+) with a warning", text) for text in expect["one_of"]]
    last = next(int(match[1]) for match in wanted if match)
    settings = tiny_train(num_steps=max(complete) + 2, save_interval=min(complete), keep_last=99)
    job = tiny_job(tmp_path, settings)
    assert in_child(job)[0] == 0
    made = job.output_dir
    for step in complete_steps(made):
        if step not in complete:
            shutil.rmtree(made / f"step_{step:08d}")
    contents = [json.dumps({"step": pointer})] + ([""] if "empty in a second run" in words else [])
    for number, content in enumerate(contents):
        again = job.model_copy(update={"output_dir": tmp_path / f"again{number}"})
        shutil.copytree(made, again.output_dir)
        (again.output_dir / "latest.json").write_text(content)
        code, events, _ = in_child(again)
        assert code == 0
        assert [event["step"] for event in events if event["event"] == "resume"] == [last]
        assert min(event["step"] for event in events if event["event"] == "step") == last + 1
        assert any(event["event"] == "warning" and "latest.json" in event["message"] for event in events)


# -------------------------------------------------------------------------------------------------- loss and gradients


class GivenLosses(nn.Module):
    """A model whose token losses are those of the case, each a parameter, so that their gradients can be read."""

    def __init__(self, rows: list[list[float]]) -> None:
        super().__init__()
        self.losses = nn.Parameter(torch.tensor(rows, dtype=torch.float32))
        self.context, self.dtype = DropoutContext(), torch.float32

    def hidden(self, batch: Any, inputs: Tensor | None) -> Tensor:
        return self.losses[list(self.context.samples)]

    def token_losses(self, hidden: Tensor, labels: Tensor) -> Tensor:
        return hidden


def _given_losses(rows: list[list[float]], masks: list[list[int]], micro: int, dp: int) -> tuple[float, list[Any]]:
    length, number = len(rows[0]), len(rows)
    settings = tiny_train(
        seq_length=length, micro_batch_size=micro, global_batch_size=number, eod_mask_loss=True, parallel=layout(dp=dp)
    )
    BUILDERS["gpt"] = lambda *arguments: GivenLosses(rows)  # type: ignore[assignment,return-value]
    mesh = build_mesh(settings.parallel) if dp > 1 else single_mesh()
    stepper = Stepper(settings, vocab_size=3, eod_token_id=2, mesh=mesh, device=CPU)
    data = [np.array([1 if kept else 2 for kept in mask] + [1]) for mask in masks]
    loss, _ = stepper.backward(1, data)
    grad = stepper.parameters["losses"].grad
    assert grad is not None
    return loss, grad.tolist()


def adapter_loss(case: Case) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "loss", "not", "gradient", "same_for_one_big_batch")
    rows = [[float(value) for value in micro["token_losses"]] for micro in given["micro_batches"]]
    masks = [micro["mask"] for micro in given["micro_batches"]]
    number = sum(map(sum, masks))
    assert "gradient" not in expect or expect["gradient"] == f"that of the mean over {number} tokens"
    runs = [run_ranks(1, _given_losses, rows, masks, 1, 1)[0]]
    if expect.get("same_for_one_big_batch"):
        runs.append(run_ranks(1, _given_losses, rows, masks, len(rows), 1)[0])
    if len(rows) % 2 == 0:
        runs += run_ranks(2, _given_losses, rows, masks, 1, 2)
    for loss, grad in runs:
        assert abs(loss - expect["loss"]) < 1e-6
        assert "not" not in expect or abs(loss - expect["not"]) > 1e-3
        np.testing.assert_allclose(grad, np.array(masks) / number, atol=1e-7)


def _norm(given: dict[str, Any]) -> float:
    mesh = build_mesh(tiny_train(parallel=layout(tp=given["tp"])).parallel)
    grads = {
        "h.0.mlp.up.weight": (torch.tensor(given["sharded"][f"rank{mesh.tp_rank}"]), 0),
        "h.0.ln_1.weight": (torch.tensor(given["replicated_on_both"]), None),
    }
    parameters = {name: nn.Parameter(torch.zeros_like(grad)) for name, (grad, _) in grads.items()}
    for name, parameter in parameters.items():
        parameter.grad = grads[name][0]
    return float(gradient_norm(parameters, mesh, lambda name: grads[name][1]))


def adapter_grad_norm(case: Case) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "norm", "not", "same_on_every_rank")
    found = run_ranks(given["tp"], _norm, given)
    assert all(abs(norm - expect["norm"]) < 1e-4 for norm in found)
    assert "not" not in expect or all(abs(norm - expect["not"]) > 1e-2 for norm in found)
    assert (len({norm.hex() for norm in found}) == 1) == expect["same_on_every_rank"]


# ------------------------------------------------------------------------------------------------------------- layouts


def _layout_run(
    parallel: dict[str, int], seed: int, dropout: float, steps: int
) -> tuple[dict[str, Any], list[float], list[float]]:
    """Initial weights by name with their place, losses, and what a dropout on replicated activations keeps."""
    settings = tiny_train(
        parallel=parallel, seed=seed, num_steps=steps, model={"hidden_dropout": dropout, "attention_dropout": dropout}
    )
    mesh = build_mesh(settings.parallel) if settings.parallel.world_size > 1 else single_mesh()
    stepper = Stepper(settings, vocab_size=61, eod_token_id=60, mesh=mesh, device=CPU)
    weights = {}
    for name, parameter in stepper.parameters.items():
        place = parameter_slice(name, parameter, mesh, stepper.sharding, 61)
        start, stop = place.bounds()
        values = parameter.detach()
        weights[name] = (place.dim, start, (values[: stop - start] if name == "wte.weight" else values).numpy().copy())
    data = TinySamples()
    found = [stepper.run(step, data).loss for step in range(1, steps + 1)]
    mask = Dropout(stepper.model.context, 0, "mlp", 0.5)(torch.ones(len(stepper.model.context.samples), 6, 8))
    return weights, found, mask.flatten().tolist()


def _joined(ranks: list[tuple[dict[str, Any], list[float], list[float]]]) -> dict[str, Any]:
    """Full weights from the slices of all ranks."""
    full: dict[str, Any] = {}
    for name in sorted({name for weights, _, _ in ranks for name in weights}):
        slices = {weights[name][1]: weights[name] for weights, _, _ in ranks if name in weights}
        dim = next(iter(slices.values()))[0]
        parts = [slices[start][2] for start in sorted(slices)]
        full[name] = parts[0] if dim is None else np.concatenate(parts, axis=dim)
    return full


def adapter_compare_parallel(case: Case) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(
        expect, "full_initial_weights_identical", "loss_difference_at_most",
        "shards_of_one_matrix_differ_from_each_other", "with_dropout",
    )  # fmt: skip
    assert given["dtype"] == "float32"
    rates = [given["dropout"]] + ([0.1] if "with_dropout" in expect else [])
    for rate in rates:
        alone = None
        for config in given["configs"]:
            parallel = layout(**config)
            world = (
                parallel["tensor_parallel_size"] * parallel["pipeline_parallel_size"] * parallel["data_parallel_size"]
            )
            ranks = run_ranks(world, _layout_run, parallel, given["seed"], rate, given["steps"])
            full, found = _joined(ranks), ranks[0][1]
            alone = alone or (full, found)
            same = full.keys() == alone[0].keys() and all(np.array_equal(full[name], alone[0][name]) for name in full)
            assert same == expect["full_initial_weights_identical"]
            assert np.abs(np.subtract(found, alone[1])).max() <= expect["loss_difference_at_most"]
            if parallel["tensor_parallel_size"] > 1:
                matrices = [
                    [weights[name][2] for weights, _, _ in ranks if name in weights]
                    for name, (dim, _, values) in ranks[0][0].items()
                    if dim is not None and values.ndim == 2
                ]
                assert matrices
                differ = all(not np.array_equal(parts[0], other) for parts in matrices for other in parts[1:])
                assert differ == expect["shards_of_one_matrix_differ_from_each_other"]
            if rate and parallel["data_parallel_size"] == 1:
                assert expect["with_dropout"] == "replicated activations use the same mask on all tensor ranks"
                assert all(kept == ranks[0][2] for _, _, kept in ranks) and 0.0 in ranks[0][2]


def _evaluated(dp: int, micro: int, number: int) -> tuple[float, int, int, list[int]]:
    settings = tiny_train(parallel=layout(dp=dp), micro_batch_size=micro, global_batch_size=micro * dp)
    mesh = build_mesh(settings.parallel) if dp > 1 else single_mesh()
    stepper = Stepper(settings, vocab_size=61, eod_token_id=60, mesh=mesh, device=CPU)
    counted: list[int] = []

    class Watched(TinySamples):
        def __getitem__(self, index: int) -> Any:
            counted.append(index)
            return super().__getitem__(index)

    found = evaluate(stepper, Watched(number), 10 * number)
    return found.loss, found.num_samples, found.num_tokens, counted


def _plain_mean(number: int) -> float:
    """The mean over all tokens, by torch's own loss on the whole model."""
    settings = tiny_train()
    model = BUILDERS["gpt"](settings, 61, single_mesh(), CPU).eval()
    initialise(model, settings.seed)
    rows = torch.from_numpy(np.stack([TinySamples(number)[index] for index in range(number)]))
    with torch.no_grad():
        logits = model(rows[:, :-1])
        return float(nn.functional.cross_entropy(logits.flatten(0, 1).double(), rows[:, 1:].flatten()))


def adapter_validate(case: Case) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "finishes", "each_sample_counted_once", "loss", "max_seconds")
    number = given["validation_samples"]
    assert expect["loss"] == f"mean over all tokens of all {number} samples" and expect["finishes"]
    started = time.monotonic()
    found = run_ranks(given["dp"], _evaluated, given["dp"], given["micro_batch"], number)
    assert time.monotonic() - started < expect["max_seconds"]
    plain = run_ranks(1, _plain_mean, number)[0]
    for loss, num_samples, num_tokens, _ in found:
        assert abs(loss - plain) < 1e-5
        assert num_samples == number and num_tokens == 12 * number
    if given["micro_batch"] == 1:
        counts = Counter(itertools.chain(*(read for *_, read in found)))
        once = sorted(counts) == list(range(number)) and set(counts.values()) == {1}
        assert once == expect["each_sample_counted_once"]


# ---------------------------------------------------------------------------------------------- masks and settings


def adapter_masks(case: Case) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "position_ids", "loss_mask", "attention_blocks", "each_option_also_alone")
    sample = np.array([[*given["tokens"], 1]])
    names = {
        "reset_position_ids": given["reset_positions"],
        "eod_mask_loss": given["mask_eod_loss"],
        "reset_attention_mask": given["reset_attention"],
    }  # in the order of what `made` returns

    length = len(given["tokens"])

    def made(**options: bool) -> tuple[list[int], list[int], list[list[int]]]:
        batch = make_batch(sample, given["eod"], CPU, **options)
        return (
            batch.positions[0].tolist(),
            [int(kept) for kept in batch.loss_mask[0]],
            blocks(batch.attention_mask, length),
        )

    plain = (list(range(length)), [1] * length, [[0, length]])
    wanted = (expect["position_ids"], expect["loss_mask"], expect["attention_blocks"])
    assert made(**names) == wanted
    for number, name in enumerate(names):
        if names[name]:
            alone = tuple(wanted[place] if place == number else plain[place] for place in range(3))
            assert made(**{name: True}) == alone, name
    assert made() == plain


def blocks(mask: Tensor | None, length: int) -> list[list[int]]:
    """[start, stop) of the blocks of a mask, which must be causal inside and closed outside. None is plain causality."""
    if mask is None:
        return [[0, length]]
    allowed = mask[0, 0].numpy()
    starts = [place for place in range(length) if not allowed[place, :place].any()]
    found = [[start, stop] for start, stop in itertools.pairwise([*starts, length])]
    whole = np.zeros((length, length), dtype=bool)
    for start, stop in found:
        whole[start:stop, start:stop] = np.tri(stop - start, dtype=bool)
    assert np.array_equal(allowed, whole)
    return found


SETTINGS = {
    "batch": "global_batch_size",
    "global_batch": "global_batch_size",
    "micro_batch": "micro_batch_size",
    # One says the size of micro-batches here, not their number; the rule that both numbers must obey is the same.
    "micro_batches": "micro_batch_size",
    "tp": "parallel.tensor_parallel_size",
    "pp": "parallel.pipeline_parallel_size",
    "dp": "parallel.data_parallel_size",
    "layers": "model.num_layers",
    "heads": "model.num_attention_heads",
    "hidden": "model.hidden_size",
    "ffn": "model.ffn_hidden_size",
    "seq": "seq_length",
    "positions": "model.max_position_embeddings",
}


def asked_job(base: dict[str, Any], asked: dict[str, int]) -> dict[str, Any]:
    """The job with the case's numbers in it, and everything else fitting them."""
    job = json.loads(json.dumps(base))
    if "heads" in asked and "hidden" not in asked:
        job["train"]["model"]["hidden_size"] = 8 * asked["heads"]
    if "dp" in asked and not asked.keys() & {"batch", "global_batch"}:
        job["train"]["global_batch_size"] = job["train"]["micro_batch_size"] * asked["dp"]
    for name, value in asked.items():
        place = job["train"]
        *path, last = SETTINGS[name].split(".")
        for step in path:
            place = place[step]
        place[last] = value
    return job


def adapter_configure(case: Case, tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    looked_at(expect, "each")
    assert expect["each"] == "refused before processes talk to each other, message names both numbers"
    base = json.loads(tiny_job(tmp_path).model_dump_json())
    for index, asked in enumerate(given["cases"]):
        path = tmp_path / f"job{index}.json"
        path.write_text(json.dumps(asked_job(base, asked)))
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            # Before any module of torch is asked for: the settings are refused by reading them.
            assert main(["--config", str(path)]) == ExitCode.CONFIG
        message = json.loads(output.getvalue())["message"]
        numbers = {int(number) for number in re.findall(r"\d+", message)}
        assert set(asked.values()) <= numbers, f"{asked}: {message}"


ADAPTERS = {
    "sample_order": adapter_sample_order,
    "rank_batches": adapter_rank_batches,
    "split_on_ranks": adapter_split_on_ranks,
    "train": adapter_train,
    "resume": adapter_resume,
    "loss": adapter_loss,
    "grad_norm": adapter_grad_norm,
    "compare_parallel": adapter_compare_parallel,
    "validate": adapter_validate,
    "masks": adapter_masks,
    "configure": adapter_configure,
}
