"""Frames of PySpark give what those of pandas give, on threads of one process and on executors of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.metrics import group_summaries, spark_frames
from tests import spark_session
from tests.metrics.any_frame import (
    SUMMARIES,
    assert_same,
    differences,
    flaky_tests,
    in_duckdb,
    in_spark,
)
from tests.metrics.random_frames import builds_of, jobs_of
from tests.refusals import refusal, wrong_refusals

ZONE = "spark.sql.session.timeZone"

# --- the same results


@pytest.fixture(scope="module")
def in_a_cluster() -> dict[str, str]:
    """How the results of a cluster differ from those of pandas, by the name of the summary."""
    spark_session.require_spark()
    command = [sys.executable, "-m", "tests.metrics.spark_cluster"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert result.returncode == 0, result.stdout[-4_000:] + result.stderr[-4_000:]
    found: dict[str, str] = json.loads(result.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("summary", SUMMARIES)
def test_executors_in_other_processes_give_the_same_as_pandas(summary: str, in_a_cluster: dict[str, str]) -> None:
    assert in_a_cluster[summary] == ""


def test_summaries_of_no_values_are_those_of_pandas() -> None:
    kinds = {
        "none": ("percentiles", "trend", "flips", "contention", "percentile_change", "waste", "time_to_pass"),
        "all null": ("survival", "outcomes_by_commit", "concurrency", "utilization", "change_points", "outages"),
    }
    assert differences((name, "spark", kind) for kind, names in kinds.items() for name in names) == {}


def test_the_board_of_flaky_tests_is_that_of_pandas() -> None:
    before, after = flaky_tests()
    assert_same(metrics.flaky_board(in_spark(after), in_spark(before)), metrics.flaky_board(after, before))


def test_a_group_that_does_not_fit_a_worker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_summaries, "MAX_GROUP_ROWS", 1_500)
    rows = in_spark(metrics.with_seconds(jobs_of("many")))
    assert len(metrics.percentiles(rows, by="build_id")) > 100
    with pytest.raises(
        BadInput, match=r"The frame.* has 3,000 rows.* at most 1,500.* shorter period .* by=\['queue', 'step'\]"
    ):
        metrics.percentiles(rows)


def test_jobs_that_do_not_queue_are_no_group() -> None:
    jobs = metrics.with_seconds(jobs_of("many"))
    is_script = jobs["type"] == "script"
    rows = in_spark(jobs.assign(queue=jobs["queue"].fillna("linux").where(is_script)))
    for result in (metrics.percentiles(rows, metrics.queue_time, by="queue"), metrics.retry_rate(rows, by="queue")):
        assert result["queue"].tolist() == ["default", "linux", "macos"]


def test_a_new_state_counts_for_neither() -> None:
    builds = builds_of("many")
    new = builds.assign(state=builds["state"].replace({"canceled": "hibernating", "running": "blocked"}))
    pd.testing.assert_frame_equal(metrics.success_rate(in_spark(new)), metrics.success_rate(builds))


# --- groups in workers


def test_an_error_in_a_worker_is_the_same_as_of_pandas() -> None:
    jobs = jobs_of("few").assign(retried=False)
    jobs["started_at"] = pd.Timestamp("0001-01-01", tz="UTC").as_unit("us")
    jobs["finished_at"] = pd.Timestamp("9999-12-31", tz="UTC").as_unit("us")
    jobs = pd.concat([jobs] * 10, ignore_index=True)
    jobs["build_id"] = [f"build-{i}" for i in range(len(jobs))]
    wrong = jobs_of("many").replace({"state": {"passed": "Success"}, "build_state": {"passed": "Success"}})
    words = {metrics.active_time: "years apart. Correct them", metrics.time_to_pass: "not a state"}
    for of, rows in ((metrics.active_time, jobs), (metrics.time_to_pass, wrong)):
        assert words[of] in refusal(of, rows)
        assert words[of] in refusal(lambda of=of, rows=rows: spark_frames.collect_table(of(in_spark(rows))))


# --- rows are measured


@pytest.mark.parametrize("of", [builds_of, jobs_of])
def test_seconds_of_rows_are_the_same_to_the_last_digit(of: Any) -> None:
    for kind in ("many", "none", "all null"):
        frame = of(kind).assign(step=metrics.step) if of is jobs_of else of(kind)
        expected = metrics.with_seconds(frame)
        found = metrics.with_seconds(in_spark(frame))
        assert found.columns == list(expected)
        types = dict(found.dtypes)
        seconds = [name for name in types if name.endswith("_s")]
        assert {types[name] for name in seconds} == {"double"}
        assert (types["day"], types.get("step", "string")) == ("date", "string")
        rows = found.toArrow()
        assert not any(pc.any(pc.is_nan(rows[name])).as_py() for name in seconds)
        found = rows.to_pandas(types_mapper=pd.ArrowDtype).astype(expected.dtypes)
        pd.testing.assert_frame_equal(found, expected, check_exact=True)


def test_columns_are_replaced_and_nothing_runs_before_rows_are_read() -> None:
    jobs = in_spark(metrics.with_seconds(jobs_of("few")).assign(run_time_s=-1.0, step="?"))
    context = spark_session.get_session().sparkContext
    context.setJobGroup("with_seconds", "")
    stored = metrics.with_seconds(jobs)
    assert not context.statusTracker().getJobIdsForGroup("with_seconds")
    assert stored.columns == jobs.columns
    rows = stored.toPandas()
    assert (rows["run_time_s"] != -1.0).all()
    assert (rows["step"] == "?").all(), "a step needs the whole build, so it stays"


def test_days_stay_those_of_utc_when_the_session_changes_its_zone() -> None:
    session = spark_session.get_session().newSession()
    session.conf.set(ZONE, "UTC")
    texts = [
        *("2026-10-25T23:30:00Z", "2026-10-25T00:00:00Z", "1969-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", None),
        "9999-12-31T23:59:59.999999Z",
    ]
    times = pd.Series([pd.Timestamp(text) if text else None for text in texts], dtype="datetime64[us, UTC]")
    builds = pd.DataFrame({"created_at": times, "finished_at": times})
    found = metrics.with_seconds(session.createDataFrame(pa.Table.from_pandas(builds, preserve_index=False)))
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        session.conf.set(ZONE, zone)
        days = [row.day for row in found.selectExpr("cast(day as string) day").collect()]
        assert days == [text and text[:10] for text in texts]


def test_what_keeps_the_latest_row_does() -> None:
    jobs = jobs_of("few")
    both = pd.concat([jobs, jobs.assign(state="running", fetched_at=jobs["fetched_at"] - pd.Timedelta(hours=1))])
    number = "row_number() OVER (PARTITION BY id ORDER BY fetched_at DESC)"
    found = in_spark(both).selectExpr("*", f"{number} of_it").where("of_it = 1").sort("id").toArrow()
    assert (
        found.select(["id", "state"]).to_pylist()
        == in_duckdb(metrics.latest(both)).select("id, state").order("id").to_arrow_table().to_pylist()
    )
    with pytest.raises(BadInput, match=r"metrics\.latest .* store .*row_number") as refused:
        metrics.latest(in_spark(jobs))
    assert "with_seconds" not in str(refused.value)


# --- what is refused


def test_frames_are_refused_before_rows_are_read() -> None:
    jobs = in_spark(jobs_of("few").assign(step=metrics.step))
    builds = in_spark(builds_of("few"))
    without_zone = builds.selectExpr("id", "created_at", "cast(finished_at as timestamp_ntz) finished_at")
    queues = jobs.selectExpr("id as job", "queue")
    twice = jobs.join(queues, jobs.id == queues.job)
    odd = jobs.selectExpr("*", "map('a', queue) a_map", "array(queue) a_list", "struct(queue) a_struct")
    named = jobs.selectExpr("*", "queue `a.queue`", "queue `a``queue`", "1.0D `a.b_s`")
    cases: list[tuple[str, Callable[[], object], str]] = [
        *(
            (name, lambda name=name: metrics.with_seconds(jobs.drop(name)), f"no column '{name}'; it comes")
            for name in ("created_at", "runnable_at", "step", "type")
        ),
        *(
            (f"{of.__name__} of Spark", lambda of=of: of(builds), r"metrics\.with_seconds\(frame\) adds")
            for of in (metrics.queue_time, metrics.step, metrics.wall_time)
        ),
        ("times without a zone", lambda: metrics.with_seconds(without_zone), "'finished_at' holds .* time zone"),
        *(
            (name, lambda name=name: SUMMARIES[name](without_zone_of(jobs)), "finished_at")
            for name in ("outcomes_by_commit", "flips", "waste", "concurrency")
        ),
        ("two columns of a name", lambda: metrics.waste(twice), "Two columns .* 'queue', as after a join"),
        *(
            (name, lambda name=name: metrics.retry_rate(odd, name), f"'{name}' cannot be grouped by: it holds {kind}<")
            for name, kind in {"a_map": "map", "a_list": "array", "a_struct": "struct"}.items()
        ),
        *(
            (name, lambda name=name: metrics.retry_rate(named, name), r"dot or .*withColumnRenamed\(.*'a_queue'\)")
            for name in ("a.queue", "a`queue")
        ),
        ("seconds", lambda: metrics.percentiles(named, of="a.b_s"), r"The column 'a\.b_s' has a dot"),
    ]
    calls = {name: call for name, call, _ in cases}
    assert len(calls) == len(cases)
    assert wrong_refusals([(name, words) for name, _, words in cases], lambda name: calls[name]()) == {}


def without_zone_of(jobs: Any) -> Any:
    return jobs.withColumn("finished_at", jobs.finished_at.cast("timestamp_ntz"))


def test_names_that_are_read_as_something_else_are_refused_only_if_they_are_used() -> None:
    jobs = jobs_of("few")
    named = in_spark(jobs.assign(**{"a.queue": jobs["queue"]}))
    assert_same(metrics.retry_rate(named, by="queue"), metrics.retry_rate(jobs, by="queue"))
    renamed = metrics.retry_rate(named.withColumnRenamed("a.queue", "a_queue"), by="a_queue")
    assert renamed.shape == metrics.retry_rate(jobs, by="queue").shape


def test_a_session_in_another_zone_is_refused() -> None:
    session = spark_session.get_session().newSession()
    session.conf.set(ZONE, "Europe/Berlin")
    jobs = session.createDataFrame(pa.Table.from_pandas(jobs_of("few"), preserve_index=False))
    cases = [(of, r"'Europe/Berlin'.*session\.conf\.set") for of in (metrics.waste, metrics.with_seconds)]
    assert wrong_refusals(cases, lambda of: of(jobs)) == {}


def test_states_of_another_spelling_are_refused() -> None:
    jobs, builds = metrics.with_seconds(jobs_of("many")), builds_of("many")
    wrong = in_spark(jobs.assign(state=jobs["state"].replace({"passed": "Passed"})))
    unknown = in_spark(builds.assign(state=pd.Series(["1", "0"] * (len(builds) // 2), dtype="str")))
    calls = [
        (lambda: metrics.retry_rate(wrong, by="queue"), "'Passed'.* means 'passed'.* Known states"),
        (lambda: metrics.success_rate(unknown), "no known state, only '0', '1'"),
    ]
    assert wrong_refusals(calls, lambda call: call()) == {}
