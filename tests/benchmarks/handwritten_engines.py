"""Peers of the summaries in engines: expressions of Polars, and SQL for DuckDB.

They take frames with the columns that `metrics.with_seconds` adds, and end in the summary's columns as pandas.
Percentiles of groups with rows that were not seen to end need all their values in order: both engines sort each group
into a list.
"""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl

from tests.benchmarks.handwritten import DAY, in_days, percentile_columns, rated

c = pl.col

_VERDICTS = ("passed", "infrastructure", "undecided", "deterministic", "flaky")
_VARIANT = ("organization", "pipeline", "step", "commit", "matrix", "parallel_group_index")
_COMMIT = ("organization", "pipeline", "branch", "commit")
_CLASSES = ("retried_s", "canceled_s", "after_failure_s", "repeated_s", "useful_s")


def _with_rates(counts: pd.DataFrame, x: str, n: str) -> pd.DataFrame:
    return counts.assign(**rated(counts[x].to_numpy(np.float64), counts[n].to_numpy(np.float64)))


def _kinds_rated(counts: pd.DataFrame) -> pd.DataFrame:
    counts = counts.assign(of_unknown_kind=counts["retried"] - counts["automatic"] - counts["manual"])
    rated = _with_rates(counts, "retried", "executions")
    return rated.assign(**{f"{kind}_rate": counts[kind] / counts["executions"] for kind in ("automatic", "manual")})


def _ranked(steps: pd.DataFrame) -> pd.DataFrame:
    return _with_rates(steps, "flaky", "commits_passed").rename(columns={"rate": "flake_rate"})


def _each_day(fetched_at: int, days: pd.DataFrame) -> pd.DataFrame:
    """Rows by `day`, also of those in which there was nothing."""
    result = days.set_index("day")
    first, last = result.index[[0, -1]]
    result = result.reindex(range(first, last + 1))
    counts = {name: result[name].fillna(0) for name in result if not name.endswith("_s") and name != "rate"}
    return in_days(fetched_at, first, len(result), dict(result.assign(**counts).reset_index(drop=True).items()))


# In Polars


def _percentiles(frame: pl.DataFrame, by: list[Any], value: str, begun: str) -> tuple[pl.DataFrame, dict[str, Any]]:
    x, is_left = c(value), c(begun).is_not_null() & c(value).is_null()
    counts = {"n": x.count(), "n_censored": is_left.sum(), "n_negative": (x < 0).sum()}
    seen = pl.coalesce("finished_at", "fetched_at").dt.epoch("us") - c(begun).dt.epoch("us")
    left = ((seen / 1e6).floor() + 1).filter(is_left).sort()
    grouped = frame.lazy().group_by(by).agg(**counts, values=x.drop_nulls().sort(), left=left)
    groups = grouped.sort(grouped.collect_schema().names()[: len(by)], nulls_last=True).collect()
    lists = ([one.to_numpy() for one in groups[name]] for name in ("values", "left"))
    return groups.drop("values", "left"), percentile_columns(*lists)


_SCRIPT = c("type") == "script"


def percentiles_by_queue(jobs: pl.DataFrame) -> pd.DataFrame:
    groups, columns = _percentiles(jobs.filter(_SCRIPT), ["queue"], "queue_time_s", "runnable_at")
    return groups.to_pandas().assign(**columns)


def percentiles_by_step(jobs: pl.DataFrame) -> pd.DataFrame:
    groups, columns = _percentiles(jobs.filter(_SCRIPT), ["pipeline", "step"], "queue_time_s", "runnable_at")
    return groups.to_pandas().assign(**columns)


def trend(jobs: pl.DataFrame) -> pd.DataFrame:
    day = c("created_at").dt.epoch("us") // DAY
    groups, columns = _percentiles(jobs, [day.alias("day")], "run_time_s", "started_at")
    return _filled(jobs, groups.to_pandas().assign(**columns))


def _filled(frame: pl.DataFrame, days: pd.DataFrame) -> pd.DataFrame:
    return _each_day(frame.select(c("fetched_at").dt.epoch("us").max()).item(), days)


def _settled() -> dict[str, pl.Expr]:
    open_again = ~c("blocked").fill_null(value=False)
    return {state: ((c("state") == state) & open_again).sum() for state in ("passed", "failed")}


def success_rate(builds: pl.DataFrame) -> pd.DataFrame:
    counts = builds.lazy().group_by("pipeline").agg(**_settled()).sort("pipeline").collect().to_pandas()
    return _with_rates(counts.assign(n=counts["passed"] + counts["failed"]), "passed", "n")


def success_trend(builds: pl.DataFrame) -> pd.DataFrame:
    counts = builds.lazy().group_by(day=c("created_at").dt.epoch("us") // DAY).agg(**_settled()).sort("day").collect()
    result = counts.to_pandas()
    return _filled(builds, _with_rates(result.assign(n=result["passed"] + result["failed"]), "passed", "n"))


def throughput(builds: pl.DataFrame) -> pd.DataFrame:
    ended = builds.lazy().filter(~c("blocked").fill_null(value=False))
    days = [
        rows.group_by(day=c(at).dt.epoch("us") // DAY).agg(pl.len().alias(name))
        for name, rows, at in (("demand", builds.lazy(), "created_at"), ("served", ended, "finished_at"))
    ]
    both = days[0].join(days[1].filter(c("day").is_not_null()), on="day", how="full", coalesce=True).sort("day")
    return _filled(builds, both.collect().fill_null(0).to_pandas())


def retry_rate(jobs: pl.DataFrame) -> pd.DataFrame:
    executions = jobs.lazy().filter(c("type") == "script", c("started_at").is_not_null())
    retried = c("retried").fill_null(value=False)
    passed = (retried & (c("state") == "passed")).sum()
    counts = executions.group_by("pipeline").agg(executions=pl.len(), retried=retried.sum(), retried_passed=passed)
    again = jobs.lazy().filter(c("retry_type").is_in(["automatic", "manual"])).select("id", kind="retry_type")
    kinds = executions.filter(retried).select("pipeline", id="retried_in_job_id").join(again, on="id")
    by_kind = {kind: (c("kind") == kind).sum() for kind in ("automatic", "manual")}
    result = counts.join(kinds.group_by("pipeline").agg(**by_kind), on="pipeline", how="left").sort("pipeline")
    return _kinds_rated(result.collect().fill_null(0).to_pandas())


def flips(jobs: pl.DataFrame) -> pd.DataFrame:
    state, soft = c("state"), c("soft_failed").fill_null(value=False)
    hard = (state == "failed") & ~soft
    lost = hard & (c("signal").is_not_null() | (c("exit_status") == -1).fill_null(value=False))
    outcome = {"passes": state == "passed", "failures": hard & ~lost | (state == "timed_out"), "lost": lost}
    known = pl.when(c("commit") != "HEAD").then(c("commit"))
    result = jobs.lazy().filter(c("type") == "script").select(*(set(_VARIANT) - {"commit"}), commit=known, **outcome)
    result = result.filter(c("passes") | c("failures") | c("lost"))
    variants = result.group_by(_VARIANT).agg(c(name).sum() for name in outcome)
    unlike = pl.when(c("passes") > 0).then(4).when(c("failures") > 1).then(3).otherwise(2)
    verdict = pl.when(c("failures") > 0).then(unlike).otherwise((c("lost") > 0).cast(pl.Int32))
    commits = variants.group_by(_VARIANT[:4]).agg(
        verdict=verdict.max(), passed=(c("passes") > 0).any(), attempts=pl.sum_horizontal(*outcome).sum()
    )
    has_commit = c("commit").is_not_null()
    steps = commits.group_by(_VARIANT[:3]).agg(
        commits=has_commit.sum(),
        commits_passed=(has_commit & c("passed")).sum(),
        **{_VERDICTS[i]: (has_commit & (c("verdict") == i)).sum() for i in (4, 3, 2, 1)},
        n_without_commit=c("attempts").filter(~has_commit).sum(),
    )
    return _ranked(steps.sort(_VARIANT[:3], nulls_last=True).collect().to_pandas())


def waste(jobs: pl.DataFrame) -> pd.DataFrame:
    retried = c("retried").fill_null(value=False)
    hard = (c("state") == "failed") & ~c("soft_failed").fill_null(value=False) | (c("state") == "timed_out")
    failed_at = c("finished_at").filter(hard & ~retried).min().alias("failed_at")
    firsts = [c(name).first() for name in (*_COMMIT, "build_state", "build_created_at", "build_number")]
    builds = jobs.lazy().group_by("build_id").agg(failed_at, *firsts).sort("build_created_at", "build_number")
    settled = c("build_state").is_in(["passed", "failed"]) & (c("commit") != "HEAD").fill_null(value=False)
    same = c("build_state") == c("build_state").shift(1).over(_COMMIT)
    repeats = builds.filter(settled).select("build_id", repeated=same.fill_null(value=False))
    each = builds.select("build_id", "failed_at").join(repeats, on="build_id", how="left")
    us = c("finished_at").dt.epoch("us") - c("started_at").dt.epoch("us")
    place = pl.when(retried).then(0).when(c("state") == "canceled").then(1).when(c("repeated")).then(3).otherwise(4)
    after = c("finished_at").dt.epoch("us") - pl.max_horizontal("started_at", "failed_at").dt.epoch("us")
    is_late = (place > 1) & c("started_at").is_not_null() & (c("finished_at") > c("failed_at"))
    late = pl.when(is_late).then(after).otherwise(0)
    result = (
        jobs.lazy()
        .join(each, on="build_id", how="left")
        .select("pipeline", "started_at", us=us, place=place, late=late)
    )
    parts = {name: (c("us") - c("late")).filter(c("place") == i).sum() / 1e6 for i, name in enumerate(_CLASSES)}
    parts["after_failure_s"] = c("late").sum() / 1e6
    sums = result.group_by("pipeline").agg(
        n=c("us").count(),
        machine_s=c("us").sum() / 1e6,
        **parts,
        n_running=(c("started_at").is_not_null() & c("us").is_null()).sum(),
        n_negative=(c("us") < 0).sum(),
    )
    return sums.sort("pipeline").collect().to_pandas()


# In SQL


class Sql:
    """The same questions to the tables `jobs` and `builds` of a connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def _frame(self, query: str) -> pd.DataFrame:
        return self._connection.sql(query).df()

    def _percentiles(self, by: str, value: str, begun: str, those: str = "true") -> tuple[pd.DataFrame, dict[str, Any]]:
        keys = ", ".join(f"k{i}" for i, _ in enumerate(by.split(", ")))
        named = ", ".join(f"{key} AS k{i}" for i, key in enumerate(by.split(", ")))
        order = ", ".join(f"{key} NULLS LAST" for key in keys.split(", "))
        is_left = f"{begun} IS NOT NULL AND {value} IS NULL"
        left = f"floor((epoch_us(coalesce(finished_at, fetched_at)) - epoch_us({begun})) / 1e6) + 1"
        table = self._connection.sql(f"""SELECT {named}, count({value}) AS n, count(*) FILTER ({is_left}) AS n_censored,
                count(*) FILTER ({value} < 0) AS n_negative,
                coalesce(list_sort(list({value}) FILTER ({value} IS NOT NULL)), []) AS sorted_values,
                coalesce(list_sort(list({left}) FILTER ({is_left})), []) AS sorted_left
            FROM jobs WHERE {those} GROUP BY ALL ORDER BY {order}""").to_arrow_table()
        lists = ([one.values.to_numpy() for one in table[f"sorted_{name}"]] for name in ("values", "left"))
        return table.drop_columns(["sorted_values", "sorted_left"]).to_pandas(), percentile_columns(*lists)

    def percentiles_by_queue(self) -> pd.DataFrame:
        groups, columns = self._percentiles("queue", "queue_time_s", "runnable_at", "type = 'script'")
        return groups.rename(columns={"k0": "queue"}).assign(**columns)

    def percentiles_by_step(self) -> pd.DataFrame:
        groups, columns = self._percentiles("pipeline, step", "queue_time_s", "runnable_at", "type = 'script'")
        return groups.rename(columns={"k0": "pipeline", "k1": "step"}).assign(**columns)

    def trend(self) -> pd.DataFrame:
        groups, columns = self._percentiles(f"epoch_us(created_at) // {DAY}", "run_time_s", "started_at")
        return self._filled("jobs", groups.rename(columns={"k0": "day"}).assign(**columns))

    def _filled(self, table: str, days: pd.DataFrame) -> pd.DataFrame:
        fetched = self._connection.sql(f"SELECT epoch_us(max(fetched_at)) FROM {table}").fetchall()[0][0]
        return _each_day(fetched, days)

    _SETTLED = ", ".join(
        f"count_if(state = '{state}' AND NOT coalesce(blocked, false)) AS {state}" for state in ("passed", "failed")
    )

    def success_rate(self) -> pd.DataFrame:
        counts = self._frame(f"SELECT pipeline, {self._SETTLED} FROM builds GROUP BY ALL ORDER BY pipeline")
        return _with_rates(counts.assign(n=counts["passed"] + counts["failed"]), "passed", "n")

    def success_trend(self) -> pd.DataFrame:
        day = f"epoch_us(created_at) // {DAY}"
        counts = self._frame(f"SELECT {day} AS day, {self._SETTLED} FROM builds GROUP BY ALL ORDER BY day")
        rated = _with_rates(counts.assign(n=counts["passed"] + counts["failed"]), "passed", "n")
        return self._filled("builds", rated)

    def throughput(self) -> pd.DataFrame:
        days = self._frame(f"""
            WITH demand AS (SELECT epoch_us(created_at) // {DAY} AS day, count(*) AS demand FROM builds GROUP BY ALL),
            served AS (SELECT epoch_us(finished_at) // {DAY} AS day, count(*) AS served
                       FROM builds WHERE finished_at IS NOT NULL AND NOT coalesce(blocked, false) GROUP BY ALL)
            SELECT day, coalesce(demand, 0) AS demand, coalesce(served, 0) AS served
            FROM demand FULL JOIN served USING (day) ORDER BY day""")
        return self._filled("builds", days)

    def retry_rate(self) -> pd.DataFrame:
        return _kinds_rated(
            self._frame("""
            WITH executions AS (SELECT * FROM jobs WHERE type = 'script' AND started_at IS NOT NULL),
            counts AS (SELECT pipeline, count(*) AS executions, count_if(retried) AS retried,
                              count_if(retried AND state = 'passed') AS retried_passed
                       FROM executions GROUP BY ALL),
            again AS (SELECT id, retry_type AS kind FROM jobs WHERE retry_type IN ('automatic', 'manual')),
            kinds AS (SELECT pipeline, count_if(kind = 'automatic') AS automatic, count_if(kind = 'manual') AS manual
                      FROM (SELECT * FROM executions WHERE retried) AS first
                      JOIN again ON first.retried_in_job_id = again.id GROUP BY ALL)
            SELECT pipeline, executions, retried, retried_passed, coalesce(automatic, 0) AS automatic,
                   coalesce(manual, 0) AS manual
            FROM counts LEFT JOIN kinds USING (pipeline) ORDER BY pipeline""")
        )

    def flips(self) -> pd.DataFrame:
        counts = ", ".join(f"count_if(commit IS NOT NULL AND verdict = {i}) AS {_VERDICTS[i]}" for i in (4, 3, 2, 1))
        return _ranked(
            self._frame(f"""
            WITH hard AS (SELECT *, state = 'failed' AND NOT coalesce(soft_failed, false) AS failed
                          FROM jobs WHERE type = 'script'),
            outcomes AS (SELECT organization, pipeline, step, nullif(commit, 'HEAD') AS commit, matrix,
                            parallel_group_index, state = 'passed' AS passed, state = 'timed_out' AS timed_out, failed,
                            failed AND (signal IS NOT NULL OR coalesce(exit_status = -1, false)) AS lost
                     FROM hard WHERE failed OR state IN ('passed', 'timed_out')),
            variants AS (SELECT {", ".join(_VARIANT)}, count_if(passed) AS passes,
                                count_if(timed_out OR failed AND NOT lost) AS failures, count_if(lost) AS lost,
                                count(*) AS attempts
                         FROM outcomes GROUP BY ALL),
            commits AS (SELECT organization, pipeline, step, commit, sum(attempts) AS attempts,
                               bool_or(passes > 0) AS passed,
                               max(CASE WHEN failures > 0 AND passes > 0 THEN 4 WHEN failures > 1 THEN 3
                                        WHEN failures > 0 THEN 2 WHEN lost > 0 THEN 1 ELSE 0 END) AS verdict
                        FROM variants GROUP BY ALL)
            SELECT organization, pipeline, step, count(commit) AS commits,
                   count_if(passed AND commit IS NOT NULL) AS commits_passed, {counts},
                   coalesce(sum(attempts) FILTER (commit IS NULL), 0) AS n_without_commit
            FROM commits GROUP BY ALL ORDER BY organization, pipeline, step NULLS LAST""")
        )

    def waste(self) -> pd.DataFrame:
        firsts = ", ".join(
            f"any_value({name}) AS {name}" for name in (*_COMMIT, "build_state", "build_created_at", "build_number")
        )
        parts = ", ".join(
            f"coalesce({'sum(late)' if i == 2 else f'sum(us - late) FILTER (place = {i})'}, 0) / 1e6 AS {name}"
            for i, name in enumerate(_CLASSES)
        )
        return self._frame(f"""
            WITH builds_of AS (
                SELECT build_id, {firsts},
                       min(finished_at) FILTER ((state = 'failed' AND NOT coalesce(soft_failed, false)
                                                 OR state = 'timed_out')
                                                AND NOT coalesce(retried, false)) AS failed_at
                FROM jobs GROUP BY build_id),
            repeats AS (
                SELECT build_id, build_state = lag(build_state) OVER (
                    PARTITION BY {", ".join(_COMMIT)} ORDER BY build_created_at, build_number) AS repeated
                FROM builds_of WHERE build_state IN ('passed', 'failed') AND commit <> 'HEAD'),
            each_build AS (SELECT build_id, failed_at, repeated FROM builds_of LEFT JOIN repeats USING (build_id)),
            outcomes AS (SELECT pipeline, started_at, epoch_us(finished_at) - epoch_us(started_at) AS us,
                            CASE WHEN retried THEN 0 WHEN state = 'canceled' THEN 1
                                 WHEN repeated THEN 3 ELSE 4 END AS place,
                            CASE WHEN started_at IS NOT NULL AND finished_at > failed_at AND place > 1
                                 THEN epoch_us(finished_at) - epoch_us(greatest(started_at, failed_at))
                                 ELSE 0 END AS late
                     FROM jobs LEFT JOIN each_build USING (build_id))
            SELECT pipeline, count(us) AS n, sum(us) / 1e6 AS machine_s, {parts},
                   count_if(started_at IS NOT NULL AND us IS NULL) AS n_running, count_if(us < 0) AS n_negative
            FROM outcomes GROUP BY pipeline ORDER BY pipeline""")
