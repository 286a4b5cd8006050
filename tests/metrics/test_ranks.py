"""Values at ranks on each engine: with few and many groups, and of frames that change between reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.metrics.engines import duckdb as duckdb_engine
from buildframe.metrics.engines import ranks, sorted_rows
from tests.metrics.engine_frames import assert_same, connect_duckdb, halves, in_duckdb
from tests.metrics.random_frames import jobs_of


@pytest.fixture(autouse=True)
def _count_in_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make DuckDB count rows, however few they are."""
    monkeypatch.setattr(duckdb_engine, "MAX_IN_MEMORY", 0)


KEYS: list[Any] = [None, "queue", ["pipeline", metrics.step], "build_id"]
KINDS_OF_ROWS: list[Callable[[Any], Any]] = [lambda rows: rows, lambda rows: rows.pl(), lambda rows: rows.df()]
"""A relation of DuckDB, and its rows in Polars and pandas."""


def test_many_groups_are_ranked_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_MAX_COUNTED", 0)
    for kind, keys in {"many": (None, "build_id"), "none": (None,), "all null": ("build_id",)}.items():
        jobs = metrics.with_seconds(jobs_of(kind))
        rows = in_duckdb(jobs)
        for by in keys:
            result = metrics.percentiles(rows, of=metrics.run_time, by=by, q=(0.25, 0.5, 0.95))
            assert_same(result, metrics.percentiles(jobs, of=metrics.run_time, by=by, q=(0.25, 0.5, 0.95)))


def test_many_groups_are_compared_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_MAX_COUNTED", 0)
    jobs = metrics.with_seconds(jobs_of("many"))
    rows = in_duckdb(jobs)
    result, expected = (
        metrics.percentile_change(*halves(frame), metrics.queue_time, "build_id", q=(0.5, 0.9), allow_reversed=True)
        for frame in (rows, jobs)
    )
    assert expected["n_censored"].sum() > 0
    assert_same(result, expected)


def test_values_that_duckdb_counts_are_those_of_pandas() -> None:
    jobs = metrics.with_seconds(jobs_of("many"))
    rows = in_duckdb(jobs)
    for of, by in [*((metrics.queue_time, by) for by in KEYS), ("run_time_s", None)]:
        result = metrics.percentiles(rows, of, by, q=(0.25, 0.95))
        assert_same(result, metrics.percentiles(jobs, of, by, q=(0.25, 0.95)))
    assert_same(metrics.trend(rows, "run_time_s"), metrics.trend(jobs, "run_time_s"))
    assert_same(metrics.trend(rows, metrics.queue_time, "queue"), metrics.trend(jobs, metrics.queue_time, "queue"))
    assert_same(metrics.survival(rows, by="queue"), metrics.survival(jobs, by="queue"))


def test_few_values_are_ranked_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb_engine, "MAX_IN_MEMORY", 10_000_000)
    monkeypatch.setattr(ranks, "_count_rows", None)  # which counting needs
    jobs = metrics.with_seconds(jobs_of("many"))
    rows = in_duckdb(jobs)
    for of in (metrics.queue_time, "run_time_s"):
        assert_same(metrics.percentiles(rows, of, "build_id"), metrics.percentiles(jobs, of, "build_id"))


def test_blocks_of_rows_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_of("many")
    expected = [metrics.percentiles(jobs, by=by) for by in KEYS]
    monkeypatch.setattr(sorted_rows, "_BLOCK", 7)
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
    rows = sorted_rows.SortedRows(codes, values, n)
    ordered = [np.sort(values[codes == group]) for group in range(3)]
    ranks_of_all = np.arange(1, n.min() + 1)
    np.testing.assert_array_equal(
        rows.values_at(np.tile(ranks_of_all, (3, 1))), [group[: n.min()] for group in ordered]
    )
    limits = np.array([-3, 0, 2])
    expected = [np.searchsorted(group, limit) for group, limit in zip(ordered, limits, strict=True)]
    assert rows.count_before(np.arange(3), limits).tolist() == expected


def numbers(many: int = 20_000) -> pd.DataFrame:
    return pd.DataFrame({"x_s": [float(i) for i in range(many)], "key": [i % 7 for i in range(many)]})


@pytest.mark.parametrize(
    ("sample", "few"), [("USING SAMPLE 10 PERCENT (bernoulli)", 0), ("WHERE random() < 0.1", 10_000)]
)
def test_a_sample_that_is_drawn_again_is_refused(sample: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_MAX_COUNTED", few)
    connection = duckdb.connect()
    connection.register("numbers", numbers())
    drawn = connection.sql(f"SELECT * FROM numbers {sample}")
    with pytest.raises(BadInput, match=r"other rows .* in DuckDB"):
        metrics.percentiles(drawn, of="x_s", by="key")
    kept = connection.from_arrow(drawn.to_arrow_table())
    assert metrics.percentiles(kept, of="x_s")["n"].between(1_500, 2_500).all()


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


def test_values_that_change_within_their_second_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows in each second, but between the passes some values have gone to another second."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE moving AS SELECT i::DOUBLE AS x_s FROM range(100) t(i)")
    engine = duckdb_engine.DuckDBEngine
    read, n_counts = engine.to_arrow, 0

    def between(self: Any, rows: Any) -> Any:
        nonlocal n_counts
        n_counts += "rows" in rows.columns
        if n_counts == 2:  # the second pass
            connection.execute("UPDATE moving SET x_s = x_s + 200 WHERE x_s < 60 AND x_s > 40")
        return read(self, rows)

    monkeypatch.setattr(engine, "to_arrow", between)
    with pytest.raises(BadInput, match="other rows each time"):
        metrics.percentiles(connection.table("moving"), of="x_s")
    assert n_counts == 2


def test_a_frame_of_polars_that_draws_again_is_refused() -> None:
    turn = iter(range(100))
    drawn = pl.from_pandas(numbers()).lazy().map_batches(lambda frame: frame.head(1_000 + next(turn)))
    with pytest.raises(BadInput, match="other rows each time"):
        metrics.percentiles(drawn, of="x_s")
