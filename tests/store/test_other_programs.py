"""The tables of a store in other programs: pandas, Polars, DuckDB and pyarrow, as docs/store.md shows them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pandas.testing import assert_frame_equal

import buildframe as bf
from buildframe import metrics
from tests import worlds

pytestmark = pytest.mark.long

TABLES = ["builds", "jobs"]
KEYS = {"pipelines": ["id", "valid_from"], "flaky_tests": ["suite", "id", "valid_from"], "members": ["id"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a store that kept no people at first, and has columns for them since: older files lack these."""
    folder = tmp_path_factory.mktemp("stores") / "ci-history"
    with worlds.sandbox(builds=150, days=4) as ci:
        store = bf.Store(folder)
        store.sync(ci, suites=ci.sandbox.suites(), progress=False)
        ci.sandbox.clock.advance(dt.timedelta(days=1))
        store.sync(ci, suites=ci.sandbox.suites(), personal=True, progress=False)
        yield folder


def schema(folder: Path, table: str) -> pa.Schema:
    return pa.schema(deltalake.DeltaTable(folder / table).schema())


def by_pandas(folder: Path, table: str) -> Any:
    files = bf.Store(folder).files(table)
    return pa.Table.from_pandas(pd.read_parquet(files, schema=schema(folder, table), dtype_backend="pyarrow"))


def by_pyarrow(folder: Path, table: str) -> Any:
    files = bf.Store(folder).files(table)
    return ds.dataset(files, schema=schema(folder, table), partitioning="hive").to_table()


def by_deltalake(folder: Path, table: str) -> Any:
    return deltalake.DeltaTable(folder / table).to_pyarrow_table()


def by_polars(folder: Path, table: str) -> Any:
    return pl.scan_delta(folder / table).collect().to_arrow()


def by_duckdb(folder: Path, table: str) -> Any:
    files = bf.Store(folder).files(table)
    return duckdb.sql(
        "SELECT * FROM read_parquet($files, union_by_name=true)", params={"files": files}
    ).to_arrow_table()


READERS: list[Callable[[Path, str], Any]] = [by_pandas, by_pyarrow, by_deltalake, by_polars, by_duckdb]


def as_read(found: pa.Table, like: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """What another program read, with the dtypes of the store's frame, in its own order."""
    plain = found.select(list(like.columns)).to_pandas(types_mapper=pd.ArrowDtype)
    return plain.astype(like.dtypes).sort_values(key, ignore_index=True)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_another_program_reads_what_the_store_reads(folder: Path, reader: Any) -> None:
    store = bf.Store(folder)
    for table in TABLES:
        names = [*schema(folder, table).names]
        stored = getattr(store, table)(columns=names).sort_values("id", ignore_index=True)
        found = reader(folder, table)
        assert sorted(found.column_names) == sorted(names)
        assert_frame_equal(as_read(found, stored, ["id"]), stored)
        assert not stored["day"].isna().any()


def test_lists_with_all_their_states_too(folder: Path) -> None:
    for table, key in KEYS.items():
        expected = bf.Store(folder).sql(f"SELECT * FROM {table}").sort_values(key, ignore_index=True)
        assert len(expected) > 5
        for reader in READERS:
            assert_frame_equal(as_read(reader(folder, table), expected, key), expected)


def test_columns_that_came_later_are_there_where_the_schema_is_named(folder: Path) -> None:
    store = bf.Store(folder)
    many = store.builds()["creator"].notna().sum()
    assert 0 < many < len(store.builds())
    assert many == pd.read_parquet(store.files("builds"), schema=schema(folder, "builds"))["creator"].notna().sum()
    parted = [("creator" in pd.read_parquet(file)) for file in store.files("builds")]
    assert set(parted) == {True, False}  # so the first file alone does not decide


def test_a_folder_holds_rows_that_are_no_longer_valid(folder: Path) -> None:
    rows = pd.read_parquet(folder / "jobs")
    assert len(rows) > len(bf.Store(folder).jobs())
    assert rows["id"].duplicated().any()


@pytest.mark.parametrize("library", ["polars", "duckdb"])
def test_summaries_of_tables_in_other_libraries_are_those_of_the_store(folder: Path, library: str) -> None:
    store = bf.Store(folder)

    def rows(table: str) -> Any:
        if library == "polars":
            return pl.scan_delta(folder / table)
        return duckdb.sql("SELECT * FROM read_parquet($f, union_by_name=true)", params={"f": store.files(table)})

    by = ["pipeline", metrics.step]
    builds, jobs = store.builds(), store.jobs()
    assert_frame_equal(metrics.percentiles(rows("jobs"), by=by), metrics.percentiles(jobs, by=by))
    assert_frame_equal(metrics.waste(rows("jobs"), by="pipeline"), metrics.waste(jobs, by="pipeline"))
    assert_frame_equal(metrics.flips(rows("jobs")), metrics.flips(jobs))
    assert_frame_equal(metrics.trend(rows("builds")), metrics.trend(builds))
    assert_frame_equal(metrics.success_rate(rows("builds"), by="pipeline"), metrics.success_rate(builds, by="pipeline"))


def test_another_program_reads_an_earlier_version_by_its_number(folder: Path) -> None:
    then = bf.Store(folder, as_of="12h")
    delta = deltalake.DeltaTable(folder / "builds", version=then.version)
    assert set(delta.to_pyarrow_table(columns=["id"])["id"].to_pylist()) == set(then.builds()["id"])
    assert pl.scan_delta(folder / "builds", version=then.version).collect().height == len(then.builds())
