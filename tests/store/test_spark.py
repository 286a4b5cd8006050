"""The tables of a store in Spark: rows and types of one version, from any location."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

import buildframe as bf
from buildframe import metrics
from buildframe.store import transactions
from buildframe.store.location import Location
from tests import spark_session
from tests.store.batches import PLAIN, Build, batch, flaky

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = {
    "builds": ["id"],
    "flaky_tests": ["suite", "id", "valid_from"],
    "jobs": ["id"],
    "members": ["id", "valid_from"],
    "pipelines": ["id", "valid_from"],
}
TYPES = {"string": "string", "int64": "bigint", "bool": "boolean", "double": "double", "date32[day]": "date"}
TYPES["timestamp[us, tz=UTC]"] = "timestamp"
TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a store that kept no people at first, and has columns for them since: older files lack these."""
    folder = tmp_path_factory.mktemp("stores") / "ci-history"
    with bf.sandbox(builds=100, days=3) as ci:
        store = bf.Store(folder)
        store.sync(ci, suites=ci.sandbox.suites(), progress=False)
        ci.sandbox.clock.advance(dt.timedelta(days=1))
        store.sync(ci, suites=ci.sandbox.suites(), personal=True, progress=False)
        yield folder


@pytest.fixture
def session() -> SparkSession:
    """A separate session, whose settings affect no other test."""
    own = spark_session.get_session().newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    return own


def filled(folder: Path, *builds: Build) -> bf.Store:
    transactions.commit(Location.of(folder, None), PLAIN, batch(builds, 1, lists=(flaky({"a": 1}, 1),)))
    return bf.Store(folder)


def as_read(frame: Any, like: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """What Spark read, with the dtypes of the store's frame, in its own order."""
    plain = frame.toArrow().to_pandas(types_mapper=pd.ArrowDtype)
    return plain[list(like)].astype(like.dtypes).sort_values(key, ignore_index=True)


def stored(store: bf.Store, table: str) -> pd.DataFrame:
    return store.sql(f"SELECT * FROM {table}").sort_values(KEYS[table], ignore_index=True)


# --- what is there


def test_each_table_is_what_is_stored(folder: Path, session: SparkSession) -> None:
    store = bf.Store(folder)
    frames = store.spark(session)
    assert sorted(frames) == sorted(KEYS)
    for table, key in KEYS.items():
        expected = stored(store, table)
        assert len(expected) > 5
        assert_frame_equal(as_read(frames[table], expected, key), expected)
        schema = pa.schema(deltalake.DeltaTable(folder / table).schema())
        assert dict(frames[table].dtypes) == {field.name: TYPES[str(field.type)] for field in schema}
    assert frames["jobs"].where("day is null or day <> to_date(build_created_at)").count() == 0


def test_one_definition_of_what_rows_measure(folder: Path, session: SparkSession) -> None:
    store = bf.Store(folder)
    names = ["queue_time_s", "dependency_wait_s", "run_time_s", "turnaround_s", "day"]
    frame = metrics.with_seconds(store.spark(session)["jobs"].drop(*names))
    expected = store.jobs(columns=["id", *names]).sort_values("id", ignore_index=True)
    assert_frame_equal(as_read(frame.select("id", *names), expected, ["id"]), expected)


def test_groups_by_day_equal_those_of_pandas(folder: Path, session: SparkSession) -> None:
    store = bf.Store(folder)
    columns = ["day", "type", "run_time_s", "started_at", "finished_at"]
    expected = metrics.percentiles(store.jobs(columns=columns), of=metrics.run_time, by="day")
    found = metrics.percentiles(store.spark(session)["jobs"], of=metrics.run_time, by="day")
    assert len(expected) > 2
    assert_frame_equal(found, expected, rtol=1e-12)


def test_a_table_without_rows_has_its_columns(tmp_path: Path, session: SparkSession) -> None:
    frames = filled(tmp_path).spark(session)
    assert frames["jobs"].count() == 0
    assert frames["jobs"].columns == [field.name for field in deltalake.DeltaTable(tmp_path / "jobs").schema().fields]


# --- one version


def test_a_store_of_the_past_is_what_it_was(folder: Path, session: SparkSession) -> None:
    then = bf.Store(folder, as_of="12h")
    frames = then.spark(session)
    for table in ("builds", "jobs"):
        assert_frame_equal(as_read(frames[table], stored(then, table), ["id"]), stored(then, table))
    assert "creator" not in frames["builds"].columns
    assert len(then.builds()) < len(bf.Store(folder).builds())


def test_a_later_sync_changes_no_frame(tmp_path: Path, session: SparkSession) -> None:
    frames = filled(tmp_path, Build(1, 1), Build(2, 1, day=None)).spark(session)
    filled(tmp_path, Build(1, 5, state="failed"), Build(3, 5))
    rows = {row.id: (row.state, row.day) for row in frames["builds"].collect()}
    assert rows == {"build-1": ("passed", dt.date(2026, 10, 1)), "build-2": ("passed", None)}
    assert frames["jobs"].count() == 4


# --- where it lies


def test_folders_may_be_named_oddly(tmp_path: Path, session: SparkSession) -> None:
    """Also where the session's own paths are those of a cluster."""
    session.conf.set("fs.defaultFS", "hdfs://cluster.invalid:8020")
    filled(tmp_path / "s1", Build(7, 1))  # which 's*' would match, too
    for name in ("with space", "ünï 雪", "100%", "a#b", "a?b", "[x]", "{a,b}", "s*", "day=2026-01-01"):
        builds = filled(tmp_path / name, Build(1, 1), Build(2, 1)).spark(session)["builds"]
        assert (name, {row.id for row in builds.select("id").collect()}) == (name, {"build-1", "build-2"})


def test_a_missing_file_is_reported_in_a_sentence(tmp_path: Path, session: SparkSession) -> None:
    store = filled(tmp_path, Build(1, 1))
    Path(store.files("jobs")[0]).unlink()
    before = session.conf.get(TASKS)
    with pytest.raises(bf.StoreFailed, match=r"No such file.* '.*/jobs/.*\.parquet'") as failed:
        store.spark(session)
    assert "\tat " not in str(failed.value)
    assert session.conf.get(TASKS) == before


def test_a_file_that_is_deleted_later_is_reported_and_never_skipped(tmp_path: Path, session: SparkSession) -> None:
    store = filled(tmp_path / "with space. And dots", Build(1, 1), Build(2, 1, day=1))
    jobs = store.spark(session)["jobs"]
    for setting in ("ignoreMissingFiles", "ignoreCorruptFiles"):
        session.conf.set(f"spark.sql.files.{setting}", "true")
    assert jobs.count() == 4
    Path(store.files("jobs")[0]).unlink()
    with pytest.raises(bf.StoreFailed, match=r"file:.*\.parquet is gone, .*Create .* again") as failed:
        metrics.waste(jobs)
    assert "\tat " not in str(failed.value)


def test_a_file_that_cannot_be_read_is_never_left_out(tmp_path: Path, session: SparkSession) -> None:
    store = filled(tmp_path, Build(1, 1), Build(2, 1, day=1))
    jobs = store.spark(session)["jobs"]
    session.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    Path(store.files("jobs")[0]).write_bytes(b"?" * 4000)
    with pytest.raises(Exception, match="FAILED_READ_FILE"):
        metrics.waste(jobs)


def test_many_files_take_no_task_each(tmp_path: Path, session: SparkSession) -> None:
    store = filled(tmp_path, *(Build(key, 1, day=key) for key in range(150)))
    context = session.sparkContext
    before = session.conf.get(TASKS)
    context.setJobGroup("listing", "")
    store.spark(session)
    tracker = context.statusTracker()
    stages = [stage for job in tracker.getJobIdsForGroup("listing") for stage in tracker.getJobInfo(job).stageIds]
    assert [tracker.getStageInfo(stage).numTasks for stage in stages] == [100, 100]
    assert session.conf.get(TASKS) == before


# --- Delta


def delta_source() -> type:
    """A data source for Spark that stands in for Delta's: it reads a version by the package deltalake."""
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Reader(DataSourceReader):
        def __init__(self, rows: pa.Table) -> None:
            self.rows = rows

        def read(self, partition: Any) -> Any:
            yield from self.rows.to_batches()

    class Delta(DataSource):
        @classmethod
        def name(cls) -> str:
            return "delta"

        def _table(self) -> deltalake.DeltaTable:
            path = self.options["path"].removeprefix("file://")
            return deltalake.DeltaTable(path, version=int(self.options["versionAsOf"]))

        def schema(self) -> Any:
            from pyspark.sql.pandas.types import from_arrow_schema

            return from_arrow_schema(pa.schema(self._table().schema()))

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader(self._table().to_pyarrow_table())

    return Delta


def test_where_the_session_has_delta_it_reads_the_versions(
    folder: Path, session: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    then = bf.Store(folder, as_of="12h")
    catalog = "spark.sql.catalog.spark_catalog"
    session.dataSource.register(delta_source())
    session.conf.set(catalog, "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    frames = then.spark(session)
    session.conf.unset(catalog)  # the class is not here, and queries would look for it
    frames["jobs"].explain()
    assert "BatchScan delta" in capsys.readouterr().out
    for table in ("jobs", "pipelines"):
        expected = stored(then, table)
        assert_frame_equal(as_read(frames[table], expected, KEYS[table]), expected)


# --- what is refused


def test_utc_has_several_names_and_other_zones_are_refused(tmp_path: Path, session: SparkSession) -> None:
    store = filled(tmp_path, Build(1, 1))
    for zone in ("+00:00", "Etc/UTC", "GMT", "UTC", "Z"):
        session.conf.set("spark.sql.session.timeZone", zone)
        assert (zone, store.spark(session)["builds"].columns[0]) == (zone, "id")
    for zone in ("America/New_York", "Europe/London", "UTC+1"):
        session.conf.set("spark.sql.session.timeZone", zone)
        with pytest.raises(bf.BadInput, match=f"{re.escape(zone)}.*session.conf.set"):
            store.spark(session)


def test_what_is_no_session_is_refused(tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    for wrong in (None, "local", int, SparkSession, SparkSession.builder):
        with pytest.raises(bf.BadInput, match=r"not a SparkSession.*SparkSession\.builder"):
            bf.Store(tmp_path).spark(wrong)


def test_without_a_store_nothing_is_made(tmp_path: Path, session: SparkSession) -> None:
    with pytest.raises(bf.BadInput, match="no store"):
        bf.Store(tmp_path / "none").spark(session)
    assert not (tmp_path / "none").exists()


def test_spark_is_loaded_at_first_use_and_its_extra_is_named_if_it_is_missing() -> None:
    code = """
import sys
import buildframe as bf
bf.metrics
store = bf.Store("none")
print("pyspark" in sys.modules)
sys.modules["pyspark"] = None
store.spark(1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n"
    wanted = 'MissingExtra: store.spark() needs the extra "spark": pip install "buildframe[spark]"'
    assert done.stderr.splitlines()[-1].endswith(wanted)
