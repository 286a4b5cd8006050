"""Peers of the summaries on Polars: expressions, which end in the summary's columns as pandas.

They take frames with the columns that `metrics.with_seconds` adds. Percentiles and their intervals need the values of
each group in order, and in time: Polars collects them, and numpy sorts and counts.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl

from tests.benchmarks.handwritten import DAY
from tests.benchmarks.handwritten_intervals import CELLS, Durations, percentile_columns, shift_of
from tests.benchmarks.handwritten_jobs import HALF_HOUR, UNDER_WAY, ranked
from tests.benchmarks.handwritten_tables import each_day, rated_kinds, settled, summed

c = pl.col

_VERDICTS = ("passed", "infrastructure", "killed", "undecided", "deterministic", "flaky")
_VARIANT = ("organization", "pipeline", "step", "commit", "matrix", "parallel_group_index")
_COMMIT = ("organization", "pipeline", "branch", "commit")
_CLASSES = ("retried_s", "canceled_s", "after_failure_s", "repeated_s", "useful_s")
_SCRIPT = c("type") == "script"


def _us(name: str) -> pl.Expr:
    return c(name).dt.epoch("us")


def _percentiles(
    frame: pl.LazyFrame, by: list[Any], value: str, begun: str, at: str
) -> tuple[pl.DataFrame, dict[str, Any]]:
    x, has_left = c(value), c(begun).is_not_null() & c(value).is_null()
    seen = _us("finished_at").fill_null(_us("fetched_at")) - _us(begun)
    values = (x * 1000).round().cast(pl.Int32)
    lists = [values.drop_nulls(), _us(at).filter(x.is_not_null()), seen.filter(has_left) // 1_000_000 + 1]
    lists += [_us(at).filter(has_left)]
    names = [f"list {i}" for i in range(4)]
    grouped = frame.group_by(by).agg(
        n=x.count(), n_censored=has_left.sum(), n_negative=(x < 0).sum(), **dict(zip(names, lists, strict=True))
    )
    groups = grouped.sort(grouped.collect_schema().names()[: len(by)], nulls_last=True).collect()
    rows = Durations(*([one.to_numpy() for one in groups[name]] for name in names))
    return groups.drop(names), percentile_columns(rows)


def percentiles_by_queue(jobs: pl.DataFrame) -> pd.DataFrame:
    scripts = jobs.lazy().filter(_SCRIPT)
    groups, columns = _percentiles(scripts, ["queue"], "queue_time_s", "runnable_at", "runnable_at")
    return groups.to_pandas().assign(**columns)


def percentiles_by_step(jobs: pl.DataFrame) -> pd.DataFrame:
    scripts = jobs.lazy().filter(_SCRIPT)
    groups, columns = _percentiles(scripts, ["pipeline", "step"], "queue_time_s", "runnable_at", "runnable_at")
    return groups.to_pandas().assign(**columns)


def trend(jobs: pl.DataFrame) -> pd.DataFrame:
    day = (_us("created_at") // DAY).alias("day")
    groups, columns = _percentiles(jobs.lazy().filter(_SCRIPT), [day], "run_time_s", "started_at", "created_at")
    return _filled(jobs, groups.to_pandas().assign(**columns))


def _filled(frame: pl.DataFrame, days: pd.DataFrame) -> pd.DataFrame:
    return each_day(frame.select(_us("fetched_at").max()).item(), days)


def _cells(frame: pl.DataFrame, at: str) -> tuple[pl.Expr, int]:
    """The cell of each row's time, and how many cells there are."""
    first, last = frame.select(_us(at).min(), last=_us(at).max()).row(0)
    shift = shift_of(first, last)
    return _us(at) // 2**shift - (first >> shift), (last >> shift) - (first >> shift) + 1


def _settled() -> dict[str, pl.Expr]:
    open_again = ~c("blocked").fill_null(value=False)
    return {state: ((c("state") == state) & open_again).sum() for state in ("passed", "failed")}


def success_rate(builds: pl.DataFrame) -> pd.DataFrame:
    cell, size = _cells(builds, "created_at")
    cells = builds.lazy().group_by("pipeline", cell=cell).agg(**_settled()).collect().to_pandas()
    return settled(cells, ["pipeline"], size)


def success_trend(builds: pl.DataFrame) -> pd.DataFrame:
    cells = builds.lazy().group_by(number=_us("created_at") // (DAY // CELLS)).agg(**_settled())
    cells = cells.select(c("number") // CELLS, *("passed", "failed"), cell=c("number") % CELLS).rename(
        {"number": "day"}
    )
    return _filled(builds, settled(cells.collect().to_pandas(), ["day"], CELLS))


def throughput(builds: pl.DataFrame) -> pd.DataFrame:
    is_blocked = c("blocked").fill_null(value=False) | (c("state") == "blocked").fill_null(value=False)
    ended = builds.lazy().filter(~is_blocked)
    days = [
        rows.group_by(day=_us(at) // DAY).agg(pl.len().alias(name))
        for name, rows, at in (("demand", builds.lazy(), "created_at"), ("served", ended, "finished_at"))
    ]
    both = days[0].join(days[1].filter(c("day").is_not_null()), on="day", how="full", coalesce=True).sort("day")
    return _filled(builds, both.collect().fill_null(0).to_pandas())


def retry_rate(jobs: pl.DataFrame) -> pd.DataFrame:
    cell, size = _cells(jobs, "started_at")
    executions = jobs.lazy().filter(_SCRIPT, c("started_at").is_not_null())
    retried = c("retried").fill_null(value=False)
    passed = (retried & (c("state") == "passed")).sum()
    counts = executions.group_by("pipeline", cell=cell).agg(
        executions=pl.len(), retried=retried.sum(), retried_passed=passed
    )
    again = jobs.lazy().filter(c("retry_of_type").is_in(["automatic", "manual"])).select("id", kind="retry_of_type")
    kinds = executions.filter(retried).select("pipeline", id="retried_in_job_id").join(again, on="id")
    by_kind = {kind: (c("kind") == kind).sum() for kind in ("automatic", "manual")}
    cells, of_kind = pl.collect_all([counts, kinds.group_by("pipeline").agg(**by_kind)])
    keys, rates = summed(cells.to_pandas(), ["pipeline"], size, "retried", ["executions"])
    return rated_kinds(keys.merge(of_kind.to_pandas(), how="left", on="pipeline").fillna(0), rates)


_OUTCOMES = ("passes", "failures", "lost", "killed", "storm")


def flips(jobs: pl.DataFrame) -> pd.DataFrame:
    state, soft = c("state"), c("soft_failed").fill_null(value=False)
    hard = (state == "failed") & ~soft
    lost = hard & (c("exit_status") == -1).fill_null(value=False)
    killed = hard & ~lost & (c("signal") == "SIGKILL").fill_null(value=False)
    outcome = {"passes": state == "passed", "failures": hard & ~lost & ~killed | (state == "timed_out"), "lost": lost}
    outcome["killed"] = killed
    known = pl.when(c("commit") != "HEAD").then(c("commit"))
    rows = jobs.lazy().filter(_SCRIPT & (hard | state.is_in(["passed", "timed_out"])))
    texts = ("organization", "pipeline", "step", "matrix")
    encoded = [c(name).cast(pl.Categorical) for name in texts]
    attempts = rows.select(
        *encoded, "parallel_group_index", "queue", "agent_id", commit=known.cast(pl.Categorical), at=_us("finished_at"),
        period=_us("finished_at") // HALF_HOUR, **outcome,
    ).collect()  # fmt: skip
    is_stormy = pl.any_horizontal(pl.lit(value=False), *_storms(attempts, "queue"), *_storms(attempts, "agent_id"))
    counted = attempts.lazy().with_columns(storm=is_stormy.fill_null(value=False))
    sums = [(c(name) & ~c("storm")).sum() for name in outcome]
    variants = counted.group_by(_VARIANT).agg(*sums, c("storm").sum(), c("at").min())
    unlike = pl.when(c("passes") > 0).then(5).when(c("failures") > 1).then(4).otherwise(3)
    others = pl.when(c("killed") > 0).then(2).otherwise((c("lost") > 0).cast(pl.Int32))
    verdict = pl.when(c("failures") > 0).then(unlike).otherwise(others)
    has_commit = c("commit").is_not_null()
    commits = variants.group_by(_VARIANT[:4]).agg(
        c("at").min(), c("storm").sum(), verdict=verdict.max(), passed=has_commit.first() & (c("passes") > 0).any(),
        attempts=pl.sum_horizontal(_OUTCOMES).sum(),
    ).collect()  # fmt: skip
    cell, size = _cells(commits.with_columns(c("at").cast(pl.Datetime("us"))), "at")
    is_counted = has_commit & (c("passed") | (c("verdict") > 0))
    cells = commits.with_columns(c("at").cast(pl.Datetime("us"))).lazy().group_by(*_VARIANT[:3], cell=cell).agg(
        commits=is_counted.sum(), commits_passed=c("passed").sum(),
        **{_VERDICTS[i]: (has_commit & (c("verdict") == i)).sum() for i in (5, 4, 3, 2, 1)},
        n_storm=c("storm").sum(), n_without_commit=c("attempts").filter(~has_commit).sum(),
    )  # fmt: skip
    by = [*_VARIANT[:3]]
    keys, rates = summed(
        cells.with_columns(c(by).cast(pl.String)).collect().to_pandas(), by, size, "flaky", ["commits_passed"]
    )
    return ranked(keys.assign(flake_rate=rates.pop("rate"), **rates))


def _storms(attempts: pl.DataFrame, place: str) -> list[pl.Expr]:
    """Conditions for half hours in which nearly all steps of a place only failed, at several commits."""
    failing = attempts.lazy().filter(~c("passes")).drop_nulls(place).group_by(place, "period").agg(failed=pl.len())
    often = failing.filter(c("failed") >= 5).collect()
    if often.is_empty():
        return []
    own = (
        attempts.lazy()
        .filter(c("period").is_in(often["period"].unique().implode()))
        .join(often.lazy(), on=[place, "period"])
    )
    suspicious = own.filter(c("passes").sum().over(place, "period") <= c("failed"))
    steps = suspicious.group_by(place, "period", *_VARIANT[:3]).agg(
        c("passes").any(), commits=c("commit").filter(~c("passes")).drop_nulls().unique()
    )
    periods = steps.group_by(place, "period").agg(
        steps=pl.len(), never=(~c("passes")).sum(), commits=c("commits").explode().n_unique()
    )
    is_storm = (c("steps") >= 5) & (c("never") > 0.8 * c("steps")) & (c("commits") > 1)
    found = periods.filter(is_storm).select(place, "period").collect()
    return [(c(place) == name) & (c("period") == period) for name, period in found.iter_rows()]


def waste(jobs: pl.DataFrame) -> pd.DataFrame:
    retried = c("retried").fill_null(value=False)
    hard = (c("state") == "failed") & ~c("soft_failed").fill_null(value=False) | (c("state") == "timed_out")
    failed_at = c("finished_at").filter(hard & ~retried).min().alias("failed_at")
    newest = c("row").get(c("fetched_at").arg_max())
    rows = jobs.lazy().with_row_index("row")
    builds = rows.group_by("build_id").agg(failed_at, newest).collect()
    own = [*_COMMIT, "build_state", "build_created_at", "build_number"]
    each = builds.hstack(jobs.select(own)[builds["row"]]).lazy()
    settled = c("build_state").is_in(["passed", "failed"]) & (c("commit") != "HEAD").fill_null(value=False)
    same = c("build_state") == c("build_state").shift(1).over(_COMMIT)
    repeats = (
        each.filter(settled)
        .sort("build_created_at", "build_number")
        .select("build_id", repeated=same.fill_null(value=False))
    )
    each = each.select("build_id", "failed_at").join(repeats, on="build_id", how="left")
    us = _us("finished_at") - _us("started_at")
    place = pl.when(retried).then(0).when(c("state") == "canceled").then(1).when(c("repeated")).then(3).otherwise(4)
    after = _us("finished_at") - pl.max_horizontal("started_at", "failed_at").dt.epoch("us")
    is_late = (place > 1) & c("started_at").is_not_null() & (c("finished_at") > c("failed_at"))
    late = pl.when(is_late).then(after).otherwise(0)
    started = pl.when(_SCRIPT).then(c("started_at")).alias("started_at")
    result = (
        jobs.lazy()
        .with_columns(started)
        .join(each, on="build_id", how="left")
        .select("pipeline", "state", "started_at", us=us, place=place, late=late)
    )
    parts = {name: (c("us") - c("late")).filter(c("place") == i).sum() / 1e6 for i, name in enumerate(_CLASSES)}
    parts["after_failure_s"] = c("late").sum() / 1e6
    has_left, is_under_way = c("started_at").is_not_null() & c("us").is_null(), c("state").is_in(UNDER_WAY)
    sums = result.group_by("pipeline").agg(
        n=c("us").count(),
        machine_s=c("us").sum() / 1e6,
        **parts,
        n_running=(has_left & is_under_way).sum(),
        n_no_end=(has_left & ~is_under_way).sum(),
        n_negative=(c("us") < 0).sum(),
    )
    return sums.sort("pipeline").collect().to_pandas()
