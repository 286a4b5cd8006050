"""Describe the files of a table version in few bytes, so that a lost log entry is noticed. Does not read any file.

A log entry can be empty or missing, as after a partial copy. Delta then ignores it: rows that it added are gone, and
rows that it removed come back.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from buildframe.store.delta import DataFile

_MAX_FILES = 18  # of a day among which those of a checksum are searched: 2 ** 18 combinations
_MODULUS = 2**32
_PAIRS = np.dtype("<u4")


@dataclass(frozen=True)
class TableContents:
    """Number of rows and files of a table version, and a checksum of the paths for each day.

    `days` holds pairs of 32-bit integers: the ordinal of the day, 0 if it is null, and the sum of the CRC-32 of the
    paths. It takes 11 characters in the log for each day. Paths are unique, so equal sums mean equal files.
    """

    rows: int
    files: int
    days: bytes

    @classmethod
    def of(cls, files: Sequence[DataFile]) -> Self:
        """Describe these files."""
        sums: defaultdict[int, int] = defaultdict(int)
        for file in files:
            sums[_ordinal(file.day)] += zlib.crc32(file.path.encode())
        pairs = [(day, total % _MODULUS) for day, total in sorted(sums.items())]
        return cls(sum(file.rows or 0 for file in files), len(files), np.array(pairs, _PAIRS).tobytes())

    def differing_days(self, other: TableContents) -> list[str | None]:
        """Return the days whose files differ, null first."""
        mine, others = self._checksums(), other._checksums()
        return [_day(day) for day in sorted({*mine, *others}) if mine.get(day) != others.get(day)]

    def select(self, day: str | None, paths: Iterable[str]) -> list[str] | None:
        """Return those of the paths that are the files of a day; None if some of its files are not among them."""
        candidates = [*paths][:_MAX_FILES]
        sums = [0]
        for path in candidates:  # bit n of an index says whether path n is in the sum
            checksum = zlib.crc32(path.encode())
            sums += [(total + checksum) % _MODULUS for total in sums]
        wanted = self._checksums().get(_ordinal(day), 0)
        if wanted not in sums:
            return None
        index = sums.index(wanted)
        return [path for position, path in enumerate(candidates) if index >> position & 1]

    def _checksums(self) -> dict[int, int]:
        pairs = np.frombuffer(self.days, _PAIRS).reshape(-1, 2)
        return {int(day): int(total) for day, total in pairs}


def _ordinal(day: str | None) -> int:
    return 0 if day is None else dt.date.fromisoformat(day).toordinal()


def _day(ordinal: int) -> str | None:
    return None if ordinal == 0 else dt.date.fromordinal(ordinal).isoformat()
