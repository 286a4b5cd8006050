"""Say when jobs ended and whether they are under way, by one rule.

A job is over if it has `finished_at`, if its `state` says so, or if it has expired. Its end is the
first known of `finished_at`, `expired_at` and the end of its build. If none is known, it is over at
an unknown time: it neither runs nor waits any more, and its duration is unknown. Knows single jobs;
does not group or summarize.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from buildframe.metrics.columns import TIMESTAMP, column, timestamps, typed_column
from buildframe.spec.jobs import OVER_STATES

STAMPS = ("finished_at", "expired_at", "build_finished_at", "fetched_at")
COLUMNS = (*STAMPS, "state")
"""Columns that the rule reads.

Each may be missing, as in frames of older versions, and then counts as null.
"""

IS_OVER = "is over"
"""Column that `with_ends` adds: whether the job is over."""

SEEN_UNTIL = "seen until"
"""Column that `with_ends` adds: when the job ended, or was fetched if it is under way; or null."""


def with_ends(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return jobs with `IS_OVER` and `SEEN_UNTIL`, and with their ends as `finished_at`.

    Few jobs have no `finished_at`, and only these are examined.
    """
    names = [name for name in COLUMNS if name in jobs]
    if "finished_at" in names:
        finished = timestamps(jobs, "finished_at")
    else:
        finished = pd.Series(pd.NaT, jobs.index, dtype=TIMESTAMP)
    rows = np.flatnonzero(finished.isna())
    is_job_over = np.ones(len(jobs), np.bool_)
    ended: Any = finished.array.copy()
    seen: Any = finished.array.copy()
    if len(rows) and {*names} & {*STAMPS}:
        examined = _examine(jobs, names, rows)
        ended[rows] = examined["ended"].array
        seen[rows] = examined["seen"].array
        is_job_over[rows] = examined["over"].to_numpy(np.bool_)
    else:
        is_job_over[rows] = False
    added: dict[str, Any] = {IS_OVER: is_job_over, SEEN_UNTIL: seen}
    if "finished_at" in names:
        added["finished_at"] = ended
    return jobs.assign(**added)


def end_times(jobs: pd.DataFrame) -> pd.Series[pd.Timestamp]:
    """Return when each job ended; NaT if it is under way or that is unknown."""
    column(jobs, "finished_at")  # raises BadInput if it is missing
    ends: pd.Series[pd.Timestamp] = with_ends(jobs[[name for name in COLUMNS if name in jobs]])["finished_at"]
    return ends


def _examine(jobs: pd.DataFrame, names: Collection[str], rows: Any) -> pd.DataFrame:
    """Return whether these jobs without `finished_at` are over, when they ended, and until when they were seen."""
    chosen = jobs[[*names]].take(rows)
    table = pd.DataFrame({name: typed_column(chosen, name).array for name in names})
    unknown = pd.Series(pd.NaT, table.index, dtype=TIMESTAMP)
    expired, build_ended, fetched = (
        table.get(name, unknown) for name in ("expired_at", "build_finished_at", "fetched_at")
    )
    over = table["state"].isin(OVER_STATES) if "state" in table else pd.Series(False, table.index)
    over |= expired.notna() & ~(expired > fetched)  # a later time says when the job is going to expire
    ended = expired.fillna(build_ended).where(over)
    return pd.DataFrame({"over": over, "ended": ended, "seen": ended.fillna(fetched.mask(over))})
