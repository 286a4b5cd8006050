"""Machine time that bought nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.arguments import checked_names
from buildframe.metrics.columns import NAT
from buildframe.metrics.engines import (
    Frame,
    Integers,
    Rows,
    collected,
    columns_of,
    is_pandas,
    lazy,
    rows,
    tally,
    tick,
    ticking,
)
from buildframe.metrics.groups import By, beside, groups_of
from buildframe.metrics.intervals import instants
from buildframe.metrics.outcomes import between, has_failed_hard, is_superseded
from buildframe.metrics.states import check_states

_OF_BUILD = ("organization", "pipeline", "branch", "commit", "build_state", "build_created_at", "build_number")
_NEEDS = ("state", "soft_failed", "retried", "started_at", "finished_at", "build_id", *_OF_BUILD)
_COMMIT = ["organization", "pipeline", "branch", "commit"]

_CLASSES = ("retried_s", "canceled_s", "after_failure_s", "repeated_s", "useful_s")


@checked_names
def waste(jobs: Frame, by: By = None) -> pd.DataFrame:
    """Machine time in four classes of waste and the useful rest, which add up to it.

    Counted is the run time (finished_at - started_at) of each job, attempt by attempt. Each second of it falls into the
    first of these classes that fits:
    `retried_s`: attempts that were superseded by a retry, whatever their outcome;
    `canceled_s`: jobs that were canceled while they ran;
    `after_failure_s`: of other jobs, the part of the run that lies after their build's first hard failure had ended
    (failed or timed out, neither softly nor superseded): from then on it was known that the build fails. The part
    before it falls into one of the next two;
    `repeated_s`: jobs of a build that changed nothing: the one before it of the same organization, pipeline, branch
    and commit, among those in the frame that passed or failed, ended in the same state. Builds are ordered by
    creation. Where the commit is null or `HEAD` this is not known, so not waste;
    `useful_s`: all else.
    Where rows of a build tell different states of it, those fetched last count (`fetched_at`, where the frame has it),
    and of several the smallest, in whatever order the rows are.
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
    check_states(jobs, "state", "build_state")
    found = _in_pandas(jobs, by) if is_pandas(jobs) else _in_engine(jobs, by)
    found = found.having(retried=is_superseded(), canceled=(nw.col("state") == "canceled").fill_null(False))
    counted = tally(found, n=nw.col("ran"), **_classes(), n_running=nw.col("running"), n_negative=nw.col("span") < 0)
    return beside(counted.keys, _in_seconds(counted.sums))


def _classes() -> dict[str, nw.Expr]:
    """Return the microseconds of each class; of a job they add up to its `span`, which is 0 unless it ran."""
    retried, canceled, repeated = (nw.col(name).cast(nw.Int64) for name in ("retried", "canceled", "repeated"))
    kept = (1 - retried) * (1 - canceled)
    early = nw.col("span") - nw.col("late")
    parts = (
        nw.col("span") * retried,
        nw.col("span") * canceled * (1 - retried),
        nw.col("late") * kept,
        early * kept * repeated,
        early * kept * (1 - repeated),
    )
    return dict(zip(_CLASSES, parts, strict=True))


def _in_engine(jobs: Frame, by: By) -> Rows:
    """The jobs with their `span` in microseconds (0 unless they `ran`), `running`, and what their builds tell of them.

    That is how much of the span is `late`, after the build's first failure, and whether the build `repeated`.
    """
    fetched = [name for name in columns_of(jobs) if name == "fetched_at"]
    found = rows(jobs, (*_NEEDS, *fetched), by, build=nw.col("build_id"))
    found = replace(found, frame=ticking(found.frame, ("started_at", "finished_at", *fetched)))
    started, finished = (~nw.col(name).is_null() for name in ("started_at", "finished_at"))
    span = between("started_at", "finished_at").fill_null(0)
    seen = nw.col(tick("fetched_at")).fill_null(NAT) if fetched else nw.lit(0)
    begun, over, failed_at = nw.col(tick("started_at")), nw.col(tick("finished_at")), nw.col("failed_at")
    told = found.having(seen=seen, failed_at=nw.when(_fails_build()).then(over))
    builds = _repeats(_once_each(told.frame, "failed_at"), _COMMIT).select("build", "failed_at", "repeated")
    joined = replace(found, frame=found.frame.join(builds, on="build", how="left"))
    late = nw.when(started & finished & (over > failed_at)).then(over - nw.max_horizontal(begun, failed_at))
    return joined.having(
        span=span,
        ran=started & finished,
        running=started & ~finished,
        late=late.fill_null(0),
        repeated=nw.col("repeated").fill_null(False),
    )


def _once_each(jobs: nw.LazyFrame[Any], *least: str) -> nw.LazyFrame[Any]:
    """The builds of these jobs: the least of these columns, and what the rows tell that were `seen` last."""
    known = jobs.select("build", "seen", *_OF_BUILD, *least).filter(~nw.col("build").is_null())
    each = known.group_by("build", "seen").agg(nw.col(*_OF_BUILD, *least).min())
    last = nw.col("seen") == nw.col("seen").max().over("build")
    return each.with_columns(*(nw.col(name).min().over("build") for name in least), last=last).filter(nw.col("last"))


def _fails_build() -> nw.Expr:
    return has_failed_hard() & ~is_superseded()


def _in_pandas(jobs: pd.DataFrame, by: By) -> Rows:
    """What `_in_engine` says; builds are numbered, so that what they tell is found without a join."""
    table = collected(jobs, _NEEDS, ("fetched_at",))
    begun, over = instants(table, "started_at"), instants(table, "finished_at")
    ran, running = (begun != NAT) & (over != NAT), (begun != NAT) & (over == NAT)
    build, ids = pd.factorize(table["build_id"], sort=True)  # -1, the last of what follows, where it is null
    fails = lazy(table).select(fails=_fails_build()).to_native()["fails"].to_numpy(bool) & (over != NAT) & (build >= 0)
    failed_at = np.full(len(ids) + 1, np.iinfo(np.int64).max)
    np.minimum.at(failed_at, build[fails], over[fails])
    repeated = np.append(_repeated(table, build), False)
    late = np.where(ran & (over > failed_at[build]), over - np.maximum(begun, failed_at[build]), 0)
    told = {"late": late, "repeated": repeated[build]}
    span = np.where(ran, over - begun, 0)
    return rows(jobs, ("state", "retried"), by, span=span, ran=ran, running=running, **told)


def _repeated(jobs: pd.DataFrame, build: Integers) -> Any:
    """Of each build whether it repeated."""
    many = build.max(initial=-1) + 1
    seen = instants(jobs, "fetched_at") if "fetched_at" in jobs else np.zeros(len(jobs), np.int64)
    last = np.full(many + 1, NAT)
    np.maximum.at(last, build, seen)
    rows_of = np.flatnonzero((build >= 0) & (seen == last[build]))
    row = np.zeros(many, np.int64)
    row[build[rows_of]] = rows_of
    state = _least(jobs["build_state"].take(rows_of), build[rows_of], many)
    builds = jobs[list(_OF_BUILD)].take(row).assign(build=range(many), build_state=state)
    line = groups_of(builds, _COMMIT).codes
    return _repeats(lazy(builds.assign(line=line)), ["line"]).to_native()["repeated"].to_numpy(bool)


def _least(texts: pd.Series[str], build: Integers, many: int) -> Any:
    """The smallest of each build, null where all are."""
    codes, values = pd.factorize(texts, sort=True)
    least = np.full(many, len(values))
    np.minimum.at(least, build[codes >= 0], codes[codes >= 0])
    return pd.Series(values, dtype="str").reindex(least).array


def _repeats(builds: nw.LazyFrame[Any], line: Sequence[str]) -> nw.LazyFrame[Any]:
    """The builds, and whether one `repeated` the outcome of the one before it at its commit (`line`)."""
    settled = nw.col("build_state").is_in(["passed", "failed"])
    known = ~nw.col("commit").is_null() & (nw.col("commit") != "HEAD") & ~nw.col("build_created_at").is_null()
    before = (
        nw.col("build_state").shift(1).over(*line, "compared", order_by=["build_created_at", "build_number", "build"])
    )
    told = builds.with_columns(compared=(settled & known).fill_null(False)).with_columns(before=before)
    return told.with_columns(repeated=nw.col("compared") & (nw.col("before") == nw.col("build_state")).fill_null(False))


def _in_seconds(sums: pd.DataFrame) -> pd.DataFrame:
    seconds = {name: sums[name].to_numpy(np.float64) / 1e6 for name in _CLASSES}
    machine = sums[list(_CLASSES)].sum(axis=1).to_numpy(np.float64) / 1e6
    told = sums.assign(**seconds)
    told.insert(1, "machine_s", machine)
    return told
