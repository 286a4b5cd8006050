"""Functions take frames of other libraries through the Arrow PyCapsule interface."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import buildframe as bf
from buildframe import metrics, plots
from buildframe.errors import BadInput
from buildframe.guards.arrow_frames import as_pandas
from tests.metrics.random_frames import jobs_of


class Stream:
    """A frame of a library that nobody knows."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


KINDS: list[Callable[[pa.Table], Any]] = [lambda table: table, Stream, pl.from_arrow, duckdb.from_arrow]
JOBS = jobs_of("many")
TABLE = pa.Table.from_pandas(JOBS)


def test_summaries_are_those_of_the_same_frame_of_pandas() -> None:
    for frame in (TABLE, Stream(TABLE)):
        pd.testing.assert_frame_equal(metrics.percentiles(frame, by="queue"), metrics.percentiles(JOBS, by="queue"))
        assert metrics.queue_time(jobs=frame).tolist() == metrics.queue_time(JOBS).tolist()


def test_frames_of_polars_and_duckdb_stay_for_functions_of_any_frame() -> None:
    for kind in KINDS[2:]:
        frame = kind(TABLE)
        assert as_pandas(frame, Any) is frame
        assert isinstance(as_pandas(frame, pd.DataFrame | None), pd.DataFrame)


def test_plots_and_files_take_them(tmp_path: Path) -> None:
    assert plots.trend(Stream(TABLE), of=metrics.queue_time, by="queue").get_ylabel()
    for kind in KINDS:
        saved = bf.load(bf.save(tmp_path / "jobs.parquet", kind(TABLE)))
        pd.testing.assert_frame_equal(saved, JOBS, check_like=True)


def test_a_column_is_no_frame() -> None:
    with pytest.raises(BadInput, match="A ChunkedArray is not a frame"):
        metrics.percentiles(TABLE["queue"])


def test_results_have_the_interface() -> None:
    result = metrics.percentiles(JOBS, by="queue")
    assert pl.from_arrow(pa.table(result)).to_pandas()["n"].tolist() == result["n"].tolist()
