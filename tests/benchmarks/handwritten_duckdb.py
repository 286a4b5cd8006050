"""Peers of the summaries in DuckDB: SQL, which ends in the summary's columns as pandas.

They take tables with the columns that `metrics.with_seconds` adds. Percentiles and their intervals need the values of
each group in order, and in time: DuckDB collects them in lists, and numpy sorts and counts.
"""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pandas as pd

from tests.benchmarks.handwritten import DAY
from tests.benchmarks.handwritten_intervals import CELLS, Durations, percentile_columns, shift_of
from tests.benchmarks.handwritten_jobs import HALF_HOUR, UNDER_WAY, ranked
from tests.benchmarks.handwritten_tables import each_day, rated_kinds, settled, summed

_VERDICTS = ("passed", "infrastructure", "killed", "undecided", "deterministic", "flaky")
_VARIANT = ("organization", "pipeline", "step", "commit", "matrix", "parallel_group_index")
_COMMIT = ("organization", "pipeline", "branch", "commit")
_CLASSES = ("retried_s", "canceled_s", "after_failure_s", "repeated_s", "useful_s")


class Sql:
    """The same questions to the tables `jobs` and `builds` of a connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def _frame(self, query: str) -> pd.DataFrame:
        return self._connection.sql(query).df()

    def _percentiles(
        self, by: str, value: str, begun: str, at: str, those: str = "true"
    ) -> tuple[pd.DataFrame, dict[str, Any]]:
        keys = ", ".join(f"k{i}" for i, _ in enumerate(by.split(", ")))
        named = ", ".join(f"{key} AS k{i}" for i, key in enumerate(by.split(", ")))
        order = ", ".join(f"{key} NULLS LAST" for key in keys.split(", "))
        seen = f"(epoch_us(coalesce(finished_at, fetched_at)) - epoch_us({begun})) // 1000000 + 1"
        has_left = f"{begun} IS NOT NULL AND {value} IS NULL"
        table = self._connection.sql(f"""
            SELECT {named}, count({value}) AS n, count(*) FILTER ({has_left}) AS n_censored,
                   count(*) FILTER ({value} < 0) AS n_negative,
                   list(({value} * 1000)::INTEGER) FILTER ({value} IS NOT NULL) AS l0,
                   list(epoch_us({at})) FILTER ({value} IS NOT NULL) AS l1,
                   list({seen}) FILTER ({has_left}) AS l2, list(epoch_us({at})) FILTER ({has_left}) AS l3
            FROM jobs WHERE {those} GROUP BY {keys} ORDER BY {order}""").to_arrow_table()
        nothing = np.zeros(0, np.int64)
        lists = ([one.values.to_numpy() if one.is_valid else nothing for one in table[f"l{i}"]] for i in range(4))
        columns = percentile_columns(Durations(*lists))
        groups = table.drop_columns([f"l{i}" for i in range(4)]).to_pandas()
        return groups, columns

    def percentiles_by_queue(self) -> pd.DataFrame:
        groups, columns = self._percentiles("queue", "queue_time_s", "runnable_at", "runnable_at", "type = 'script'")
        return groups.rename(columns={"k0": "queue"}).assign(**columns)

    def percentiles_by_step(self) -> pd.DataFrame:
        by = "pipeline, step"
        groups, columns = self._percentiles(by, "queue_time_s", "runnable_at", "runnable_at", "type = 'script'")
        return groups.rename(columns={"k0": "pipeline", "k1": "step"}).assign(**columns)

    def trend(self) -> pd.DataFrame:
        by = f"epoch_us(created_at) // {DAY}"
        groups, columns = self._percentiles(by, "run_time_s", "started_at", "created_at", "type = 'script'")
        return self._filled("jobs", groups.rename(columns={"k0": "day"}).assign(**columns))

    def _filled(self, table: str, days: pd.DataFrame) -> pd.DataFrame:
        fetched = self._connection.sql(f"SELECT epoch_us(max(fetched_at)) FROM {table}").fetchall()[0][0]
        return each_day(fetched, days)

    def _cells(self, table: str, at: str) -> tuple[str, int]:
        """The cell of a row's time, and how many cells there are."""
        limits = self._connection.sql(f"SELECT epoch_us(min({at})), epoch_us(max({at})) FROM {table}").fetchall()
        (first, last), *_ = limits
        shift = shift_of(first, last)
        return f"(epoch_us({at}) >> {shift}) - {first >> shift}", (last >> shift) - (first >> shift) + 1

    _SETTLED = ", ".join(
        f"count_if(state = '{state}' AND NOT coalesce(blocked, false)) AS {state}" for state in ("passed", "failed")
    )

    def success_rate(self) -> pd.DataFrame:
        cell, size = self._cells("builds", "created_at")
        cells = self._frame(f"SELECT pipeline, {cell} AS cell, {self._SETTLED} FROM builds GROUP BY ALL")
        return settled(cells, ["pipeline"], size)

    def success_trend(self) -> pd.DataFrame:
        number = f"epoch_us(created_at) // {DAY // CELLS}"
        cells = self._frame(f"SELECT {number} AS number, {self._SETTLED} FROM builds GROUP BY ALL")
        day, cell = np.divmod(cells.pop("number").to_numpy(), CELLS)
        return self._filled("builds", settled(cells.assign(day=day, cell=cell), ["day"], CELLS))

    def throughput(self) -> pd.DataFrame:
        days = self._frame(f"""
            WITH demand AS (SELECT epoch_us(created_at) // {DAY} AS day, count(*) AS demand FROM builds GROUP BY ALL),
            served AS (SELECT epoch_us(finished_at) // {DAY} AS day, count(*) AS served
                       FROM builds WHERE finished_at IS NOT NULL AND NOT coalesce(blocked, false)
                                     AND state IS DISTINCT FROM 'blocked' GROUP BY ALL)
            SELECT day, coalesce(demand, 0) AS demand, coalesce(served, 0) AS served
            FROM demand FULL JOIN served USING (day) ORDER BY day""")
        return self._filled("builds", days)

    def retry_rate(self) -> pd.DataFrame:
        cell, size = self._cells("jobs", "started_at")
        cells = self._frame(f"""
            SELECT pipeline, {cell} AS cell, count(*) AS executions, count_if(retried) AS retried,
                   count_if(retried AND state = 'passed') AS retried_passed
            FROM jobs WHERE type = 'script' AND started_at IS NOT NULL GROUP BY ALL""")
        kinds = self._frame("""
            WITH again AS (SELECT id, retry_of_type AS kind FROM jobs
                           WHERE retry_of_type IN ('automatic', 'manual'))
            SELECT pipeline, count_if(kind = 'automatic') AS automatic, count_if(kind = 'manual') AS manual
            FROM (SELECT pipeline, retried_in_job_id FROM jobs
                  WHERE retried AND type = 'script' AND started_at IS NOT NULL) AS first
            JOIN again ON first.retried_in_job_id = again.id GROUP BY ALL""")
        keys, rates = summed(cells, ["pipeline"], size, "retried", ["executions"])
        return rated_kinds(keys.merge(kinds, how="left", on="pipeline").fillna(0), rates)

    _ATTEMPTS = f"""
        WITH hard AS (SELECT *, state = 'failed' AND NOT coalesce(soft_failed, false) AS failed
                      FROM jobs WHERE type = 'script'),
        attempts AS (SELECT organization, pipeline, step, nullif(commit, 'HEAD') AS commit, matrix,
                        parallel_group_index, state = 'passed' AS passed, state = 'timed_out' AS timed_out, failed,
                        failed AND coalesce(exit_status = -1, false) AS lost,
                        failed AND coalesce(exit_status <> -1 AND signal = 'SIGKILL', false) AS killed,
                        queue, agent_id, epoch_us(finished_at) // {HALF_HOUR} AS period, finished_at
                     FROM hard WHERE failed OR state IN ('passed', 'timed_out'))"""

    def _storms(self, place: str) -> list[str]:
        """Conditions for half hours in which nearly all steps of a place only failed, at several commits."""
        often = (
            f"SELECT {place}, period FROM attempts WHERE NOT passed AND {place} IS NOT NULL GROUP BY {place}, period"
        )
        if place == "queue":
            often = f"SELECT {place}, period FROM attempts WHERE {place} IS NOT NULL GROUP BY {place}, period"
        few = "AND count_if(NOT passed) >= count_if(passed)" if place == "queue" else ""
        found = self._connection.sql(f"""{self._ATTEMPTS},
            cells AS ({often} HAVING count_if(NOT passed) >= 5 {few}),
            own AS (SELECT attempts.* FROM attempts JOIN cells USING ({place}, period)),
            steps AS (SELECT {place}, period, bool_or(passed) AS ever, count_if(passed) AS passes, count(*) AS n,
                             min(commit) FILTER (NOT passed) AS one, max(commit) FILTER (NOT passed) AS other
                      FROM own GROUP BY {place}, period, organization, pipeline, step)
            SELECT {place}, period FROM steps GROUP BY {place}, period
            HAVING count(*) >= 5 AND count_if(NOT ever) > 0.8 * count(*) AND sum(passes) * 2 <= sum(n)
                   AND min(one) <> max(other)""").fetchall()
        return [f"({place} = '{name}' AND period = {period})" for name, period in found]

    def flips(self) -> pd.DataFrame:
        counts = ", ".join(f"count_if(commit IS NOT NULL AND verdict = {i}) AS {_VERDICTS[i]}" for i in (5, 4, 3, 2, 1))
        storms = " OR ".join([*self._storms("queue"), *self._storms("agent_id")]) or "false"
        cell, size = self._cells("jobs", "finished_at")
        cells = self._frame(f"""{self._ATTEMPTS},
            outcomes AS (SELECT *, coalesce({storms}, false) AS storm FROM attempts),
            variants AS (SELECT {", ".join(_VARIANT)}, count_if(passed AND NOT storm) AS passes,
                                count_if((timed_out OR failed AND NOT lost AND NOT killed) AND NOT storm) AS failures,
                                count_if(lost AND NOT storm) AS lost, count_if(killed AND NOT storm) AS killed,
                                count_if(storm) AS storm,
                                count(*) AS attempts, min(finished_at) AS finished_at
                         FROM outcomes GROUP BY ALL),
            commits AS (SELECT organization, pipeline, step, commit, sum(attempts) AS attempts, sum(storm) AS storm,
                               bool_or(commit IS NOT NULL AND passes > 0) AS passed, min(finished_at) AS finished_at,
                               max(CASE WHEN failures > 0 AND passes > 0 THEN 5 WHEN failures > 1 THEN 4
                                        WHEN failures > 0 THEN 3 WHEN killed > 0 THEN 2 WHEN lost > 0
                                        THEN 1 ELSE 0 END) AS verdict
                        FROM variants GROUP BY ALL)
            SELECT organization, pipeline, step, {cell} AS cell,
                   count_if(commit IS NOT NULL AND (passed OR verdict > 0)) AS commits,
                   count_if(passed) AS commits_passed, {counts}, sum(storm)::BIGINT AS n_storm,
                   coalesce(sum(attempts) FILTER (commit IS NULL), 0)::BIGINT AS n_without_commit
            FROM commits GROUP BY ALL""")
        keys, rates = summed(cells, [*_VARIANT[:3]], size, "flaky", ["commits_passed"])
        return ranked(keys.assign(flake_rate=rates.pop("rate"), **rates))

    def waste(self) -> pd.DataFrame:
        own = ", ".join((*_COMMIT, "build_state", "build_created_at", "build_number"))
        parts = ", ".join(
            f"coalesce({'sum(late)' if i == 2 else f'sum(us - late) FILTER (place = {i})'}, 0) / 1e6 AS {name}"
            for i, name in enumerate(_CLASSES)
        )
        return self._frame(f"""
            WITH builds_of AS (
                SELECT build_id, arg_max(rowid, fetched_at) AS newest,
                       min(finished_at) FILTER ((state = 'failed' AND NOT coalesce(soft_failed, false)
                                                 OR state = 'timed_out')
                                                AND NOT coalesce(retried, false)) AS failed_at
                FROM jobs GROUP BY build_id),
            repeats AS (
                SELECT build_id, build_state = lag(build_state) OVER (
                    PARTITION BY {", ".join(_COMMIT)} ORDER BY build_created_at, build_number) AS repeated
                FROM (SELECT build_id, {own} FROM jobs WHERE rowid IN (SELECT newest FROM builds_of))
                WHERE build_state IN ('passed', 'failed') AND commit <> 'HEAD'),
            each_build AS (SELECT build_id, failed_at, repeated FROM builds_of LEFT JOIN repeats USING (build_id)),
            jobs_of AS (SELECT * REPLACE (CASE WHEN type = 'script' THEN started_at END AS started_at) FROM jobs),
            outcomes AS (SELECT pipeline, state, started_at, epoch_us(finished_at) - epoch_us(started_at) AS us,
                            CASE WHEN retried THEN 0 WHEN state = 'canceled' THEN 1
                                 WHEN repeated THEN 3 ELSE 4 END AS place,
                            CASE WHEN started_at IS NOT NULL AND finished_at > failed_at AND place > 1
                                 THEN epoch_us(finished_at) - epoch_us(greatest(started_at, failed_at))
                                 ELSE 0 END AS late
                     FROM jobs_of LEFT JOIN each_build USING (build_id))
            SELECT pipeline, count(us) AS n, sum(us) / 1e6 AS machine_s, {parts},
                   count_if(started_at IS NOT NULL AND us IS NULL AND state IN {UNDER_WAY}) AS n_running,
                   count_if(started_at IS NOT NULL AND us IS NULL AND state NOT IN {UNDER_WAY}) AS n_no_end,
                   count_if(us < 0) AS n_negative
            FROM outcomes GROUP BY pipeline ORDER BY pipeline""")
