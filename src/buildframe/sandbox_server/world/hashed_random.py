"""Stateless random numbers: each draw is a hash of the seed and a key."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeVar

T = TypeVar("T")
Key = str | int

_NORMAL = NormalDist()
_NUMBER = struct.Struct(">Q")
_JOINED = tuple("\x1f".join(["%s"] * parts) for parts in range(10))
"""Formats of keys by their number of parts: twice as fast as to join their texts."""


class SeededRandom:
    """Draws that depend on the seed and a key only, so that no generator state is stored."""

    def __init__(self, seed: int) -> None:
        own = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
        self._number, self._uuid, self._sha = (hashlib.blake2b(digest_size=size, key=own) for size in (8, 16, 20))

    def uniform(self, *key: Key) -> float:
        """Return a uniform number of at least 0 and below 1."""
        return self._draw(key)

    def _draw(self, key: tuple[Key, ...]) -> float:
        hash = self._number.copy()  # half the time of a new one
        hash.update((_JOINED[len(key)] % key).encode())
        number: int = _NUMBER.unpack(hash.digest())[0]
        return (number >> 11) * 2.0**-53

    def happens(self, probability: float, *key: Key) -> bool:
        """Return True with a probability."""
        return self._draw(key) < probability

    def choice(self, options: Sequence[T], *key: Key) -> T:
        """Return one of the options, all equally likely."""
        return options[int(self._draw(key) * len(options))]

    def uniform_between(self, low: float, high: float, *key: Key) -> float:
        """Return a uniform number between two bounds."""
        return low + (high - low) * self._draw(key)

    def lognormal(self, median: float, spread: float, *key: Key) -> float:
        """Return a log-normal number with a median; `spread` is the standard deviation of its logarithm."""
        uniform = min(max(self._draw(key), 1e-9), 1 - 1e-9)
        return median * math.exp(spread * _NORMAL.inv_cdf(uniform))

    def exponential(self, mean: float, *key: Key) -> float:
        """Return an exponential number: the time until the next event of a Poisson process."""
        return -mean * math.log(1.0 - self._draw(key))

    def uuid(self, *key: Key) -> str:
        """Return a UUID of version 4."""
        digits = _hex_digest(self._uuid, key)
        variant = "89ab"[int(digits[16], 16) % 4]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"

    def sha(self, *key: Key) -> str:
        """Return the SHA of a commit: 40 hex digits."""
        return _hex_digest(self._sha, key)


def _hex_digest(hash: hashlib.blake2b, key: tuple[Key, ...]) -> str:
    own = hash.copy()
    own.update((_JOINED[len(key)] % key).encode())
    return own.hexdigest()
