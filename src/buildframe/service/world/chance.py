"""Chance without a generator's state: each draw is a hash of the seed and of what is drawn for."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeVar

T = TypeVar("T")
Key = str | int

_NORMAL = NormalDist()


class Chance:
    """Draws that depend on the seed and a key alone, so that nothing but the seed is ever stored."""

    def __init__(self, seed: int) -> None:
        self._seed = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()

    def _digest(self, size: int, key: tuple[Key, ...]) -> bytes:
        return hashlib.blake2b("\x1f".join(map(str, key)).encode(), digest_size=size, key=self._seed).digest()

    def number(self, *key: Key) -> float:
        """Uniform, at least 0 and below 1."""
        return (int.from_bytes(self._digest(8, key), "big") >> 11) * 2.0**-53

    def happens(self, probability: float, *key: Key) -> bool:
        """Whether something of this probability happens."""
        return self.number(*key) < probability

    def pick(self, options: Sequence[T], *key: Key) -> T:
        """One of the options, all equally likely."""
        return options[int(self.number(*key) * len(options))]

    def between(self, low: float, high: float, *key: Key) -> float:
        """Uniform between two bounds."""
        return low + (high - low) * self.number(*key)

    def around(self, median: float, spread: float, *key: Key) -> float:
        """Log-normal: half of the draws lie below `median`."""
        uniform = min(max(self.number(*key), 1e-9), 1 - 1e-9)
        return median * math.exp(spread * _NORMAL.inv_cdf(uniform))

    def gap(self, mean: float, *key: Key) -> float:
        """Exponential: the time until the next of events that come at random."""
        return -mean * math.log(1.0 - self.number(*key))

    def uuid(self, *key: Key) -> str:
        """A UUID of version 4."""
        digits = self._digest(16, key).hex()
        variant = "89ab"[int(digits[16], 16) % 4]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"

    def sha(self, *key: Key) -> str:
        """A commit's SHA of 40 digits."""
        return self._digest(20, key).hex()
