from __future__ import annotations

import pandas as pd
from pandas.testing import assert_series_equal

from buildframe import metrics
from tests.metrics.metric_frames import START, at, jobs
from tests.refusals import columns_not_named, refusal, wrong_messages

ROW_METRICS = {
    metrics.queue_time: ("runnable_at", "started_at"),
    metrics.dependency_wait: ("created_at", "runnable_at"),
    metrics.run_time: ("started_at", "finished_at"),
    metrics.turnaround: ("runnable_at", "finished_at"),
    metrics.wall_time: ("created_at", "finished_at"),
}


def minutes(series: pd.Series) -> list[float | None]:
    return [None if pd.isna(value) else value / pd.Timedelta(1, "min") for value in series]


def test_each_duration():
    frame = jobs(created_at=at(0), runnable_at=at(1), started_at=at(4), finished_at=at(14.5))
    measured = {metric.__name__: minutes(metric(frame)) for metric in ROW_METRICS}
    assert measured == {
        "queue_time": [3],
        "dependency_wait": [1],
        "run_time": [10.5],
        "turnaround": [13.5],
        "wall_time": [14.5],
    }


def test_queue_time_is_of_script_jobs_only():
    frame = jobs(runnable_at=at(0, 0, 0), started_at=at(1, 1, 1)).assign(type=["script", "trigger", None])
    assert minutes(metrics.queue_time(frame)) == [1, None, None]


def test_missing_stamps_are_nat_and_negative_ones_are_kept():
    for metric, (start, end) in ROW_METRICS.items():
        frame = jobs(**{start: at(0, None, 5, None), end: at(None, 0, 3, None)}).set_axis([7, 7, 3, 1])
        result = metric(frame)
        assert minutes(result) == [None, None, -2, None], metric
        assert result.dtype == "timedelta64[us]", metric
        assert list(result.index) == [7, 7, 3, 1], metric


def test_empty_and_untyped_null_columns():
    for metric, ends in ROW_METRICS.items():
        for rows in (0, 3):
            result = metric(jobs(**{name: [None] * rows for name in ends}))
            assert (result.dtype, len(result), result.isna().all()) == ("timedelta64[us]", rows, True), metric


def test_a_missing_column_is_named_with_its_source():
    frames = {metric: jobs(**dict.fromkeys(ends, at(1))) for metric, ends in ROW_METRICS.items()}
    for source in ("ws.jobs()", "ws.history()"):
        missing = {metric: columns_not_named(metric, frames[metric], ends, source)
                   for metric, ends in ROW_METRICS.items()}  # fmt: skip
        assert set().union(*missing.values()) == set(), source
    assert "no column 'type'" in refusal(metrics.queue_time, frames[metrics.queue_time].drop(columns="type"))


def test_zones_and_units_may_differ():
    there = at(0).dt.tz_convert("Asia/Kathmandu").dt.as_unit("ns")
    result = metrics.run_time(jobs(started_at=there, finished_at=at(2).dt.as_unit("s")))
    assert result.dtype == "timedelta64[us]"
    assert minutes(result) == [2]


def test_naive_times_texts_and_doubled_columns_are_refused():
    frame = jobs(started_at=at(0), finished_at=at(1))
    naive, text = frame["started_at"].dt.tz_localize(None), [START.isoformat()]
    assert wrong_messages([
        ("'started_at' have no time zone", lambda: metrics.run_time(frame.assign(started_at=naive))),
        ("'started_at' holds str, not timestamps", lambda: metrics.run_time(frame.assign(started_at=text))),
        ("2 columns named 'finished_at'", lambda: metrics.run_time(pd.concat([frame, frame[["finished_at"]]], axis=1))),
    ]) == {}  # fmt: skip


def test_metrics_work_in_assign_and_leave_the_frame_alone():
    frame = jobs(runnable_at=at(0, 1), started_at=at(2, None))
    before = frame.copy(deep=True)
    assert minutes(frame.assign(queued=metrics.queue_time)["queued"]) == [2, None]
    pd.testing.assert_frame_equal(frame, before)


def test_a_parquet_reader_that_keeps_nullable_texts_is_fine():
    frame = jobs(runnable_at=at(0, 0), started_at=at(1, 1))
    frame["type"] = pd.array(["script", None], dtype="string")
    assert_series_equal(metrics.queue_time(frame), metrics.queue_time(frame.assign(type=["script", None])))
