"""Tensors on disk: safetensors files of slices, each with its place in the global tensor.

A rank writes the slices that it alone has, or that it has first; a reader of any layout puts together what it needs.
Nothing in them is code, the bytes are the same in every run, and type and shape are checked when they are read.
(Formats that pickle their index load flipped bytes, other types and missing keys without a word.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from trainer.metrics import ExitCode, TrainError


@dataclass(frozen=True)
class Slice:
    """A rank's part of a global tensor: rows [start, stop) of dimension `dim` (None: the whole)."""

    global_shape: tuple[int, ...]
    dim: int | None = None
    start: int = 0
    stop: int = 0

    def bounds(self) -> tuple[int, int]:
        """[start, stop) of the dimension that is cut; of dimension 0 for a whole tensor (0 and 1 for a scalar)."""
        if self.dim is not None:
            return self.start, self.stop
        return 0, self.global_shape[0] if self.global_shape else 1


def write_shard(path: Path, tensors: Mapping[str, Tensor], slices: Mapping[str, Slice]) -> None:
    """Write this rank's slices. The header says where each belongs."""
    places = {
        name: {"shape": list(slices[name].global_shape), "dim": slices[name].dim, "start": slices[name].start,
               "stop": slices[name].stop}
        for name in tensors
    }  # fmt: skip
    ordered = {name: tensors[name].detach().to("cpu").contiguous() for name in sorted(tensors)}
    # One entry alone: safetensors keeps them in a hash map, whose order is another one in each process.
    save_file(ordered, str(path), metadata={"slices": json.dumps(places, sort_keys=True)})


@dataclass(frozen=True)
class _Source:
    path: Path
    place: Slice


class ShardReader:
    """Reads any slice of any tensor of a folder of shard files."""

    def __init__(self, folder: Path) -> None:
        """Raises TrainError (bad checkpoint) when a file cannot be read."""
        self._sources: dict[str, list[_Source]] = {}
        for path in sorted(folder.glob("*.safetensors")):
            try:
                with safe_open(str(path), framework="pt") as stream:
                    places = json.loads((stream.metadata() or {})["slices"])
            except (SafetensorError, OSError, KeyError, ValueError) as error:
                raise TrainError(f"{path} cannot be read ({error})", exit_code=ExitCode.BAD_CHECKPOINT) from error
            for name, place in places.items():
                where = Slice(tuple(place["shape"]), place["dim"], place["start"], place["stop"])
                self._sources.setdefault(name, []).append(_Source(path, where))
        if not self._sources:
            raise TrainError(f"{folder} holds no tensors", exit_code=ExitCode.BAD_CHECKPOINT)

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._sources)

    def shape(self, name: str) -> tuple[int, ...]:
        """Global shape of a tensor. Raises TrainError when there is no such tensor."""
        return self._of(name)[0].place.global_shape

    def _of(self, name: str) -> list[_Source]:
        if name not in self._sources:
            raise TrainError(f"the checkpoint has no tensor {name!r}", exit_code=ExitCode.BAD_CHECKPOINT)
        return self._sources[name]

    def full(self, name: str) -> Tensor:
        """The global tensor. Raises TrainError when a part of it is missing."""
        shape = self.shape(name)
        return self.read(name, Slice(shape))

    def read(self, name: str, wanted: Slice) -> Tensor:
        """The wanted slice. Raises TrainError when the shapes differ or a part of it is missing."""
        sources = self._of(name)
        shape = sources[0].place.global_shape
        if shape != wanted.global_shape:
            message = f"{name} has shape {list(shape)} in the checkpoint and {list(wanted.global_shape)} in the model"
            raise TrainError(message, exit_code=ExitCode.BAD_CHECKPOINT)
        dim = (
            wanted.dim if wanted.dim is not None else next((s.place.dim for s in sources if s.place.dim is not None), 0)
        )
        start, stop = wanted.bounds() if wanted.dim is not None else (0, shape[dim] if shape else 1)
        pieces, place = [], start
        for first, last, source in sorted(self._ranges(sources, dim, shape), key=lambda item: item[0]):
            if last <= place or place >= stop:
                continue
            if first > place:
                break
            end = min(last, stop)
            pieces.append(self._piece(source, name, dim, place - first, end - first))
            place = end
        if place < stop:
            raise TrainError(f"{name}: rows {place} to {stop} are missing", exit_code=ExitCode.BAD_CHECKPOINT)
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim)

    @staticmethod
    def _ranges(sources: list[_Source], dim: int, shape: tuple[int, ...]) -> Iterator[tuple[int, int, _Source]]:
        for source in sources:
            if source.place.dim is None or not shape:
                yield 0, shape[dim] if shape else 1, source
            elif source.place.dim == dim:
                yield source.place.start, source.place.stop, source

    @staticmethod
    def _piece(source: _Source, name: str, dim: int, start: int, stop: int) -> Tensor:
        with safe_open(str(source.path), framework="pt") as stream:
            part = stream.get_slice(name)
            shape = part.get_shape()
            if not shape:
                return stream.get_tensor(name)
            index = tuple(slice(start, stop) if axis == dim else slice(None) for axis in range(len(shape)))
            tensor: Tensor = part[index]
            return tensor
