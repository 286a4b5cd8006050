"""Classify single builds and jobs as failed or passed. Does not group or summarize."""

from __future__ import annotations

from collections.abc import Collection

import narwhals as nw
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import check_is_pandas, typed_column
from buildframe.metrics.durations import BLOCKED
from buildframe.metrics.engines import expressions
from buildframe.metrics.validation import check_states


@checked_names
def failed(frame: pd.DataFrame) -> pd.Series[bool]:
    """
    Return whether each build or job failed.

    Parameters
    ----------
    frame : pandas.DataFrame
        Builds with the column `state`, and `blocked` if known; or jobs with `type`, `state` and `soft_failed`. A frame
        with `type` holds jobs.

    Returns
    -------
    pandas.Series
        `boolean` on the index of the frame: True if the build or job failed, False if it passed, and null otherwise:
        canceled, skipped, unfinished or blocked. A job that timed out failed. A soft failure, and a job that is not a
        script job, are null. An attempt that failed is True also if a retry of it passed; see Notes.

    Raises
    ------
    BadInput
        If a column is missing, or `state` holds states in an unknown spelling.

    See Also
    --------
    change_points : Find when the share of failures changed.
    success_rate : Share of builds that passed.

    Notes
    -----
    Each attempt is judged by itself. `ws.history()` and `include_retried_jobs=True` return all attempts. To find the
    steps that made builds fail, keep only last attempts: `jobs[~jobs["retried"].fillna(False)]`.

    Examples
    --------
    >>> jobs.assign(failed=metrics.failed).groupby("queue")["failed"].mean().round(3)
    queue
    default    0.021
    deploy     0.043
    docker      0.04
    macos      0.006
    Name: failed, dtype: Float64
    """
    check_is_pandas(frame, "row metrics need.")
    check_states(frame, "state")
    needs, wants = outcome_columns(list(frame.columns))
    names = [*needs, *(name for name in wants if name in frame)]
    typed = pd.DataFrame({name: typed_column(frame, name).array for name in names})
    has_failed, is_counted = expressions.outcome(names)
    outcome = nw.from_native(typed, eager_only=True).select(failed=has_failed, counted=is_counted).to_pandas()
    known = outcome["failed"].astype("boolean").where(outcome["counted"].astype(bool))
    return known.set_axis(frame.index)


def outcome_columns(available: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of builds or jobs that show whether they failed: required ones, and those used if present."""
    return (("type", "state", "soft_failed"), ()) if "type" in available else (("state",), BLOCKED)
