"""A Hugging Face GPT-2 directory as our own model, ready to decode."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from trainer.inference.gpt_slots import GptSlots
from trainer.models.gpt.hf import from_hf, shape_of_config

INDEX_NAME = "model.safetensors.index.json"


@dataclass(frozen=True)
class LoadedModel:
    """A model and what its config.json says about it."""

    model: GptSlots
    eod_token_id: int
    num_parameters: int

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        return self.model.device


def choose_device(name: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """The device of that name; "auto" is the GPU when there is one. Raises ValueError when it is not there."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ValueError("device 'cuda' was asked for, but no CUDA device is usable")
    return torch.device("cuda" if available and name != "cpu" else "cpu")


def read_config(directory: Path) -> dict[str, Any]:
    """config.json of a directory. Raises ValueError when there is none or it is no JSON object."""
    path = directory / "config.json"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} is no JSON object")
    return value


def read_weights(directory: Path) -> dict[str, Tensor]:
    """Every tensor of the directory's safetensors files, by name; nothing else is opened.

    Raises ValueError for a missing or damaged file: pickled weights (pytorch_model.bin) are never read.
    """
    index = directory / INDEX_NAME
    if index.is_file():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    else:
        names = sorted(path.name for path in directory.glob("*.safetensors"))
    if not names:
        raise ValueError(f"{directory} holds no .safetensors file; pickled weights are not read")
    tensors: dict[str, Tensor] = {}
    for name in names:
        try:
            with safe_open(str(directory / Path(name).name), framework="pt") as stream:
                for key in stream.keys():  # noqa: SIM118 - the file is no mapping
                    tensors[key] = stream.get_tensor(key)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{directory / name} cannot be read ({error})") from error
    return tensors


def load_gpt_directory(
    directory: Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> LoadedModel:
    """Load a GPT-2 directory through our own names and layouts. Raises ValueError when it is not one, saying why."""
    config = read_config(directory)
    shape = shape_of_config(config)
    eod_token_id = config.get("eos_token_id", config.get("bos_token_id"))
    if not isinstance(eod_token_id, int) or not 0 <= eod_token_id < shape.vocab_size:
        raise ValueError(f"config.json: eos_token_id is {eod_token_id!r}, which is no id below {shape.vocab_size}")
    state = from_hf(read_weights(directory), shape)
    return LoadedModel(
        GptSlots(state, shape, device, dtype), eod_token_id, sum(tensor.numel() for tensor in state.values())
    )
