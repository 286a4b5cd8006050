"""How often executions are run again, and on whose account."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals as nw
import pandas as pd

from buildframe.arguments import checked_names
from buildframe.metrics.engines import Frame, Rows, Tally, rows, tally
from buildframe.metrics.groups import By, beside
from buildframe.metrics.outcomes import has_passed, is_script, is_superseded
from buildframe.metrics.rates import shares
from buildframe.metrics.states import check_states

_KINDS = ("automatic", "manual")


@checked_names
def retry_rate(jobs: Frame, by: By = None) -> pd.DataFrame:
    """Executions that were retried among all executions: `retried` / `executions`, with the Wilson 95 % interval.

    An execution is a script job that started; one that still runs counts, and can be retried yet. Jobs that were
    retried without having started (expired, say) are in neither. It was retried where `retried` says so; that is no
    rate of failure, since one may retry what passed. The kind of a retry is told by the job that took the place: the
    `retry_type` of the one whose `id` is the `retried_in_job_id`. Fetch with `include_retried_jobs=True`, or there is
    nothing to count. Each row counts: drop duplicates by `id` first. `by` as in `percentiles`, told by the job that was
    retried. Needs `id`, `type`, `state`, `started_at`, `retried`, `retried_in_job_id`, `retry_type`.

    One row a group that has script jobs, ordered by key; columns: the keys, then
    `executions`, `retried` (Int64);
    `retried_passed` (Int64): those of `retried` that had passed;
    `automatic`, `manual`, `of_unknown_kind` (Int64): `retried` by kind; unknown where the frame lacks the job that took
    the place, or this has no such `retry_type`;
    `rate`, `low`, `high` (float64 between 0 and 1; NaN where there are no executions);
    `automatic_rate`, `manual_rate` (float64): `automatic` and `manual` / `executions`.
    An empty frame gives these columns and no rows. BadInput: a missing column.
    """
    check_states(jobs, "state")
    found = rows(jobs, ("type", "state", "started_at", "retried", "retried_in_job_id"), by).those(is_script())
    execution = ~nw.col("started_at").is_null()
    retried = execution & is_superseded()
    counted = tally(found, executions=execution, retried=retried, retried_passed=retried & has_passed())
    kinds = _kinds(replace(found, frame=found.frame.filter(retried)), _replacing(jobs))
    return beside(counted.keys, _rates(pd.concat([counted.sums, _beside(counted, kinds)], axis=1)))


def _replacing(jobs: Frame) -> nw.LazyFrame[Any]:
    """The jobs that took the place of others: `replacing` (their id, each once) and a flag for each kind."""
    attempts = rows(jobs, ("id", "retry_type")).frame.filter(nw.col("retry_type").is_in(_KINDS))
    kinds = {kind: nw.col("retry_type") == kind for kind in _KINDS}  # which move faster than their names
    return attempts.select(replacing=_text("id"), **kinds).unique("replacing", keep="any")


def _kinds(retried: Rows, replacing: nw.LazyFrame[Any]) -> Tally:
    """The kinds of the few executions that were retried: a join of all is dear."""
    joined = retried.frame.with_columns(replacing=_text("retried_in_job_id")).join(
        replacing, on="replacing", how="inner"
    )
    return tally(replace(retried, frame=joined), **{kind: nw.col(kind) for kind in _KINDS})


def _beside(counted: Tally, kinds: Tally) -> pd.DataFrame:
    """The kinds of each group, 0 where nothing in it was retried."""
    known = pd.concat([kinds.groups, kinds.sums], axis=1)
    whole = counted.groups.merge(known, how="left", on=list(counted.groups.columns))
    return whole[list(_KINDS)].fillna(0).astype("Int64")


def _text(name: str) -> nw.Expr:
    """A column of nulls has no type of its own in some engines, and joins with no texts."""
    return nw.col(name).cast(nw.String)


def _rates(counts: pd.DataFrame) -> pd.DataFrame:
    unknown = counts["retried"] - counts["automatic"] - counts["manual"]
    parts = {f"{kind}_rate": shares(counts[kind], counts["executions"])["rate"] for kind in _KINDS}
    whole = shares(counts["retried"], counts["executions"])
    return pd.concat([counts.assign(of_unknown_kind=unknown), whole], axis=1).assign(**parts)
