"""Values at ranks are exact, whatever the unit and the size of blocks; NaN is no duration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from buildframe import metrics
from buildframe.metrics import ranked_groups
from buildframe.metrics.input_frames import RowGroups
from tests.metrics.any_frame import connect_duckdb
from tests.metrics.random_frames import jobs_of

KEYS: list[Any] = [None, "queue", ["pipeline", metrics.step], "build_id"]
KINDS_OF_ROWS: list[Callable[[Any], Any]] = [lambda rows: rows, lambda rows: rows.pl(), lambda rows: rows.df()]
"""A relation of DuckDB, and its rows in Polars and pandas."""


def test_blocks_of_rows_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_of("many")
    expected = [metrics.percentiles(jobs, by=by) for by in KEYS]
    monkeypatch.setattr(ranked_groups, "_BLOCK", 7)
    for by, frame in zip(KEYS, expected, strict=True):
        pd.testing.assert_frame_equal(metrics.percentiles(jobs, by=by), frame)


@pytest.mark.parametrize("unit", ["ms", "us", "33 days"])
def test_values_at_ranks_are_exact_whatever_their_unit(unit: str) -> None:
    """Whole milliseconds of up to 24 days are sorted as integers, all others as floats."""
    random = np.random.default_rng(1)
    whole = random.integers(-5_000_000, 5_000_000, 500)
    values = {"ms": whole / 1000, "us": whole / 1_000_000, "33 days": whole / 1000 * 600}[unit]
    codes, n = random.integers(0, 3, 500), np.zeros(3, np.int64)
    np.add.at(n, codes, 1)
    columns = pd.DataFrame({"value": values})
    rows = ranked_groups.RankedGroups(RowGroups(columns, codes, pd.DataFrame(index=range(3))))
    ordered = [np.sort(values[codes == group]) for group in range(3)]
    ranks_of_all = np.arange(1, n.min() + 1)
    np.testing.assert_array_equal(
        rows.values_at(np.tile(ranks_of_all, (3, 1))), [group[: n.min()] for group in ordered]
    )
    limits = np.array([-3, 0, 2])
    expected = [np.searchsorted(group, limit) for group, limit in zip(ordered, limits, strict=True)]
    assert rows.count_before(np.arange(3), limits).tolist() == expected


def test_seconds_that_are_no_number_are_no_duration() -> None:
    rows = duckdb.sql(
        "SELECT CASE WHEN i % 4 = 0 THEN 'NaN'::DOUBLE WHEN i % 4 > 1 THEN i END AS x_s FROM range(80) t(i)"
    )
    results = [metrics.percentiles(made(rows), of="x_s", q=0.5) for made in KINDS_OF_ROWS]
    assert [result[["n", "p50_s"]].values.tolist() for result in results] == [[[40, 40.5]]] * 3


def test_nulls_and_numbers_that_are_none_are_one_key() -> None:
    key = "CASE i % 4 WHEN 0 THEN 1.5 WHEN 1 THEN 'NaN'::DOUBLE WHEN 2 THEN 'NaN'::DOUBLE END"
    rows = connect_duckdb().sql(f"SELECT i::DOUBLE AS x_s, {key} AS key FROM range(40) t(i)")
    results = [metrics.percentiles(made(rows), of="x_s", by="key", q=0.5) for made in KINDS_OF_ROWS]
    assert [result[["n", "p50_s"]].values.tolist() for result in results] == [[[10, 18.0], [30, 20.0]]] * 3
