"""Attribute the run time of jobs to their build's first failure and to builds that repeat an outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw

from buildframe.metrics.columns import NAT
from buildframe.metrics.engines.dtypes import micros_column
from buildframe.metrics.engines.expressions import HAS_FAILED_HARD, IS_SUPERSEDED, is_any_of
from buildframe.metrics.grouping import Key

OF_BUILD = ("organization", "pipeline", "branch", "commit", "build_state", "build_created_at", "build_number")
NEEDS = ("state", "soft_failed", "retried", "started_at", "finished_at", "build_id", *OF_BUILD)
FAILS_BUILD = HAS_FAILED_HARD & ~IS_SUPERSEDED
"""Jobs whose failure fails their build."""

CLASSES = ("retried_s", "canceled_s", "after_failure_s", "repeated_s", "useful_s")
"""Classes of run time; a job is in the first that fits."""

LINE: list[Key] = ["organization", "pipeline", "branch", "commit"]


def attribute_run_time(jobs: nw.LazyFrame[Any], *, is_dated: bool) -> nw.LazyFrame[Any]:
    """Add `span` in microseconds, the part of it that is `late`, flags and the `place` of the job among `CLASSES`.

    The flags are `ran` and `running`. `is_dated` if the jobs have `fetched_at`.
    """
    begin, finish = nw.col(micros_column("started_at")), nw.col(micros_column("finished_at"))
    seen = nw.col(micros_column("fetched_at")).fill_null(NAT) if is_dated else nw.lit(0)
    builds = _unique_builds(jobs.with_columns(seen=seen, failed_at=nw.when(FAILS_BUILD).then(finish)))
    builds = with_repeats(builds, [str(name) for name in LINE]).select("build", "failed_at", "repeated")
    started, finished, failed_at = ~begin.is_null(), ~finish.is_null(), nw.col("failed_at")
    is_late = (nw.col("place") > 1) & started & finished & (finish > failed_at)
    late = nw.when(is_late).then(finish - nw.max_horizontal(begin, failed_at))
    other = nw.when(nw.col("repeated")).then(nw.lit(3)).otherwise(nw.lit(4))
    not_retried = nw.when(nw.col("state") == "canceled").then(nw.lit(1)).otherwise(other)
    place = nw.when(IS_SUPERSEDED).then(nw.lit(0)).otherwise(not_retried)
    return (
        jobs.join(builds, on="build", how="left")
        .with_columns(place=place)
        .with_columns(
            span=(finish - begin).fill_null(0),
            ran=started & finished,
            running=started & ~finished,
            late=late.fill_null(0),
        )
    )


def split_spans() -> dict[str, nw.Expr]:
    """Return the microseconds of each class; for a job they add up to its `span`, which is 0 unless it ran."""
    early = nw.col("span") - nw.col("late")
    each = (nw.when(nw.col("place") == i).then(early).otherwise(nw.lit(0)) for i, _ in enumerate(CLASSES))
    parts = dict(zip(CLASSES, each, strict=True))
    return parts | {CLASSES[2]: nw.col("late")}


def with_repeats(builds: nw.LazyFrame[Any], line: Sequence[str]) -> nw.LazyFrame[Any]:
    """Add to builds whether each `repeated` the outcome of the one before it on its line: branch and commit."""
    settled = is_any_of("build_state", "passed", "failed")
    known = ~nw.col("commit").is_null() & (nw.col("commit") != "HEAD") & ~nw.col("build_created_at").is_null()
    order = ["build_created_at", "build_number", "build"]
    before = nw.col("build_state").shift(1).over(*line, "compared", order_by=order)
    result = builds.with_columns(compared=(settled & known).fill_null(False)).with_columns(before=before)
    same = (nw.col("before") == nw.col("build_state")).fill_null(False)
    return result.with_columns(repeated=nw.col("compared") & same)


def _unique_builds(jobs: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Return each build once: its first failure, and the values of the rows that were fetched last."""
    known = jobs.select("build", "seen", *OF_BUILD, "failed_at").filter(~nw.col("build").is_null())
    each = known.group_by("build", "seen").agg(nw.col(*OF_BUILD, "failed_at").min())
    last = nw.col("seen") == nw.col("seen").max().over("build")
    first_failure = nw.col("failed_at").min().over("build")
    return each.with_columns(failed_at=first_failure, last=last).filter(nw.col("last"))
