"""Every summary gives the same result for a frame of any library, whatever the rows; the door reads what is needed."""

from __future__ import annotations

import inspect
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.metrics import input_frames
from tests.metrics.any_frame import (
    FUNCTIONS,
    LIBRARIES,
    SMALL,
    SUMMARIES,
    assert_same,
    connect_duckdb,
    differences,
    flaky_tests,
    frame_on,
    in_duckdb,
    plain_of,
    table_of,
)
from tests.metrics.random_frames import jobs_of
from tests.refusals import wrong_refusals

COMPARED_ELSEWHERE = {"explain", "flaky_board", "flaky_lifecycle", "time_ledger", "with_seconds"}
"""Functions of other rows than jobs and builds, or of both, or with a result for each row."""

UTC = "datetime64[us, UTC]"


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_frames, "_BATCH_ROWS", 700)


# --- the same results


def test_no_summary_is_forgotten() -> None:
    """A summary is a public function whose first argument is a frame of any library."""
    first = {
        name: next(iter(inspect.signature(getattr(metrics, name)).parameters.values())) for name in metrics.__all__
    }
    of_any_frame = {name for name, parameter in first.items() if parameter.annotation == "Frame"}
    assert of_any_frame - COMPARED_ELSEWHERE == {*FUNCTIONS}


@pytest.mark.parametrize(
    "way", ["polars, lazy", "duckdb in New York", "duckdb, enums", "arrow, in another order", "categories", "objects"]
)
def test_summaries_are_those_of_pandas(way: str) -> None:
    assert differences((name, way, "many") for name in SUMMARIES) == {}


def test_summaries_do_not_depend_on_how_pandas_infers_texts() -> None:
    expected = {name: SUMMARIES[name](frame_on("pandas", table_of(name), "many")) for name in SUMMARIES}
    with pytest.warns(pd.errors.Pandas4Warning), pd.option_context("future.infer_string", False):
        results = {name: SUMMARIES[name](frame_on("pandas", table_of(name), "many")) for name in SUMMARIES}
    for name, result in results.items():
        if isinstance(result, pd.DataFrame):  # names of columns are objects, which pandas decides
            assert_same(result.rename(columns=str), expected[name].rename(columns=str))


@pytest.mark.parametrize("kind", SMALL)
def test_summaries_of_few_rows_are_those_of_pandas(kind: str) -> None:
    plain = [name for function in FUNCTIONS for name in plain_of(function)]
    of_kind = [name for name in plain if table_of(name) == "jobs" or kind != "only waiters"]
    ways = ["duckdb", *(["columns without a type"] if kind == "all null" else [])]
    assert differences((name, way, kind) for name in of_kind for way in ways) == {}


@pytest.mark.parametrize("library", LIBRARIES)
def test_of_flaky_tests(library: str) -> None:
    before, after = flaky_tests()
    convert = LIBRARIES[library]
    assert_same(metrics.flaky_board(convert(after), convert(before)), metrics.flaky_board(after, before))


# --- columns


def test_columns_have_their_types_when_fetched() -> None:
    """Values by hand. A known name decides; other columns keep their values."""
    rows = connect_duckdb("Asia/Tokyo").sql(
        """
        SELECT * FROM (VALUES
            ('web'::ENUM ('web', 'api'), 3::TINYINT, true, '2026-10-01 09:00:00+09'::TIMESTAMPTZ, 1.25::DECIMAL(9, 2),
             NULL, 'x', 7::BIGINT, INTERVAL 2 SECONDS),
            (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
        ) AS t(pipeline, build_number, blocked, created_at, cost_s, commit, owner, shard, wait)
        """
    )
    found = input_frames.read_columns(rows.select("* EXCLUDE wait"), ["created_at", "pipeline", "shard"], [
        "build_number", "blocked", "cost_s", "commit", "owner", "missing",
    ])  # fmt: skip
    assert {name: str(dtype) for name, dtype in found.dtypes.items()} == {
        "created_at": UTC,
        "pipeline": "str",
        "shard": "Int64",
        "build_number": "Int64",
        "blocked": "boolean",
        "cost_s": "float64",
        "commit": "str",
        "owner": "str",
    }
    assert found.iloc[0].to_dict() | {"commit": None} == {
        "created_at": pd.Timestamp("2026-10-01", tz="UTC"),
        "pipeline": "web",
        "shard": 7,
        "build_number": 3,
        "blocked": True,
        "cost_s": 1.25,
        "commit": None,
        "owner": "x",
    }
    assert found.iloc[1].isna().all()


def test_a_pandas_frame_that_is_right_is_not_copied() -> None:
    jobs = jobs_of("many")
    found = input_frames.read_columns(jobs, ["created_at", "exit_status"])
    assert np.shares_memory(found["created_at"].array._ndarray, jobs["created_at"].array._ndarray)
    assert np.shares_memory(found["exit_status"].array._data, jobs["exit_status"].array._data)


def test_only_the_columns_that_are_needed_are_read() -> None:
    jobs = metrics.with_seconds(jobs_of("many"))
    unreadable = in_duckdb(jobs).select("*, error('was read') AS unreadable")
    assert_same(metrics.percentiles(unreadable, by="queue"), metrics.percentiles(jobs, by="queue"))


def test_frames_of_other_libraries_are_read_once() -> None:
    """A stream of Arrow gives its rows one time."""
    jobs = jobs_of("many")
    stream = pa.RecordBatchReader.from_stream(pa.Table.from_pandas(jobs, preserve_index=False))
    assert_same(metrics.trend(stream, metrics.run_time), metrics.trend(jobs, metrics.run_time))


def test_times_are_keys_in_utc_in_a_session_of_another_zone() -> None:
    by_time = metrics.percentiles(frame_on("duckdb in New York", "jobs", "few"), by="build_created_at")
    assert by_time["build_created_at"].dtype == UTC
    assert_same(by_time, metrics.percentiles(frame_on("pandas", "jobs", "few"), by="build_created_at"))


@pytest.mark.parametrize("library", LIBRARIES)
def test_custom_functions_receive_a_pandas_frame(library: str) -> None:
    jobs = jobs_of("many")

    def doubled(frame: pd.DataFrame) -> pd.Series:
        return 2 * metrics.run_time(frame)

    def initial(frame: pd.DataFrame) -> pd.Series:
        return frame["name"].str[:2]

    rows = LIBRARIES[library](jobs)
    assert_same(metrics.percentiles(rows, of=doubled, by=initial), metrics.percentiles(jobs, of=doubled, by=initial))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_custom_column(library: str) -> None:
    jobs = jobs_of("many").assign(twice_s=2 * jobs_of("many").pipe(metrics.run_time).dt.total_seconds())
    result = metrics.percentiles(LIBRARIES[library](jobs), of="twice_s", by="queue")
    assert_same(result, metrics.percentiles(jobs, of="twice_s", by="queue"))
    assert result["n_censored"].isna().all()


def test_seconds_replace_timestamps_that_are_missing() -> None:
    jobs = metrics.with_seconds(jobs_of("many"))
    stored = jobs[["queue", "run_time_s"]]
    expected = metrics.percentiles(stored, of="run_time_s", by="queue")
    assert_same(metrics.percentiles(pl.from_pandas(stored), of=metrics.run_time, by="queue"), expected)


# --- more than memory holds


def test_of_a_relation_only_numbers_and_codes_are_kept() -> None:
    jobs = in_duckdb(jobs_of("many"))
    rows = input_frames.read_rows(
        jobs, lambda batch: batch[["build_id"]][batch["type"] == "script"], ["type", "build_id"], by="queue"
    )
    assert isinstance(rows.columns["build_id"].dtype, pd.CategoricalDtype)
    scripts = jobs_of("many").query("type == 'script'")
    assert rows.columns["build_id"].astype("str").sort_values().tolist() == scripts["build_id"].sort_values().tolist()
    assert rows.keys["queue"].tolist()[:2] == ["default", "macos"]
    assert np.bincount(rows.codes).tolist() == scripts["queue"].value_counts(dropna=False, sort=False).loc[
        ["default", "macos", np.nan]
    ].tolist()  # fmt: skip


KEYS = st.sampled_from(["a", "b", None])
NUMBERS = st.sampled_from([0.0, 1.5, None])


@given(st.lists(st.tuples(KEYS, NUMBERS), max_size=40), st.integers(1, 12))
def test_groups_come_whole(keys: list[tuple[Any, Any]], n_rows: int) -> None:
    table = pa.table(
        {
            "key": pa.array([key for key, _ in keys], pa.string()),
            "share": pa.array([share for _, share in keys], pa.float64()),
            "place": pa.array(range(len(keys)), pa.int64()),
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_frames, "_BATCH_ROWS", n_rows)
        relation = duckdb.connect().from_arrow(table)
        groups = [
            rows["place"].tolist() for rows in input_frames.read_whole_groups(relation, ["key", "share"], ["place"])
        ]
    assert sorted(place for places in groups for place in places) == list(range(len(keys)))
    keys_of_parts = [{repr(keys[place]) for place in places} for places in groups]
    assert sum(map(len, keys_of_parts)) == len(set().union(*keys_of_parts))


@pytest.mark.parametrize("together", [True, False])
def test_builds_whose_jobs_follow_each_other_or_not(together: bool) -> None:
    jobs = metrics.with_seconds(jobs_of("many"))
    rows = in_duckdb(jobs.sort_values("build_id", ascending=False) if together else jobs)
    for of in (metrics.active_time, metrics.time_to_pass):
        pd.testing.assert_series_equal(of(rows), of(jobs))


# --- what is refused


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_error_names_the_missing_column(library: str) -> None:
    jobs = LIBRARIES[library](jobs_of("few").drop(columns="runnable_at"))
    calls = {
        r"no column 'runnable_at'; it comes with ws\.jobs\(\)": (metrics.queue_time, None),
        "no column 'nonsense'": (metrics.run_time, "nonsense"),
    }
    assert wrong_refusals(zip(calls, calls, strict=True), lambda words: metrics.percentiles(jobs, *calls[words])) == {}


@pytest.mark.parametrize("library", LIBRARIES)
def test_keys_that_have_no_order_are_refused(library: str) -> None:
    jobs = metrics.with_seconds(jobs_of("few"))
    odd = {"a_list": [["a"]] * len(jobs), "a_struct": [{"a": 1}] * len(jobs)}
    frame = LIBRARIES[library](jobs.assign(**odd))
    cases = [(by, f"'{name}' cannot be grouped by") for name in odd for by in (name, ["queue", name])]
    assert wrong_refusals(cases, lambda by: metrics.percentiles(frame, of=metrics.run_time, by=by)) == {}


def test_another_type_than_a_frame_is_refused() -> None:
    with pytest.raises(BadInput, match="A list"):
        metrics.success_rate([1, 2])
