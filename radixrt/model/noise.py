"""Sampling noise as a pure function, so that nothing random has to be kept with a request."""

from __future__ import annotations

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in [0, 1), a multiple of 2**-53, that depends on nothing but its arguments.

    The three numbers are absorbed one after another by SplitMix64's step (Steele, Lea and Flood 2014, figure 16): add
    the golden gamma, mix. Equal on every platform.
    """
    state = 0
    for word in (seed, choice, position):
        state = _mix(((state ^ (word & _MASK)) + _GOLDEN) & _MASK)
    return (state >> 11) * 2.0**-53


def _mix(word: int) -> int:
    """SplitMix64's finaliser: a bijection on 64 bits in which every input bit reaches every output bit."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)
