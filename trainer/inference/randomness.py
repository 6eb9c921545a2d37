"""Random numbers that depend on (seed, position) alone: nothing to keep, nothing shared between rows of a batch.

The mixing function is the output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014), applied twice so that neighbouring seeds and neighbouring positions are unrelated.
"""

from __future__ import annotations

MASK = 2**64 - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15
MANTISSA_BITS = 53


def mix(value: int) -> int:
    """A bijection of 64-bit integers in which every input bit moves about half of the output bits."""
    value &= MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) on a grid of 2^-53 for the draw at `position` (0, 1, 2 ...) of the stream `seed`."""
    start = mix(seed + GOLDEN_GAMMA)
    return (mix(start + (position + 1) * GOLDEN_GAMMA) >> (64 - MANTISSA_BITS)) * 2.0**-MANTISSA_BITS
