"""Describe the files of a table version in few bytes, so that a lost log entry is noticed. Does not read any file.

A log entry can be empty or missing, as after a partial copy. Delta then ignores it: rows that it added are gone, and
rows that it removed come back.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from buildframe.store.delta import DataFile

_MAX_FILES = 18  # of a day of which all combinations are compared; of more, as many combinations
_MODULUS = 2**32
_PAIRS = np.dtype("<u4")
_BYTES_PER_DAY = 2 * _PAIRS.itemsize
_LAST_DAY = dt.date.max.toordinal()


@dataclass(frozen=True)
class TableContents:
    """Number of rows and files of a table version, and checksums of the paths for each day and of the columns.

    `days` holds pairs of 32-bit integers: the ordinal of the day, 0 if it is null, and the sum of the CRC-32 of the
    paths. It takes 11 characters in the log for each day. Paths are unique, so equal sums mean equal files.
    `columns` holds the number of columns, and the CRC-32 of their names and types. A table can have more columns later.
    Earlier versions of the package did not write it.
    """

    rows: int
    files: int
    days: bytes
    columns: tuple[int, int] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, files: Sequence[DataFile], columns: Sequence[str] | None = None) -> Self:
        """Describe these files, and these names and types of columns."""
        sums: defaultdict[int, int] = defaultdict(int)
        for file in files:
            sums[_ordinal(file.day)] += zlib.crc32(file.path.encode())
        pairs = [(day, total % _MODULUS) for day, total in sorted(sums.items())]
        days = np.array(pairs, _PAIRS).tobytes()
        described = None if columns is None else (len(columns), _checksum(columns))
        return cls(sum(file.rows or 0 for file in files), len(files), days, described)

    def has_columns(self, columns: Sequence[str]) -> bool:
        """Whether these columns begin with the recorded ones."""
        return self.columns is None or self.columns == (self.columns[0], _checksum(columns[: self.columns[0]]))

    def check_ranges(self) -> None:
        """Raise ValueError for numbers that no commit writes."""
        if len(self.days) % _BYTES_PER_DAY or min(self.rows, self.files, *(self.columns or ())) < 0:
            raise ValueError("the description of a table has another shape")
        if max(self._checksums(), default=0) > _LAST_DAY:
            raise ValueError("a day is out of range")

    def differing_days(self, other: TableContents) -> list[str | None]:
        """Return the days whose files differ, null first."""
        mine, others = self._checksums(), other._checksums()
        return [_day(day) for day in sorted({*mine, *others}) if mine.get(day) != others.get(day)]

    def select(self, day: str | None, own: Sequence[str], unlisted: Sequence[str]) -> list[str] | None:
        """Return those of the paths that are the files of a day; None if some of its files are not among them.

        `own` are the listed paths, and `unlisted` others, newest first. Of few paths, all combinations are compared. Of
        many, those that differ little from what one lost entry leaves: it added or removed all or none of a kind.
        """
        wanted, paths = self._checksums().get(_ordinal(day), 0), [*own, *unlisted]
        if len(paths) <= _MAX_FILES:
            return _subset(wanted, paths)
        for base in (paths, own, unlisted, ()):
            found = _similar(wanted, base, paths)
            if found is not None:
                return found
        added = _subset(wanted - _sum(own), unlisted[:_MAX_FILES])
        return None if added is None else [*own, *added]

    def _checksums(self) -> dict[int, int]:
        pairs = np.frombuffer(self.days, _PAIRS).reshape(-1, 2)
        return {int(day): int(total) for day, total in pairs}


def _checksum(columns: Sequence[str]) -> int:
    return zlib.crc32("\n".join(columns).encode())


def _sum(paths: Iterable[str]) -> int:
    return sum(zlib.crc32(path.encode()) for path in paths)


def _subset(wanted: int, paths: Sequence[str]) -> list[str] | None:
    """Return the paths that have this sum; None if no combination has it."""
    sums = [0]
    for path in paths:  # bit n of an index says whether path n is in the sum
        checksum = zlib.crc32(path.encode())
        sums += [(total + checksum) % _MODULUS for total in sums]
    try:
        index = sums.index(wanted % _MODULUS)
    except ValueError:
        return None
    return [path for position, path in enumerate(paths) if index >> position & 1]


def _similar(wanted: int, base: Collection[str], paths: Sequence[str]) -> list[str] | None:
    """Return the paths that have this sum, if they are `base` with few added or removed."""
    missing, included = wanted - _sum(base), {*base}
    changes = [_sum([path]) * (-1 if path in included else 1) for path in paths]
    compared = 0
    for size in range(len(paths) + 1):
        compared += math.comb(len(paths), size)
        if compared > 2**_MAX_FILES:
            return None
        for changed in itertools.combinations(range(len(paths)), size):
            if (missing - sum(changes[position] for position in changed)) % _MODULUS == 0:
                toggled = {paths[position] for position in changed}
                return [path for path in paths if path in included ^ toggled]
    return None


def _ordinal(day: str | None) -> int:
    return 0 if day is None else dt.date.fromisoformat(day).toordinal()


def _day(ordinal: int) -> str | None:
    return None if ordinal == 0 else dt.date.fromordinal(ordinal).isoformat()
