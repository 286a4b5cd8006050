"""What a walk brings, answer by answer and in any order, put in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from buildframe.spec import Moment


class Part(NamedTuple):
    """The builds of one response: their table, when each was created, the table of their jobs, and how many each has.

    `number` is the answer's page number; `jobs` is None where they are not wanted.
    """

    builds: pa.Table
    stamps: list[Moment]
    jobs: pa.Table | None
    counts: list[int]
    number: int


def newest_first(parts: Iterable[Part]) -> Iterator[Part]:
    """The same builds, newest first by `created_at`; those of one instant as the service lists them."""
    waiting: list[Part] = []
    for part in sorted((part for part in parts if part.stamps), key=_place):
        if waiting and max(part.stamps) <= min(min(other.stamps) for other in waiting):
            yield _sorted(waiting)
            waiting = []
        waiting.append(part)
    if waiting:
        yield _sorted(waiting)


def _place(part: Part) -> tuple[float, int]:
    return -max(part.stamps).us, part.number


def _sorted(parts: Sequence[Part]) -> Part:
    """Parts whose times overlap, as one that is in order; one that is so already stays as it is."""
    stamps = [stamp for part in parts for stamp in part.stamps]
    if len(parts) == 1 and all(newer >= older for newer, older in itertools.pairwise(stamps)):
        return parts[0]
    order = sorted(range(len(stamps)), key=lambda place: -stamps[place].us)
    counts = [count for part in parts for count in part.counts]
    jobs = [part.jobs for part in parts if part.jobs is not None]
    return Part(
        pa.concat_tables([part.builds for part in parts]).take(order),
        [stamps[place] for place in order],
        pa.concat_tables(jobs).take(_jobs_of(order, counts)) if jobs else None,
        [counts[place] for place in order] if counts else [],
        parts[0].number,
    )


def _jobs_of(order: Sequence[int], counts: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The places of the jobs of builds, when the builds stand in this order."""
    ends = np.cumsum(counts)
    return np.concatenate([np.arange(ends[place] - counts[place], ends[place]) for place in order])
