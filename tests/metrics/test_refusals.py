"""Invalid arguments, columns and frames raise BadInput with a sentence, not an error of the library of the frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from buildframe import metrics
from tests.metrics.any_frame import LIBRARIES, SUMMARIES, assert_same, table_of
from tests.metrics.random_frames import builds_of, jobs_of
from tests.refusals import wrong_messages, wrong_refusals

JOBS = jobs_of("many")
BUILDS = builds_of("many")

CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: metrics.percentiles(JOBS, q="x"), "q='x' is not a fraction"),
    (lambda: metrics.percentiles(JOBS, q=[None]), "is not a fraction or a list"),
    (lambda: metrics.recovery_time(BUILDS, branch="main", q=50), "q=50.0 lies outside"),
    (lambda: metrics.percentiles(JOBS, None), "of=None is neither a metric"),
    (lambda: metrics.percentiles(JOBS, [metrics.run_time]), "is neither a metric nor"),
    (lambda: metrics.percentiles(JOBS, lambda rows: metrics.run_time(rows).to_numpy()), "must return a Series"),
    (lambda: metrics.percentiles(JOBS, metrics.active_time), "frame['build_id'].map"),
    (lambda: metrics.percentiles(JOBS, lambda rows: metrics.run_time(rows).sort_values()), "on the frame's index"),
    (lambda: metrics.percentiles(JOBS, by=lambda rows: rows["queue"].sort_values()), "on the frame's index"),
    (lambda: metrics.waste(JOBS, by=5), "by=5: "),
    (lambda: metrics.concurrency(JOBS, by=[None]), "by=None: "),
    (lambda: metrics.utilization(JOBS, by=[1]), "by=1: "),
    (lambda: metrics.percentiles(JOBS.assign(odd=[[1]] * len(JOBS)), by="odd"), "'odd' cannot be grouped by"),
    (lambda: metrics.trend(BUILDS, freq=None), "freq=None"),
    (lambda: metrics.trend(BUILDS, freq=5), "freq=5"),
    (lambda: metrics.trend(BUILDS, freq="1us"), "buckets"),
    (lambda: metrics.trend(BUILDS, freq="999999999D"), "freq='999999999D'"),
    (lambda: metrics.trend(BUILDS, freq="99999YS"), "freq='99999YS-JAN'"),
    (lambda: metrics.trend(BUILDS, tz=None), "tz=None is not a time zone"),
    (lambda: metrics.throughput(BUILDS, tz=5), "tz=5 is not a time zone"),
    (lambda: metrics.trend(BUILDS, at=["created_at"]), "at="),
    (lambda: metrics.outages(BUILDS, branch=["main"]), "Pass either branch="),
    (lambda: metrics.red_share(BUILDS, branch=5), "Pass either branch="),
    (lambda: metrics.queue_time(None), "A NoneType is not a pandas DataFrame"),
    (lambda: metrics.step([JOBS]), "metrics.with_seconds(frame) adds"),
    (lambda: metrics.latest(None), "not a pandas DataFrame, which metrics.latest needs"),
    (lambda: metrics.with_seconds(None), "A NoneType is not a frame"),
    (lambda: metrics.with_seconds(pd.concat([BUILDS, BUILDS[["id"]]], axis=1)), "2 columns named 'id'"),
    (lambda: metrics.success_rate([BUILDS]), "A list is not a frame"),
]
"""Calls that are refused, and what the sentence contains."""


def test_arguments() -> None:
    assert wrong_messages((words, call) for call, words in CALLS) == {}


def test_one_percentile_and_those_of_a_generator() -> None:
    assert "p95_s" in metrics.percentiles(JOBS, q=0.95)
    assert {"p50_s", "p90_s"} <= set(metrics.percentiles(JOBS, q=(p for p in (0.5, 0.9))))


OF_ANOTHER_TYPE = {
    "success_rate": "blocked",
    "outages": "number",
    "flips": "exit_status",
    "waste": "retried",
    "concurrency": "started_at",
    "outcomes_by_commit": "finished_at",
}
"""A column of texts for each summary, which needs another type."""


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_column_of_another_type(library: str) -> None:
    frames = {"builds": metrics.with_seconds(BUILDS), "jobs": metrics.with_seconds(JOBS)}
    rows = {
        name: LIBRARIES[library](frames[table_of(name)].assign(**{column: "no"}))
        for name, column in OF_ANOTHER_TYPE.items()
    }
    cases = [(name, f"column '{column}' holds") for name, column in OF_ANOTHER_TYPE.items()]
    assert wrong_refusals(cases, lambda name: SUMMARIES[name](rows[name])) == {}


@pytest.mark.parametrize("library", ["pandas", *LIBRARIES])
def test_naive_times_are_refused(library: str) -> None:
    naive = metrics.with_seconds(JOBS)
    naive["finished_at"] = naive["finished_at"].dt.tz_localize(None)
    rows = LIBRARIES.get(library, lambda frame: frame)(naive)
    cases = [(name, "finished_at") for name in ("outcomes_by_commit", "flips", "waste", "concurrency")]
    assert wrong_refusals(cases, lambda name: SUMMARIES[name](rows)) == {}


def test_frames_of_arrow_types_are_as_those_fetched(tmp_path: Any) -> None:
    metrics.with_seconds(JOBS).to_parquet(tmp_path / "jobs.parquet")
    read = pd.read_parquet(tmp_path / "jobs.parquet", dtype_backend="pyarrow")
    assert_same(metrics.percentiles(read, by="queue"), metrics.percentiles(JOBS, by="queue"))
    assert_same(metrics.waste(read), metrics.waste(JOBS))
    lasted = read.assign(lasted=read["finished_at"] - read["started_at"])
    n_lasted = metrics.percentiles(lasted, of="lasted")["n"]
    assert n_lasted.tolist() == [(JOBS["finished_at"] - JOBS["started_at"]).notna().sum()]


def test_keys_have_the_type_and_order_of_fetched_ones() -> None:
    assert metrics.percentiles(pd.DataFrame(columns=JOBS.columns), by="queue")["queue"].dtype == "str"
    ordered = pl.from_pandas(metrics.with_seconds(JOBS)).with_columns(
        pl.col("queue").cast(pl.Enum(["macos", "default"]))
    )
    assert_same(metrics.percentiles(ordered, by="queue"), metrics.percentiles(JOBS, by="queue"))


def test_numbers_do_not_depend_on_the_index() -> None:
    odd = JOBS.set_axis(np.zeros(len(JOBS), int), axis=0)
    assert_same(metrics.percentiles(odd, by=metrics.step), metrics.percentiles(JOBS, by=metrics.step))
