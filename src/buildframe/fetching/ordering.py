"""Put batches of builds, which arrive in any order, newest first. Does not know requests."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from buildframe.spec import Moment


class Batch(NamedTuple):
    """The new builds of one page: their table, when each was created, the table of their jobs, how many each has.

    `number` is the page number; `jobs` is None if they are not wanted.
    """

    builds: pa.Table
    created: list[Moment]
    jobs: pa.Table | None
    job_counts: list[int]
    number: int


def newest_first(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Return the builds newest first by `created_at`; those with equal timestamps in the service's order."""
    overlapping: list[Batch] = []
    with_rows = [batch for batch in batches if batch.created]
    for batch in sorted(with_rows, key=lambda batch: (-max(batch.created).us, batch.number)):
        if overlapping and max(batch.created) <= min(min(other.created) for other in overlapping):
            yield _merge(overlapping)
            overlapping = []
        overlapping.append(batch)
    if overlapping:
        yield _merge(overlapping)


def _merge(batches: Sequence[Batch]) -> Batch:
    """Merge batches whose times overlap into one that is in order."""
    created = [each for batch in batches for each in batch.created]
    if len(batches) == 1 and all(newer >= older for newer, older in itertools.pairwise(created)):
        return batches[0]
    order = sorted(range(len(created)), key=lambda place: -created[place].us)
    counts = [count for batch in batches for count in batch.job_counts]
    jobs = [batch.jobs for batch in batches if batch.jobs is not None]
    return Batch(
        pa.concat_tables([batch.builds for batch in batches]).take(order),
        [created[place] for place in order],
        pa.concat_tables(jobs).take(_job_order(order, counts)) if jobs else None,
        [counts[place] for place in order] if counts else [],
        batches[0].number,
    )


def _job_order(order: Sequence[int], counts: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the positions of the jobs if their builds are in this order."""
    ends = np.cumsum(counts)
    return np.concatenate([np.arange(ends[place] - counts[place], ends[place]) for place in order])
