"""Generation: the same text alone and in company, ends, limits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainer.inference.config import SamplingConfig
from trainer.inference.engine import DecodeEngine, FinishReason, Request, fit_prompt
from trainer.inference.gpt_slots import GptSlots

VOCAB_SIZE, CONTEXT, EOD = 97, 48, 96
BYTES = [bytes([33 + token % 90]) for token in range(VOCAB_SIZE)]
PROMPTS = [(5, 6, 7), (1,), tuple(range(7)), tuple(range(40, 10, -1)), (), (90, 3)]


@pytest.fixture
def engine(slots: GptSlots) -> DecodeEngine:
    return DecodeEngine(slots, EOD, BYTES)


def requests(**fields: object) -> list[Request]:
    return [Request(prompt, SamplingConfig(**({"max_new_tokens": 16} | fields))) for prompt in PROMPTS]


def test_greedy_tokens_are_those_of_transformers(reference: Any, engine: DecodeEngine) -> None:
    for request, got in zip(requests(), engine.generate(requests(temperature=0)), strict=True):
        prompt = torch.tensor([request.prompt or (EOD,)])
        wanted = reference.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, do_sample=False, pad_token_id=EOD
        )[0, prompt.shape[1] :].tolist()
        assert list(got.token_ids) == wanted[: wanted.index(EOD) if EOD in wanted else None]


@pytest.mark.parametrize("num_slots", [1, 3, 8])
def test_a_batch_of_unequal_prompts_equals_one_by_one(slots: GptSlots, num_slots: int) -> None:
    engine = DecodeEngine(slots, EOD, BYTES, num_slots)
    for fields in ({"temperature": 0}, {"temperature": 1.3, "top_k": 40}, {"top_p": 0.9, "repetition_penalty": 1.2}):
        together = engine.generate(requests(**fields))
        assert together == [engine.generate([request])[0] for request in requests(**fields)]


def test_the_seed_decides_and_neighbours_do_not(engine: DecodeEngine) -> None:
    def first(seed: int, others: int) -> tuple[int, ...]:
        rows = [Request((1, 2), SamplingConfig(seed=seed, max_new_tokens=20))]
        rows += [Request((3,) * (n + 1), SamplingConfig(seed=n, max_new_tokens=30)) for n in range(others)]
        return engine.generate(rows)[0].token_ids

    assert len({first(7, others) for others in (0, 1, 3, 12)}) == 1
    assert first(7, 0) != first(8, 0)


def test_more_requests_than_slots_keep_their_order(slots: GptSlots) -> None:
    rows = [Request((n,), SamplingConfig(seed=n, max_new_tokens=1 + n % 5)) for n in range(20)]
    got = DecodeEngine(slots, EOD, BYTES, num_slots=3).generate(rows)
    assert [completion.seed for completion in got] == list(range(20))
    assert got == DecodeEngine(slots, EOD, BYTES, num_slots=3).generate(rows)


def test_an_empty_prompt_starts_from_the_end_marker(engine: DecodeEngine) -> None:
    config = SamplingConfig(max_new_tokens=8, seed=3)
    empty, marker = engine.generate([Request((), config), Request((EOD,), config)])
    assert empty == marker
    assert empty.num_prompt_tokens == 1


def crafted(outputs: list[int]) -> GptSlots:
    """A model whose most likely token after position p is outputs[p], whatever it reads."""
    from trainer.models.gpt.hf import GptShape, entries

    shape = GptShape(1, 128, 2, 8, len(outputs), VOCAB_SIZE)
    state = {entry.ours: torch.zeros(entry.shape) for entry in entries(shape)}
    state = {name: tensor.t().contiguous() if tensor.dim() == 2 else tensor for name, tensor in state.items()}
    state["wte.weight"] = torch.eye(VOCAB_SIZE, 128)
    state["wpe.weight"] = 100 * torch.eye(VOCAB_SIZE, 128)[torch.tensor(outputs)]
    state["ln_f.weight"] = torch.ones(128)
    return GptSlots(state, shape)


def test_nothing_comes_after_the_end_marker_and_other_rows_go_on() -> None:
    engine = DecodeEngine(crafted([10, EOD, 12, 12, 12, 13, 14, 15, 16]), EOD, BYTES)
    greedy = SamplingConfig(temperature=0, max_new_tokens=5)
    short, long = engine.generate([Request((1,), greedy), Request((1, 2, 3), greedy)])
    assert (short.token_ids, short.finish_reason) == ((10,), FinishReason.EOD)
    assert short.text == BYTES[10].decode()
    assert (long.token_ids, long.finish_reason) == ((12, 12, 12, 13, 14), FinishReason.LENGTH)


def test_the_end_marker_can_be_forbidden() -> None:
    engine = DecodeEngine(crafted([EOD] * 8), EOD, BYTES)
    config = SamplingConfig(temperature=0, max_new_tokens=5, stop_at_eod=False)
    got = engine.generate([Request((1,), config)])[0]
    assert got.finish_reason is FinishReason.LENGTH
    assert len(got.token_ids) == 5
    assert EOD not in got.token_ids


def test_a_stop_string_ends_the_text_and_is_cut_off() -> None:
    table = [b"x"] * VOCAB_SIZE
    table[10], table[11], table[12] = b"ab", b"cd", b"ef"
    engine = DecodeEngine(crafted([10, 11, 12, 13, 14, 15]), EOD, table)
    pieces: list[str] = []
    config = SamplingConfig(temperature=0, stop=("de",))
    got = engine.generate([Request((1,), config)], lambda _, piece: pieces.append(piece))[0]
    assert (got.text, got.finish_reason, got.token_ids) == ("abc", FinishReason.STOP, (10, 11, 12))
    assert pieces == ["ab", "c"]


def test_pieces_join_to_the_text(engine: DecodeEngine) -> None:
    pieces: dict[int, str] = {}

    def say(index: int, piece: str) -> None:
        pieces[index] = pieces.get(index, "") + piece

    for index, completion in enumerate(engine.generate(requests(seed=5), say)):
        assert pieces.get(index, "") == completion.text


def test_a_text_ends_when_the_context_is_full(engine: DecodeEngine) -> None:
    config = SamplingConfig(temperature=0, max_new_tokens=1000, stop_at_eod=False)
    got = engine.generate([Request((1, 2, 3), config)])[0]
    assert got.finish_reason is FinishReason.CONTEXT
    assert got.num_prompt_tokens + len(got.token_ids) == CONTEXT


def test_of_a_long_prompt_the_last_tokens_count(engine: DecodeEngine) -> None:
    config = SamplingConfig(temperature=0, max_new_tokens=8)
    long = tuple(token % 90 for token in range(200))
    cut, wanted = engine.generate([Request(long, config), Request(long[-40:], config)])
    assert cut.token_ids == wanted.token_ids
    assert (cut.num_prompt_tokens, cut.num_prompt_tokens_dropped) == (40, 160)


@pytest.mark.parametrize(
    ("length", "new", "kept"), [(10, 8, 10), (40, 8, 40), (41, 8, 40), (48, 1, 47), (100, 40, 24), (100, 1000, 24)]
)
def test_what_is_kept_of_a_prompt(length: int, new: int, kept: int) -> None:
    assert fit_prompt(range(length), new, 48) == tuple(range(length))[-kept:]


def test_ids_outside_the_vocabulary_are_refused(engine: DecodeEngine, slots: GptSlots) -> None:
    with pytest.raises(ValueError, match="prompt token 97 is outside the vocabulary of 97"):
        engine.generate([Request((97,), SamplingConfig())])
    with pytest.raises(ValueError, match="the vocabulary has 96 tokens, the model 97"):
        DecodeEngine(slots, EOD, BYTES[:-1])
    with pytest.raises(ValueError, match="eod_token_id 97"):
        DecodeEngine(slots, 97, BYTES)
    with pytest.raises(ValueError, match="num_slots is 0"):
        DecodeEngine(slots, EOD, BYTES, 0)


def test_no_request_no_text(engine: DecodeEngine) -> None:
    assert engine.generate([]) == []
