"""Machine time that bought nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.metrics.columns import column
from buildframe.metrics.durations import run_time
from buildframe.metrics.engines import Frame, Rows, is_pandas, rows, tally, ticking
from buildframe.metrics.groups import By, beside
from buildframe.metrics.outcomes import between, has_failed_hard, is_superseded

_OF_BUILD = ("organization", "pipeline", "branch", "commit", "build_state", "build_created_at", "build_number")
_NEEDS = ("state", "soft_failed", "retried", "started_at", "finished_at", "build_id", *_OF_BUILD)
_COMMIT = ("organization", "pipeline", "branch", "commit")

_CLASSES = ("retried_s", "canceled_s", "after_failure_s", "repeated_s", "useful_s")


def waste(jobs: Frame, by: By = None) -> pd.DataFrame:
    """Machine time in four classes of waste and the useful rest, which add up to it.

    Counted is the run time (finished_at - started_at) of each job, attempt by attempt, as a whole; it falls into the
    first of these classes that fits:
    `retried_s`: attempts that were superseded by a retry, whatever their outcome;
    `canceled_s`: jobs that were canceled while they ran;
    `after_failure_s`: jobs that ended after their build's first hard failure had ended (failed or timed out, neither
    softly nor superseded): by then it was known that the build fails;
    `repeated_s`: jobs of a build that changed nothing: the one before it of the same organization, pipeline, branch
    and commit, among those in the frame that passed or failed, ended in the same state. Builds are ordered by
    creation. Where the commit is null or `HEAD` this is not known, so not waste;
    `useful_s`: all else.
    No waste, so useful, are the job that failed first, soft failures, time-outs and lost agents unless retried, what
    had ended before a build was canceled, the first build of a commit, and a rebuild that ended otherwise. A repeat by
    night, a deployment, or a check for flakes may have been wanted: the classes say what could be saved at most, not
    what must. Waiting, and machines that idle between jobs, are no machine time and in none.

    Fetch with `include_retried_jobs=True`, or the superseded attempts are missing. Each row counts: drop duplicates by
    `id` first. `by` as in `percentiles`; failures and repeats are those of the whole build, in whatever group its jobs
    are. Needs `organization`, `pipeline`, `branch`, `commit`, `build_id`, `build_number`, `build_state`,
    `build_created_at`, `state`, `soft_failed`, `retried`, `started_at`, `finished_at`.

    One row a group, ordered by key; columns: the keys, then
    `n` (Int64): jobs that ran and ended;
    `machine_s` and its parts in the order above (float64 seconds; added up as whole microseconds);
    `n_running` (Int64): jobs that started and have no end, in none of the sums;
    `n_negative` (Int64): run times below zero, from clocks that disagree; they are in `n` and in the sums.
    An empty frame gives these columns and no rows. BadInput: a missing column, naive times.
    """
    ran = ~nw.col("started_at").is_null() & ~nw.col("finished_at").is_null()
    running = ~nw.col("started_at").is_null() & nw.col("finished_at").is_null()
    found = _of_builds(_with_run_time(jobs, by)).having(place=_place(), ran=ran)
    found = found.having(span=nw.when(nw.col("ran")).then(nw.col("microseconds")).otherwise(nw.lit(0)))
    span = nw.col("span")
    parts = {name: span * (nw.col("place") == i).cast(nw.Int64) for i, name in enumerate(_CLASSES)}
    counted = tally(found, n=nw.col("ran"), machine_s=span, **parts, n_running=running, n_negative=span < 0)
    return beside(counted.keys, _in_seconds(counted.sums))


def _with_run_time(jobs: Frame, by: By) -> Rows:
    """The jobs with `microseconds` of run time and `build`, which is a number in pandas since texts are dear there."""
    if not is_pandas(jobs):
        found = rows(jobs, _NEEDS, by, build=nw.col("build_id"))
        ticked = replace(found, frame=ticking(found.frame, ("started_at", "finished_at")))
        return ticked.having(microseconds=between("started_at", "finished_at"))
    spans = run_time(jobs)
    microseconds = np.where(spans.isna(), 0, spans.to_numpy("timedelta64[us]").astype(np.int64))
    numbers = pd.Series(pd.factorize(column(jobs, "build_id"))[0])
    return rows(jobs, _NEEDS, by, microseconds=microseconds, build=numbers)


def _of_builds(found: Rows) -> Rows:
    """The jobs with `failed_at`, when their build failed, and the outcome that it `repeated`; null where it did not."""
    failed = has_failed_hard() & ~is_superseded()
    jobs = found.frame.select("build", *_OF_BUILD, "build_id", failed_at=nw.when(failed).then(nw.col("finished_at")))
    jobs = jobs.filter(~nw.col("build_id").is_null()).drop("build_id")
    builds = _repeats(_once_each(jobs, in_memory=found.keys is not None)).select("build", "failed_at", "repeated")
    return replace(found, frame=found.frame.join(builds, on="build", how="left"))


def _once_each(jobs: nw.LazyFrame[Any], *, in_memory: bool) -> nw.LazyFrame[Any]:
    """The builds of these jobs: in pandas the first row is at hand, in other engines grouping is much faster."""
    first_failure = nw.col("failed_at").min()
    if not in_memory:
        return jobs.group_by("build").agg(first_failure, *(nw.col(name).any_value() for name in _OF_BUILD))
    failures = jobs.filter(~nw.col("failed_at").is_null()).group_by("build").agg(first_failure)
    return jobs.drop("failed_at").unique("build", keep="any").join(failures, on="build", how="left")


def _repeats(builds: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """The builds with the outcome that they `repeated`, as the one before them at their commit had the same."""
    settled = nw.col("build_state").is_in(["passed", "failed"])
    known = ~nw.col("commit").is_null() & (nw.col("commit") != "HEAD") & ~nw.col("build_created_at").is_null()
    before = nw.col("build_state").shift(1).over(*_COMMIT, "compared", order_by=["build_created_at", "build_number"])
    told = builds.with_columns(compared=(settled & known).fill_null(value=False)).with_columns(before=before)
    same = nw.col("compared") & (nw.col("before") == nw.col("build_state")).fill_null(value=False)
    return told.with_columns(repeated=nw.when(same).then(nw.col("before")))


def _place() -> nw.Expr:
    """The place in _CLASSES of the first that fits."""
    fits = (
        is_superseded(),
        nw.col("state") == "canceled",
        nw.col("finished_at") > nw.col("failed_at"),
        ~nw.col("repeated").is_null(),
    )
    place = nw.lit(len(fits))
    for i, one in reversed([*enumerate(fits)]):
        place = nw.when(one).then(nw.lit(i)).otherwise(place)
    return place


def _in_seconds(sums: pd.DataFrame) -> pd.DataFrame:
    return sums.assign(**{name: sums[name].to_numpy(np.float64) / 1e6 for name in ("machine_s", *_CLASSES)})
