"""Compute how often jobs are retried, automatically or manually."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals as nw
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.expressions import has_passed, is_script, is_superseded
from buildframe.metrics.engines.protocol import Frame, GroupedRows, GroupSums
from buildframe.metrics.grouping import By, join_keys
from buildframe.metrics.rates import shares
from buildframe.metrics.validation import check_states

_KINDS = ("automatic", "manual")


@checked_names
def retry_rate(jobs: Frame, by: By = None) -> pd.DataFrame:
    """
    Compute the share of executions that were retried, with Wilson's 95 % interval.

    An execution is a script job that started. A running one counts, because it can still be retried. Jobs that were
    retried without having started, such as expired ones, do not count.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark, fetched with `include_retried_jobs=True` and with
        unique ids. Needs the columns `id`, `type`, `state`, `started_at`, `retried`, `retried_in_job_id` and
        `retry_type`.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. A retry counts in the group of the job that was retried. By
        default all rows form one group.

    Returns
    -------
    pandas.DataFrame
        One row per group with script jobs, ordered by key. An empty frame gives no rows. After the keys:

        =============== ======= ==================================================================
        executions      Int64   script jobs that started
        retried         Int64   executions that another attempt replaced
        retried_passed  Int64   retried executions that had passed
        automatic       Int64   retried executions whose replacement was automatic
        manual          Int64   retried executions whose replacement was started manually
        of_unknown_kind Int64   retried executions whose replacement is not in the frame, or has
                                no such `retry_type`
        rate            float64 `retried / executions`; NaN without executions
        low, high       float64 Wilson's 95 % interval of `rate`
        automatic_rate  float64 `automatic / executions`; NaN without executions
        manual_rate     float64 `manual / executions`; NaN without executions
        =============== ======= ==================================================================

    Raises
    ------
    BadInput
        If a column is missing, or `state` holds states in an unknown spelling.

    See Also
    --------
    flips : Steps that both failed and passed at one commit.

    Notes
    -----
    The retry rate is not a failure rate, because a job that passed can be retried, too. The kind of a retry is the
    `retry_type` of the job whose `id` equals `retried_in_job_id`.

    Examples
    --------
    >>> metrics.retry_rate(jobs, by="queue")[["queue", "executions", "retried", "rate"]].round(3)
         queue  executions  retried   rate
    0  default        2286       15  0.007
    1   deploy          46        0  0.000
    2   docker         156        3  0.019
    3    macos         170        2  0.012
    """
    check_states(jobs, "state")
    engine = engine_of(jobs)
    rows = engine.group_rows(jobs, ("type", "state", "started_at", "retried", "retried_in_job_id"), by)
    rows = engine.filter_groups(rows, is_script())
    execution = ~nw.col("started_at").is_null()
    retried = execution & is_superseded()
    counts = engine.group_sums(rows, executions=execution, retried=retried, retried_passed=retried & has_passed())
    kinds = _count_kinds(replace(rows, frame=rows.frame.filter(retried)), _select_replacements(jobs))
    return join_keys(counts.keys, _with_rates(pd.concat([counts.sums, counts.align(kinds)], axis=1)))


def _select_replacements(jobs: Frame) -> nw.LazyFrame[Any]:
    """Return the replacement jobs: their id as `replacing`, once each, and a flag per kind of retry."""
    attempts = engine_of(jobs).select_columns(jobs, ("id", "retry_type")).filter(nw.col("retry_type").is_in(_KINDS))
    kinds = {kind: nw.col("retry_type") == kind for kind in _KINDS}  # flags join faster than texts
    return attempts.select(replacing=_as_text("id"), **kinds).unique("replacing", keep="any")


def _count_kinds(retried: GroupedRows, replacing: nw.LazyFrame[Any]) -> GroupSums:
    """Count retried executions by kind; joins only those, because a join of all jobs is slow."""
    keyed = retried.frame.with_columns(replacing=_as_text("retried_in_job_id"))
    joined = keyed.join(replacing, on="replacing", how="inner")
    return retried.engine.group_sums(replace(retried, frame=joined), **{kind: nw.col(kind) for kind in _KINDS})


def _as_text(name: str) -> nw.Expr:
    """Cast to text: in some engines a column of nulls has no type and does not join with texts."""
    return nw.col(name).cast(nw.String)


def _with_rates(counts: pd.DataFrame) -> pd.DataFrame:
    unknown = counts["retried"] - counts["automatic"] - counts["manual"]
    parts = {f"{kind}_rate": shares(counts[kind], counts["executions"])["rate"] for kind in _KINDS}
    rate = shares(counts["retried"], counts["executions"])
    return pd.concat([counts.assign(of_unknown_kind=unknown), rate], axis=1).assign(**parts)
