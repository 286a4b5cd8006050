"""Compute how often jobs are retried, and decide which kind of retry made each attempt.

The rule is that of `buildframe.spec.job_columns`: a new attempt says it in its `retry_source`. If
it does not, the attempt that its retry replaced says it in its `retry_type`. The `retry_type` of an
attempt says nothing about its own origin. Fetched frames have the result as `retry_of_type`; for
other frames it is derived here.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics import spark_frames
from buildframe.metrics.columns import TEXT, Integers, require_columns
from buildframe.metrics.durations import is_script
from buildframe.metrics.group_summaries import spark_keys, summarize_groups
from buildframe.metrics.grouping import By, join_keys
from buildframe.metrics.input_frames import Frame, column_names, is_spark, read_rows
from buildframe.metrics.measured_rows import to_numbers
from buildframe.metrics.rates import rate_columns, shares
from buildframe.metrics.row_flags import equals, is_set
from buildframe.metrics.span_sums import sum_by_span
from buildframe.metrics.validation import check_states
from buildframe.spec.job_columns import compute_in_frame

ATTEMPT = "retry_of_job_id"
KIND = "retry_of_type"

COLUMNS = (ATTEMPT, KIND, "retry_source", "retry_type")
"""Columns of jobs that say how they were retried, besides `retried_in_job_id`.

Each may be missing.
"""

KINDS = ("automatic", "manual")

_SOURCES = (KIND, "retry_source")
"""Columns in which a new attempt states the kind of retry that made it."""

# Single quotes are those of a dict in a custom frame, which was converted to text.
_KIND_IN_SOURCE = rf"""["']retry_type["']: *["']({"|".join(KINDS)})["']"""

_NUMBER = "number of the kind"
_UNKNOWN = -1
"""Stands for a kind that is not one of `KINDS`, which are numbered."""

_NEEDS = ["id", "type", "state", "started_at", "retried", "retried_in_job_id"]
_FLAGS = ["executions", "retried", "retried_passed", *KINDS]

KindsByJob = Mapping[str, "pd.Series[int]"]
"""For a column of retried jobs, the number of the kind of retry by its values."""


@checked_names
def retry_rate(jobs: Frame, by: By = None) -> pd.DataFrame:
    """
    Compute the share of executions that were retried, with a 95 % interval.

    An execution is a script job that started. A running one counts, because it can still be
    retried. Jobs that were retried without having started, such as expired ones, do not count.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark, fetched with
        `include_retried_jobs=True` and with unique ids. Needs the columns `id`, `type`, `state`,
        `started_at`, `retried` and `retried_in_job_id`, and at least one of `retry_of_type`,
        `retry_source` and `retry_type`. Uses `retry_of_job_id`.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. A retry counts in the group of the job
        that was retried. By default all rows form one group.

    Returns
    -------
    pandas.DataFrame
        One row per group with script jobs, ordered by key. An empty frame gives no rows. After the
        keys:

        =============== ======= ==================================================================
        executions      Int64   script jobs that started
        retried         Int64   executions that another attempt replaced
        retried_passed  Int64   retried executions that had passed
        automatic       Int64   retried executions whose replacement was automatic
        manual          Int64   retried executions whose replacement was started manually
        of_unknown_kind Int64   retried executions of which no column says the kind of retry
        rate            float64 `retried / executions`; NaN without executions
        low, high       float64 95 % interval of `rate`; NaN if too little is known, see
                                `success_rate`
        n_effective     float64 number of independent executions with the same information; NaN as
                                the interval
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
    success_rate : How intervals are computed.

    Notes
    -----
    The retry rate is not a failure rate, because a job that passed can be retried, too.

    The new attempt says which kind of retry made it: in `retry_of_type`, or in the JSON of
    `retry_source`. It is the job whose `id` equals `retried_in_job_id`, or whose `retry_of_job_id`
    equals `id`. If it is not in the frame or says nothing, the kind is the `retry_type` of the
    execution that was retried. On Spark the new attempts, with some 100 bytes each, are collected
    and sent to all workers.

    Examples
    --------
    >>> metrics.retry_rate(jobs, by="queue")[["queue", "executions", "retried", "rate"]].round(3)
         queue  executions  retried   rate
    0  default        2270       26  0.011
    1   deploy          46        1  0.022
    2   docker         151        3  0.020
    3    macos         161        0  0.000
    """
    check_states(jobs, "state")
    check_have_kinds(column_names(jobs))
    by = spark_keys(jobs, by)
    kinds = _read_kinds(jobs)
    return summarize_groups(jobs, functools.partial(_retry_rate, by, kinds), by)


def _retry_rate(by: By, kinds: KindsByJob, jobs: Frame) -> pd.DataFrame:
    rows = read_rows(jobs, functools.partial(_flag_scripts, kinds), _NEEDS, ["retry_type"], by)
    flags = {name: rows.columns[name].to_numpy(bool) for name in _FLAGS}
    counted = sum_by_span(rows, "started_at", flags, ["executions"])
    counts = counted.sums
    of_unknown_kind = counts["retried"] - counts["automatic"] - counts["manual"]
    rates = rate_columns(counted, "retried", ["executions"])
    rates_of_kinds = {f"{kind}_rate": shares(counts[kind], counts["executions"]) for kind in KINDS}
    summary = pd.concat([counts.assign(of_unknown_kind=of_unknown_kind), rates], axis=1)
    return join_keys(rows.keys, summary.assign(**rates_of_kinds))


def _flag_scripts(kinds: KindsByJob, jobs: pd.DataFrame) -> pd.DataFrame:
    """Return which script jobs started, which of these were retried, and by which kind of retry."""
    scripts = is_script(jobs)
    executions = scripts.to_numpy() & jobs["started_at"].notna().to_numpy()
    retried = executions & is_set(jobs, "retried")
    kind = np.full(len(jobs), _UNKNOWN)
    kind[retried] = _find_kinds(kinds, jobs.take(np.flatnonzero(retried)))
    flags = {
        "executions": executions,
        "retried": retried,
        "retried_passed": retried & equals(jobs, "state", "passed"),
    }
    flags |= {name: kind == number for number, name in enumerate(KINDS)}
    times = {"started_at": to_numbers(jobs["started_at"])}
    return pd.DataFrame(flags | times, jobs.index)[scripts]


def _find_kinds(kinds: KindsByJob, retried: pd.DataFrame) -> Integers:
    """Return the kind of retry that replaced each job, as the new attempt says, or else the job."""
    found = np.full(len(retried), _UNKNOWN)
    for name, numbers in kinds.items():
        stated = numbers.reindex(retried[name], fill_value=_UNKNOWN).to_numpy()
        found = np.where(found == _UNKNOWN, stated, found)
    if "retry_type" in retried:
        found = np.where(found == _UNKNOWN, _number_kinds(retried["retry_type"]), found)
    return found


def _read_kinds(jobs: Frame) -> KindsByJob:
    """Return the kinds of retries that new attempts state, by the columns that link to these."""
    names = column_names(jobs)
    sources = [name for name in _SOURCES if name in names]
    if not sources:
        return {}
    if is_spark(jobs):  # a worker sees only one group, and the new attempt may be in another one
        is_stated = " OR ".join(f"{name} IS NOT NULL" for name in sources)
        selected = [name for name in ("id", ATTEMPT, *sources) if name in names]
        jobs = spark_frames.collect_table(jobs.filter(is_stated).select(*selected))
    attempts = read_rows(jobs, _select_new_attempts, ["id"], [ATTEMPT, *sources]).columns
    links = {"retried_in_job_id": "id", "id": ATTEMPT}  # column of the old job: of the new attempt
    return {old: _kinds_by(attempts, new) for old, new in links.items() if new in attempts}


def _kinds_by(attempts: pd.DataFrame, name: str) -> pd.Series[int]:
    kinds = attempts.groupby(name, observed=True, sort=False)[_NUMBER].max()
    return kinds.set_axis(kinds.index.astype(TEXT))


def _select_new_attempts(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return the attempts that state which kind of retry made them, with its number."""
    sources = [name for name in _SOURCES if name in jobs]
    is_stated = np.logical_or.reduce([jobs[name].notna().to_numpy() for name in sources])
    attempts = jobs.take(np.flatnonzero(is_stated))
    numbers = np.full(len(attempts), _UNKNOWN)
    if KIND in attempts:
        numbers = _number_kinds(attempts[KIND])
    if "retry_source" in attempts:
        kinds = attempts["retry_source"].str.extract(_KIND_IN_SOURCE, expand=False)
        numbers = np.where(numbers == _UNKNOWN, _number_kinds(kinds), numbers)
    ids = [name for name in ("id", ATTEMPT) if name in attempts]
    numbered: pd.DataFrame = attempts[ids].assign(**{_NUMBER: numbers})
    return numbered.take(np.flatnonzero(numbers != _UNKNOWN))


def _number_kinds(kinds: pd.Series[str]) -> Integers:
    """Return the place of each kind in `KINDS`, `_UNKNOWN` for other values."""
    return pd.Index(KINDS, dtype=TEXT).get_indexer(pd.Index(kinds))


def check_have_kinds(available: Collection[str]) -> None:
    """Raise BadInput if no column of a frame says which kind of retry made an attempt."""
    if not {KIND, "retry_source", "retry_type"} & {*available}:
        require_columns(available, [KIND])


def with_retries(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return jobs with both `ATTEMPT` and `KIND`.

    Values that are missing are derived from the other columns.
    """
    known = {name: _texts(jobs, name) for name in (ATTEMPT, KIND)}
    rows = _find_underived(jobs, known[ATTEMPT].notna() & known[KIND].notna())
    if len(rows):
        chosen = jobs.take(rows)
        if "retry_source" in chosen:
            sources = chosen["retry_source"].map(_as_json, na_action="ignore")
            chosen = chosen.assign(retry_source=sources)
        for name, derived in compute_in_frame(chosen, (ATTEMPT, KIND)).items():
            values = known[name].astype(object).to_numpy(copy=True)
            is_missing = known[name].isna().to_numpy()[rows]
            values[rows[is_missing]] = derived.astype(object).to_numpy()[is_missing]
            known[name] = pd.Series(values, jobs.index, dtype=TEXT)
    return jobs.assign(**known)


def _texts(jobs: pd.DataFrame, name: str) -> pd.Series[str]:
    return jobs[name].astype(TEXT) if name in jobs else pd.Series(None, jobs.index, dtype=TEXT)


def _find_underived(jobs: pd.DataFrame, is_known: pd.Series[bool]) -> Integers:
    """Return the rows of all attempts that were retried, and of retries that are not fully known.

    Fetched frames have none, and then the ids of all jobs are not searched.
    """
    successors = _texts(jobs, "retried_in_job_id")
    is_retried = successors.notna()
    has_source = _has_value(jobs, "retry_source")
    ids = jobs["id"]
    if successors[is_retried].isin(ids[is_known]).all() and not (has_source & ~is_known).any():
        return np.zeros(0, np.int64)
    is_retry = ids.isin(successors[is_retried]) | has_source
    if not (is_retry & ~is_known).any():
        return np.zeros(0, np.int64)
    return np.flatnonzero(is_retried | is_retry)


def _has_value(jobs: pd.DataFrame, name: str) -> pd.Series[bool]:
    return jobs[name].notna() if name in jobs else pd.Series(False, jobs.index)


def _as_json(source: Any) -> Any:
    """Return a `retry_source` as JSON; custom frames may hold it as a dict."""
    return json.dumps(source) if isinstance(source, Mapping) else source
