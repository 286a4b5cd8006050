"""Durations over time."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from buildframe.arguments import checked_names
from buildframe.errors import BadInput
from buildframe.metrics.buckets import Buckets, filled
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.engines import Frame
from buildframe.metrics.measured import measured
from buildframe.metrics.percentiles import checked, count, quantiles


@checked_names
def trend(
    frame: Frame,
    of: RowMetric | str = wall_time,
    q: float | Sequence[float] = (0.5, 0.95),
    freq: str = "1D",
    tz: str = "UTC",
    at: str = "created_at",
) -> pd.DataFrame:
    """Percentiles of a duration in buckets of time.

    `of` and `q` as in `percentiles`; `freq` is a pandas frequency that names the start of a bucket
    ("1h", "1D", "W-MON", "MS"); `tz` the zone whose midnights they start at, so that a day in which
    the clocks change has 23 or 25 hours; `at` the column of times by which rows fall into buckets.
    Rows without that time are in no bucket. Needs `fetched_at` besides.

    One row a bucket from the first to the last row's, also where there was nothing; columns:
    `bucket` (`datetime64[us, tz]`): its start; the bucket reaches up to the next start, excluded;
    `n`, `n_censored`, `n_negative`, `p50_s`, `p50_low_s`, `p50_high_s`, ... as in `percentiles`;
    `partial` (boolean): not over at the frame's latest `fetched_at`, so more rows may come.
    Whether the first bucket is whole cannot be told from a frame: let its window begin at a midnight of `tz`.

    An empty frame gives these columns and no rows. BadInput as in `percentiles`, and for an unknown
    `tz` or a `freq` that is none.
    """
    q = checked(q, "linear")
    if not isinstance(at, str):
        raise BadInput(f"at={at!r}: give the name of a column of times, such as 'created_at'.")
    found = measured(frame, of, needs=(at, "fetched_at"))
    buckets = Buckets.of(found.frame, [at], freq, tz)
    inside = buckets.number(found, at)
    counts = filled(count(inside), len(buckets))
    summary = pd.concat([counts.sums, quantiles(inside, counts, q, "linear")], axis=1)
    return buckets.beside(summary)
