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


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a directory. Raises ValueError when there are none: pickled weights are never read."""
    index = directory / INDEX_NAME
    if index.is_file():
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        files = sorted(directory / Path(name).name for name in names)
    else:
        files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{directory} holds no .safetensors file; pickled weights are not read")
    return files


def weight_names(directory: Path) -> set[str]:
    """Names of all tensors of a directory. Raises ValueError for a missing or damaged file."""
    names: set[str] = set()
    for path in weight_files(directory):
        with _opened(path) as stream:
            names |= set(stream.keys())
    return names


def read_weights(directory: Path) -> dict[str, Tensor]:
    """Every tensor of a directory, by name. Raises ValueError for a missing or damaged file."""
    tensors: dict[str, Tensor] = {}
    for path in weight_files(directory):
        with _opened(path) as stream:
            tensors |= {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 - no mapping
    return tensors


def _opened(path: Path) -> Any:
    try:
        return safe_open(str(path), framework="pt")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({error})") from error


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
