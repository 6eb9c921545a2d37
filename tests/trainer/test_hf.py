"""Names, layouts and config.json, both ways."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainer.models.gpt.hf import GptShape, entries, from_hf, hf_config, shape_of_config, to_hf

SHAPE = GptShape(
    num_layers=2, hidden_size=8, num_attention_heads=2, ffn_hidden_size=32, max_position_embeddings=16, vocab_size=50
)


@pytest.fixture
def reference() -> Any:
    transformers: Any = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config.from_dict(hf_config(SHAPE, 49, "float32"))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5)
    return model


def test_the_table_is_transformers_own_list_of_tensors(reference: Any) -> None:
    theirs = {name: tuple(tensor.shape) for name, tensor in reference.state_dict().items() if name != "lm_head.weight"}
    assert {entry.theirs: entry.shape for entry in entries(SHAPE)} == theirs
    assert len({entry.ours for entry in entries(SHAPE)}) == len(theirs)


def test_there_and_back_is_bit_equal(reference: Any) -> None:
    state = reference.state_dict()
    for padded in (None, 50, 64, 128):
        ours = from_hf(state, SHAPE, padded)
        back = to_hf(ours, SHAPE)
        assert set(back) == set(state) - {"lm_head.weight"}
        assert all(torch.equal(back[name], state[name]) for name in back)
        again = from_hf(back, SHAPE, padded)
        assert all(torch.equal(again[name], ours[name]) for name in ours)


def test_padding_rows_are_dropped_and_made_of_zeros(reference: Any) -> None:
    ours = from_hf(reference.state_dict(), SHAPE, 64)
    assert ours["wte.weight"].shape == (64, 8)
    assert not ours["wte.weight"][50:].any()
    ours["wte.weight"][50:] = 1e6
    assert to_hf(ours, SHAPE)["transformer.wte.weight"].shape == (50, 8)


def test_square_matrices_are_transposed_too(reference: Any) -> None:
    ours = from_hf(reference.state_dict(), SHAPE)
    theirs = to_hf(ours, SHAPE)
    for entry in entries(SHAPE):
        if entry.theirs.endswith("attn.c_proj.weight"):
            assert torch.equal(theirs[entry.theirs], ours[entry.ours].t())
            assert not torch.equal(theirs[entry.theirs], ours[entry.ours])


def test_old_files_without_prefix_and_with_mask_buffers_are_read(reference: Any) -> None:
    wanted = from_hf(reference.state_dict(), SHAPE)
    old = {name.removeprefix("transformer."): tensor for name, tensor in reference.state_dict().items()}
    old |= {"h.0.attn.bias": torch.ones(1, 1, 16, 16), "h.1.attn.masked_bias": torch.tensor(-1e4)}
    got = from_hf(old, SHAPE)
    assert all(torch.equal(got[name], wanted[name]) for name in wanted)


def test_other_names_are_refused_with_both_lists(reference: Any) -> None:
    renamed = {f"model.{name}": tensor for name, tensor in reference.state_dict().items()}
    with pytest.raises(ValueError, match=r"missing \['transformer\.h\.0\..*unexpected \['transformer\.model\."):
        from_hf(renamed, SHAPE)
    ours = from_hf(reference.state_dict(), SHAPE)
    del ours["wpe.weight"]
    with pytest.raises(ValueError, match=r"missing \['wpe\.weight'\], unexpected \[\]"):
        to_hf(ours, SHAPE)


def test_other_shapes_are_refused(reference: Any) -> None:
    state = dict(reference.state_dict())
    state["transformer.h.0.mlp.c_fc.weight"] = state["transformer.h.0.mlp.c_fc.weight"].t()
    with pytest.raises(
        ValueError, match=r"h\.0\.mlp\.c_fc\.weight becomes \(32, 8\), a GPT-2 of this shape has \(8, 32\)"
    ):
        from_hf(state, SHAPE)


def test_an_untied_head_is_refused(reference: Any) -> None:
    state = dict(reference.state_dict())
    state["lm_head.weight"] = state["lm_head.weight"] + 1
    with pytest.raises(ValueError, match="untied heads are not supported"):
        from_hf(state, SHAPE)


def test_config_and_back() -> None:
    config = hf_config(SHAPE, 49, "float32")
    assert shape_of_config(config) == SHAPE
    assert config["vocab_size"] == 50
    assert config["bos_token_id"] == config["eos_token_id"] == 49


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation_function": "gelu"}, "activation_function is 'gelu'"),
        ({"model_type": "llama"}, "model_type is 'llama'"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
    ],
)
def test_a_model_that_computes_something_else_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shape_of_config(hf_config(SHAPE, 49, "float32") | change)


def test_a_config_without_sizes_is_refused() -> None:
    with pytest.raises(ValueError, match="n_layer is missing"):
        shape_of_config({"model_type": "gpt2"})
