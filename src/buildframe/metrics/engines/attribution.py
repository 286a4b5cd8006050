"""Attribute the run time of jobs to their build's first failure and to builds that repeat an outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.metrics.columns import NAT, Integers
from buildframe.metrics.engines.dtypes import micros_column
from buildframe.metrics.engines.expressions import HAS_FAILED_HARD, IS_SUPERSEDED, is_any_of
from buildframe.metrics.engines.rows import GroupedRows, GroupSums, Rows
from buildframe.metrics.grouping import Key, find_groups
from buildframe.metrics.job_ends import IS_OVER
from buildframe.metrics.numbered import sum_by

OF_BUILD = ("organization", "pipeline", "branch", "commit", "build_state", "build_created_at", "build_number")
NEEDS = ("type", "state", "soft_failed", "retried", "started_at", "finished_at", IS_OVER, "build_id", *OF_BUILD)
FAILS_BUILD = HAS_FAILED_HARD & ~IS_SUPERSEDED
"""Jobs whose failure fails their build."""

CLASSES = ("retried_s", "canceled_s", "after_failure_s", "repeated_s", "useful_s")
"""Classes of run time; a job is in the first that fits."""

LINE: list[Key] = ["organization", "pipeline", "branch", "commit"]

_FIXED = ("organization", "pipeline", "branch")
"""Columns that are equal in all rows of a build; a commit can be HEAD at first."""

_NUMBER = "number of the class"


def sum_run_time(rows: GroupedRows, *, is_dated: bool) -> GroupSums:
    """Sum run times and counts as `Engine.sum_run_time`; `is_dated` if the jobs have `fetched_at`.

    Groups are split by class, which takes less time than a sum for each class.
    """
    builds = rows.engine.run_first(_select_builds(rows, is_dated=is_dated))
    attributed = replace(rows, frame=_attribute_run_time(rows.frame, builds))
    split = rows.engine.split_groups(attributed, _NUMBER, len(CLASSES))
    span, late = nw.col("span"), nw.col("late")
    counted = {"n": nw.col("ran"), "n_running": nw.col("running"), "n_no_end": nw.col("lost"), "n_negative": span < 0}
    summed = rows.engine.group_sums(split, early=span - late, late=late, **counted)
    codes, groups = find_groups(summed.groups, rows.by[: len(rows.names)])
    number, sums = summed.groups[_NUMBER].to_numpy(np.int64), summed.sums.astype(np.int64)
    of_classes = sum_classes(codes, number, sums["early"].to_numpy(), sums["late"].to_numpy(), len(groups))
    counts = {name: sums[name].groupby(codes).sum() for name in counted}
    whole = pd.DataFrame({"n": counts.pop("n"), **of_classes, **counts}, dtype="Int64")
    return GroupSums(rows.name_keys(groups), groups, whole)


def sum_classes(
    codes: Integers, number: Integers, early: Integers, late: Integers, n_groups: int
) -> dict[str, Integers]:
    """Sum the microseconds of each class in numbered groups; those that are `late` are of another than `number`."""
    cells, n_cells = codes * len(CLASSES), n_groups * len(CLASSES)
    sums = sum_by(cells + number, early, n_cells) + sum_by(cells + CLASSES.index("after_failure_s"), late, n_cells)
    return dict(zip(CLASSES, sums.reshape(-1, len(CLASSES)).T, strict=True))


def _select_builds(rows: GroupedRows, *, is_dated: bool) -> Rows:
    """Return the builds whose jobs may have run for nothing: when the first job `failed_at`, or `repeated`."""
    finish = nw.col(micros_column("finished_at"))
    seen = nw.col(micros_column("fetched_at")).fill_null(NAT) if is_dated else nw.lit(0)
    jobs = rows.frame.with_columns(seen=seen, failed_at=nw.when(FAILS_BUILD).then(finish))
    builds = _with_repeats(_unique_builds(replace(rows, frame=jobs)), [str(name) for name in LINE])
    return builds.select("build", "failed_at", "repeated").filter(~nw.col("failed_at").is_null() | nw.col("repeated"))


def _attribute_run_time(jobs: Rows, builds: Rows) -> Rows:
    """Add `span` in microseconds, the part of it that is `late`, and the number of the class.

    Also adds whether the job `ran`, whether it is `running`, and whether its end is `lost`: it is over, but its end is
    unknown.
    """
    begin, finish = nw.col(micros_column("started_at")), nw.col(micros_column("finished_at"))
    started, finished, failed_at = ~begin.is_null(), ~finish.is_null(), nw.col("failed_at")
    is_late = (nw.col(_NUMBER) > 1) & started & finished & (finish > failed_at)
    late = nw.when(is_late).then(finish - nw.max_horizontal(begin, failed_at))
    other = nw.when(nw.col("repeated")).then(nw.lit(3)).otherwise(nw.lit(4))
    not_retried = nw.when(nw.col("state") == "canceled").then(nw.lit(1)).otherwise(other)
    number = nw.when(IS_SUPERSEDED).then(nw.lit(0)).otherwise(not_retried)
    return (
        jobs.join(builds, on="build", how="left")
        .with_columns(number.alias(_NUMBER))
        .with_columns(
            span=(finish - begin).fill_null(0),
            ran=started & finished,
            running=started & ~nw.col(IS_OVER),
            lost=started & nw.col(IS_OVER) & ~finished,
            late=late.fill_null(0),
        )
    )


def _with_repeats(builds: Rows, line: Sequence[str]) -> Rows:
    """Add to builds whether each `repeated` the outcome of the one before it on its line: branch and commit."""
    settled = is_any_of("build_state", "passed", "failed")
    known = ~nw.col("commit").is_null() & (nw.col("commit") != "HEAD") & ~nw.col("build_created_at").is_null()
    order = ["build_created_at", "build_number", "build"]
    before = nw.col("build_state").shift(1).over(*line, "compared", order_by=order)
    result = builds.with_columns(compared=(settled & known).fill_null(False)).with_columns(before=before)
    same = (nw.col("before") == nw.col("build_state")).fill_null(False)
    return result.with_columns(repeated=nw.col("compared") & same)


def _unique_builds(jobs: GroupedRows) -> Rows:
    """Return each build once: its first failure, and the values of the rows that were fetched last."""
    known = jobs.frame.select("build", "seen", *OF_BUILD, "failed_at").filter(~nw.col("build").is_null())
    known = jobs.engine.merge_equal(known, ["build", "seen", *OF_BUILD])
    line = nw.col(*_FIXED).any_value(ignore_nulls=True)
    least = nw.col(*(name for name in OF_BUILD if name not in _FIXED), "failed_at").min()
    each = known.group_by("build", "seen").agg(line, least)
    last = nw.col("seen") == nw.col("seen").max().over("build")
    first_failure = nw.col("failed_at").min().over("build")
    return each.with_columns(failed_at=first_failure, last=last).filter(nw.col("last"))
