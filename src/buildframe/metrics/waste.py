"""Split machine time into classes of waste and a useful rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.build_times import timestamp_micros
from buildframe.metrics.columns import NAT
from buildframe.metrics.engines import (
    Frame,
    GroupedRows,
    Integers,
    collect_columns,
    column_names,
    group_rows,
    group_sums,
    is_pandas,
    micros_column,
    to_lazy,
    with_micros,
)
from buildframe.metrics.engines.expressions import has_failed_hard, is_superseded, micros_between
from buildframe.metrics.grouping import By, find_groups, join_keys
from buildframe.metrics.validation import check_states

_OF_BUILD = ("organization", "pipeline", "branch", "commit", "build_state", "build_created_at", "build_number")
_NEEDS = ("state", "soft_failed", "retried", "started_at", "finished_at", "build_id", *_OF_BUILD)
_COMMIT = ["organization", "pipeline", "branch", "commit"]

_CLASSES = ("retried_s", "canceled_s", "after_failure_s", "repeated_s", "useful_s")


@checked_names
def waste(jobs: Frame, by: By = None) -> pd.DataFrame:
    """
    Split machine time into four classes of waste and the useful rest.

    The five parts add up to the machine time exactly. Each second of a run belongs to the first class that fits.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark, fetched with `include_retried_jobs=True` and with
        unique ids. Needs the columns `organization`, `pipeline`, `branch`, `commit`, `build_id`, `build_number`,
        `build_state`, `build_created_at`, `state`, `soft_failed`, `retried`, `started_at` and `finished_at`. Uses
        `fetched_at` if the frame has it.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. Failures and repeats are those of the whole build, in every
        group. By default all rows form one group.

    Returns
    -------
    pandas.DataFrame
        One row per group, ordered by key. An empty frame gives no rows. After the keys:

        =============== ======= =======================================================================
        n               Int64   jobs that ran and ended
        machine_s       float64 seconds of run time of every attempt
        retried_s       float64 seconds of attempts that a retry superseded
        canceled_s      float64 seconds of jobs that were canceled while they ran
        after_failure_s float64 seconds of other jobs after the first hard failure of their build ended
        repeated_s      float64 remaining seconds of builds that repeated the outcome of their commit
        useful_s        float64 all other seconds
        n_running       Int64   jobs that started and have no end; in none of the sums
        n_negative      Int64   run times below zero, from clocks that disagree; included in `n` and sums
        =============== ======= =======================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or a column of states holds an unknown spelling.

    See Also
    --------
    machine_time : Run time per build.
    retry_rate : Share of executions that were retried.

    Notes
    -----
    A hard failure is a job that failed or timed out, neither softly nor superseded. Only the part of a run that lies
    after it counts in `after_failure_s`.

    A build repeats if the build before it with the same organization, pipeline, branch and commit ended in the same
    state. Only builds of the frame that passed or failed are compared, ordered by creation. Builds without a commit, or
    at `HEAD`, never count as repeats. If rows report different states of one build, the rows fetched last count.

    Useful are the job that failed first, soft failures, timeouts and lost agents unless retried, jobs that ended before
    their build was canceled, the first build of a commit, and a rebuild with another outcome. A nightly build, a
    deployment or a check for flakiness may be a repeat that was wanted: the classes are an upper bound of what can be
    saved. Waiting and idle machines are not machine time.

    Examples
    --------
    >>> metrics.waste(jobs)[["machine_s", "retried_s", "after_failure_s", "useful_s"]].round(0)
       machine_s  retried_s  after_failure_s  useful_s
    0   421808.0     2680.0          17314.0  394336.0
    """
    check_states(jobs, "state", "build_state")
    rows = _in_pandas(jobs, by) if is_pandas(jobs) else _in_engine(jobs, by)
    rows = rows.with_columns(retried=is_superseded(), canceled=(nw.col("state") == "canceled").fill_null(False))
    counted = group_sums(
        rows, n=nw.col("ran"), **_classes(), n_running=nw.col("running"), n_negative=nw.col("span") < 0
    )
    return join_keys(counted.keys, _in_seconds(counted.sums))


def _classes() -> dict[str, nw.Expr]:
    """Return the microseconds of each class; for a job they add up to its `span`, which is 0 unless it ran."""
    retried, canceled, repeated = (nw.col(name).cast(nw.Int64) for name in ("retried", "canceled", "repeated"))
    remaining = (1 - retried) * (1 - canceled)
    early = nw.col("span") - nw.col("late")
    parts = (
        nw.col("span") * retried,
        nw.col("span") * canceled * (1 - retried),
        nw.col("late") * remaining,
        early * remaining * repeated,
        early * remaining * (1 - repeated),
    )
    return dict(zip(_CLASSES, parts, strict=True))


def _in_engine(jobs: Frame, by: By) -> GroupedRows:
    """Return the jobs with `span` in microseconds, `ran`, `running`, the part `late`, and the flag `repeated`."""
    fetched = [name for name in column_names(jobs) if name == "fetched_at"]
    rows = group_rows(jobs, (*_NEEDS, *fetched), by, build=nw.col("build_id"))
    rows = replace(rows, frame=with_micros(rows.frame, ("started_at", "finished_at", *fetched)))
    started, finished = (~nw.col(name).is_null() for name in ("started_at", "finished_at"))
    span = micros_between("started_at", "finished_at").fill_null(0)
    seen = nw.col(micros_column("fetched_at")).fill_null(NAT) if fetched else nw.lit(0)
    begin, finish, failed_at = (
        nw.col(micros_column("started_at")),
        nw.col(micros_column("finished_at")),
        nw.col("failed_at"),
    )
    result = rows.with_columns(seen=seen, failed_at=nw.when(_fails_build()).then(finish))
    builds = _repeats(_unique_builds(result.frame, "failed_at"), _COMMIT).select("build", "failed_at", "repeated")
    joined = replace(rows, frame=rows.frame.join(builds, on="build", how="left"))
    late = nw.when(started & finished & (finish > failed_at)).then(finish - nw.max_horizontal(begin, failed_at))
    return joined.with_columns(
        span=span,
        ran=started & finished,
        running=started & ~finished,
        late=late.fill_null(0),
        repeated=nw.col("repeated").fill_null(False),
    )


def _unique_builds(jobs: nw.LazyFrame[Any], *smallest: str) -> nw.LazyFrame[Any]:
    """Return each build once: the least of these columns, and the values of the rows that were fetched last."""
    known = jobs.select("build", "seen", *_OF_BUILD, *smallest).filter(~nw.col("build").is_null())
    each = known.group_by("build", "seen").agg(nw.col(*_OF_BUILD, *smallest).min())
    last = nw.col("seen") == nw.col("seen").max().over("build")
    return each.with_columns(*(nw.col(name).min().over("build") for name in smallest), last=last).filter(nw.col("last"))


def _fails_build() -> nw.Expr:
    return has_failed_hard() & ~is_superseded()


def _in_pandas(jobs: pd.DataFrame, by: By) -> GroupedRows:
    """Return what `_in_engine` returns; builds are numbered, so no join is needed."""
    table = collect_columns(jobs, _NEEDS, ("fetched_at",))
    begin, finish = timestamp_micros(table, "started_at"), timestamp_micros(table, "finished_at")
    ran, running = (begin != NAT) & (finish != NAT), (begin != NAT) & (finish == NAT)
    build, ids = pd.factorize(table["build_id"], sort=True)  # null is -1, the last element of the arrays below
    fails = (
        to_lazy(table).select(fails=_fails_build()).to_native()["fails"].to_numpy(bool) & (finish != NAT) & (build >= 0)
    )
    failed_at = np.full(len(ids) + 1, np.iinfo(np.int64).max)
    np.minimum.at(failed_at, build[fails], finish[fails])
    repeated = np.append(_repeated(table, build), False)
    late = np.where(ran & (finish > failed_at[build]), finish - np.maximum(begin, failed_at[build]), 0)
    of_build = {"late": late, "repeated": repeated[build]}
    span = np.where(ran, finish - begin, 0)
    return group_rows(jobs, ("state", "retried"), by, span=span, ran=ran, running=running, **of_build)


def _repeated(jobs: pd.DataFrame, build: Integers) -> Any:
    """Return for each build whether it repeated."""
    n_builds = build.max(initial=-1) + 1
    seen = timestamp_micros(jobs, "fetched_at") if "fetched_at" in jobs else np.zeros(len(jobs), np.int64)
    last = np.full(n_builds + 1, NAT)
    np.maximum.at(last, build, seen)
    rows_of = np.flatnonzero((build >= 0) & (seen == last[build]))
    row = np.zeros(n_builds, np.int64)
    row[build[rows_of]] = rows_of
    state = _smallest(jobs["build_state"].take(rows_of), build[rows_of], n_builds)
    builds = jobs[list(_OF_BUILD)].take(row).assign(build=range(n_builds), build_state=state)
    line = find_groups(builds, _COMMIT).codes
    return _repeats(to_lazy(builds.assign(line=line)), ["line"]).to_native()["repeated"].to_numpy(bool)


def _smallest(texts: pd.Series[str], build: Integers, n_builds: int) -> Any:
    """Return the smallest text of each build, null if all are null."""
    codes, values = pd.factorize(texts, sort=True)
    smallest = np.full(n_builds, len(values))
    np.minimum.at(smallest, build[codes >= 0], codes[codes >= 0])
    return pd.Series(values, dtype="str").reindex(smallest).array


def _repeats(builds: nw.LazyFrame[Any], line: Sequence[str]) -> nw.LazyFrame[Any]:
    """Add to builds whether each `repeated` the outcome of the one before it at its commit."""
    settled = nw.col("build_state").is_in(["passed", "failed"])
    known = ~nw.col("commit").is_null() & (nw.col("commit") != "HEAD") & ~nw.col("build_created_at").is_null()
    before = (
        nw.col("build_state").shift(1).over(*line, "compared", order_by=["build_created_at", "build_number", "build"])
    )
    result = builds.with_columns(compared=(settled & known).fill_null(False)).with_columns(before=before)
    return result.with_columns(
        repeated=nw.col("compared") & (nw.col("before") == nw.col("build_state")).fill_null(False)
    )


def _in_seconds(sums: pd.DataFrame) -> pd.DataFrame:
    seconds = {name: sums[name].to_numpy(np.float64) / 1e6 for name in _CLASSES}
    machine = sums[list(_CLASSES)].sum(axis=1).to_numpy(np.float64) / 1e6
    result = sums.assign(**seconds)
    result.insert(1, "machine_s", machine)
    return result
