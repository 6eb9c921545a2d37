"""Random numbers that belong to what they are for, not to who draws them.

Initial weights are drawn from (seed, parameter name). Whether dropout keeps an element is a hash of (seed, step, sample
position, layer, site) and of the element's place in the whole tensor. So every layout and every resume gets the same
numbers, a rank computes its own part alone, and there is no generator state to save.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# The hash is Weyl's sequence (odd multiples of 2**32 over the golden ratio) through the mixer "lowbias32", whose
# constants were found by search for the least bias (C. Wellons, "Prospecting for hash functions", 2018). A second key
# enters between its rounds, so that two sites do not walk through one sequence at two places.
_STEP, _FIRST, _SECOND = 0x9E3779B9, 0x7FEB352D, 0x846CA68B


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b("\0".join(str(part) for part in parts).encode(), digest_size=8).digest()


def normal_parameter(seed: int, name: str, shape: tuple[int, ...], std: float) -> Tensor:
    """The full fp32 tensor of a parameter: normal, mean 0."""
    number = int.from_bytes(_digest(seed, "init", name), "little") >> 1
    return torch.empty(shape).normal_(0.0, std, generator=torch.Generator().manual_seed(number))


@lru_cache(maxsize=8)
def _places(first: int, number: int) -> npt.NDArray[np.uint32]:
    return np.arange(first, first + number, dtype=np.uint32) * np.uint32(_STEP)


def keep_mask(keys: list[tuple[int, int]], first: int, number: int, threshold: int) -> npt.NDArray[np.bool_]:
    """For each pair of 32-bit keys, whether elements [first, first + number) are kept: bool [keys, number].

    An element is dropped with probability threshold / 2**32.
    """
    kept = np.empty((len(keys), number), dtype=np.bool_)
    places = _places(first, number)
    x, shifted = np.empty(number, dtype=np.uint32), np.empty(number, dtype=np.uint32)
    for row, (key, second_key) in enumerate(keys):
        np.add(places, np.uint32(key), out=x)
        np.right_shift(x, np.uint32(16), out=shifted)
        np.bitwise_xor(x, shifted, out=x)
        np.multiply(x, np.uint32(_FIRST), out=x)
        np.bitwise_xor(x, np.uint32(second_key), out=x)
        np.right_shift(x, np.uint32(15), out=shifted)
        np.bitwise_xor(x, shifted, out=x)
        np.multiply(x, np.uint32(_SECOND), out=x)
        np.greater_equal(x, np.uint32(threshold), out=kept[row])
    return kept


def device_keys(keys: list[tuple[int, int]], device: torch.device) -> Tensor:
    """Pairs of 32-bit keys, and the step of Weyl's sequence, as signed words on `device`: int32 [keys, 3].

    The step travels with them because a compiler would fold a constant into index arithmetic and leave 32 bits.
    """
    words = np.array([(*pair, _STEP) for pair in keys], dtype=np.uint32).view(np.int32)
    return torch.from_numpy(words).to(device, non_blocking=True)


def keep_mask_on_device(keys: Tensor, first: int, number: int, threshold: int) -> Tensor:
    """The same mask made where `keys` (of `device_keys`) are, bit for bit, in 32-bit arithmetic that wraps.

    Signed words hold the same bits as unsigned ones; products wrap alike, and shifts are cleared of copies of the sign.
    """
    if first + number <= 2**31:
        places = torch.arange(first, first + number, dtype=torch.int32, device=keys.device)
    else:
        wide = torch.arange(first, first + number, dtype=torch.int64, device=keys.device) & 0xFFFFFFFF
        places = (wide - ((wide & 0x80000000) << 1)).to(torch.int32)
    x = places.unsqueeze(0) * keys[:, 2:] + keys[:, :1]
    x = x ^ ((x >> 16) & 0xFFFF)
    x = (x * _FIRST) ^ keys[:, 1:2]
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * (_SECOND - 2**32)
    # Turning the highest bit makes signed order the order of unsigned words.
    return (x ^ -(2**31)) >= threshold - 2**31


class DropoutContext:
    """Which step and which samples a forward pass belongs to. Evaluation has none."""

    def __init__(self, seed: int = 0, step: int = 0, samples: tuple[int, ...] = ()) -> None:
        """`samples`: global positions of the samples of the micro-batch; empty: no dropout."""
        self.seed, self.step, self.samples = seed, step, samples
        self.is_active = bool(samples)
        self.sites: list[Dropout] = []
        """Each place that drops anything, in the order in which they were made."""

    def begin(self, step: int, samples: tuple[int, ...], device: torch.device) -> None:
        """The next forward pass is that of these samples in this step; no samples: an evaluation.

        On a GPU the keys of all places are made here, once: inside the pass there are only operations on tensors, which
        a compiler can fuse with what stands around them, and nothing in which one layer's code differs from another's.
        """
        self.step, self.samples, self.is_active = step, samples, bool(samples)
        if samples and self.sites and device.type != "cpu":
            keys = device_keys([pair for site in self.sites for pair in site.host_keys()], device)
            for site, part in zip(self.sites, keys.view(len(self.sites), len(samples), 3), strict=True):
                site.keys = part


class Dropout:
    """One place where dropout happens."""

    def __init__(self, context: DropoutContext, layer: int, site: str, probability: float) -> None:
        """`probability`: of an element to be set to zero."""
        self._context, self._layer, self._site, self._probability = context, layer, site, probability
        self._threshold = round(probability * 2**32)
        self.keys: Tensor | None = None
        """int32 [samples, 3] on the device of the pass; none on a CPU, where each place draws its own."""
        if probability > 0:
            context.sites.append(self)

    @property
    def is_active(self) -> bool:
        """Whether this pass drops anything."""
        return self._probability > 0 and self._context.is_active

    def __call__(self, x: Tensor, first: int = 0) -> Tensor:
        """x [batch, ...] with elements dropped and the rest scaled up.

        Where x is one rank's part of a larger tensor, cut in dimension 1, `first` is the index at which it begins.
        """
        if not self.is_active:
            return x
        number = math.prod(x.shape[1:])
        offset = first * math.prod(x.shape[2:])
        if self.keys is None:
            mask = torch.from_numpy(keep_mask(self.host_keys(), offset, number, self._threshold)).to(x.device)
        else:
            mask = keep_mask_on_device(self.keys, offset, number, self._threshold)
        return x * (mask.view(x.shape).to(x.dtype) * (1.0 / (1.0 - self._probability)))

    def host_keys(self) -> list[tuple[int, int]]:
        """Two 32-bit keys for each sample of the pass at this place."""
        context = self._context
        digests = [
            _digest(context.seed, "dropout", context.step, sample, self._layer, self._site)
            for sample in context.samples
        ]
        return [(int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")) for digest in digests]
