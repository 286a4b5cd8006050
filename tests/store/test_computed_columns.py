"""Columns that follow from others have a version, and rows of an older version get the current values."""

from __future__ import annotations

import datetime as dt
import shutil
import warnings
from pathlib import Path
from unittest import mock

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import buildframe as bf
from buildframe.store import checksums, computed_columns, delta, frames, retained_columns, transactions
from buildframe.store.file_cache import FileCache
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.store.store import Store
from buildframe.store.transactions import SyncBatch
from buildframe.webhooks import WebhookFrames
from tests.store.batches import BEGIN, PLAIN, Build, batch, builds_stored_by_day
from tests.store.scripted_service import Service

END = BEGIN + dt.timedelta(hours=1)
LACKING = ["queue_id", "retry_of_type", "retry_of_job_id", "build_finished_at"]
COLUMNS = ["id", "step", "queue", "queue_time_s", *LACKING]

EXPECTED = pd.DataFrame(
    [
        # The queue of a cluster whose rules name none; the second attempt was made by the retry of the first.
        ("build-1/0", "unit", None, 30.0, "q-1", None, None, END),
        ("build-1/1", "unit", None, 30.0, "q-1", "automatic", "build-1/0", END),
        ("build-1/2", "lint", "default", 30.0, None, None, None, END),
    ],
    columns=COLUMNS,
)


class EarlierRetention(Retention):
    """The columns of a store before some were added."""

    def schema(self, table: str) -> pa.Schema:
        return pa.schema([field for field in super().schema(table) if field.name not in LACKING])


def commit(location: Location, build: Build, at: int, retention: Retention = PLAIN) -> None:
    """Commit a build of three jobs."""
    rows = batch([build], at)
    start = BEGIN + dt.timedelta(seconds=build.key)
    jobs = rows.jobs.assign(
        step_key=pd.Series(["unit", "unit", "lint"], dtype="str"),
        name=pd.Series(["Unit", "Unit", "Lint"], dtype="str"),
        step_id=pd.Series(["s-1", "s-1", "s-2"], dtype="str"),
        cluster_queue_id=pd.Series(["q-1", "q-1", None], dtype="str"),
        retried_in_job_id=pd.Series([f"{build.id}/1", None, None], dtype="str"),
        retry_type=pd.Series(["automatic", None, None], dtype="str"),
        runnable_at=pd.Timestamp(start),
        started_at=pd.Timestamp(start + dt.timedelta(seconds=30)),
    )
    builds = rows.builds.assign(finished_at=pd.Timestamp(END))
    transactions.commit(location, retention, SyncBatch(builds, jobs, rows.as_of))


def rewrite_as_before(location: Location) -> None:
    """Let all files contain steps, queues and wall times of old rules."""
    old_values = {"jobs": {"step": "old rule", "queue": "old rule"}, "builds": {"wall_time_s": -1.0}}
    for table, values in old_values.items():
        for path in Path(location.url, table).rglob("day=*/*.parquet"):
            rows = pq.read_table(path, partitioning=None)
            for name, value in values.items():
                old = pa.array([value] * rows.num_rows, rows.schema.field(name).type)
                rows = rows.set_column(rows.column_names.index(name), name, old)
            pq.write_table(rows, path)


def read_files(store: Store, table: str) -> pd.DataFrame:
    """Read the files of a table as other programs do, and fail if some are of an earlier version."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = store.files(table)
    return pd.concat([pq.read_table(path, partitioning=None).to_pandas() for path in paths])


@pytest.fixture(autouse=True)
def old_files_have_no_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 0 of computed columns is older than checksums in names, which would not fit rewritten files."""
    recorded = checksums.recorded_checksum

    def of_newer(path: str) -> str | None:
        return None if path.endswith("-v0.parquet") else recorded(path)

    monkeypatch.setattr(checksums, "recorded_checksum", of_newer)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that an earlier version wrote; its table of jobs lacks columns, too."""
    folder = tmp_path_factory.mktemp("made") / "store"
    location = Location.of(folder, None)
    with mock.patch.dict(computed_columns.VERSIONS, builds=0, jobs=0):
        for key in (1, 2):
            commit(location, Build(key, 0, 0, jobs=(0, 1, 2)), 1, EarlierRetention())
        with mock.patch.object(transactions, "Retention", EarlierRetention):
            transactions.compact(location)  # into one file
    rewrite_as_before(location)
    return folder


@pytest.fixture
def old(made: Path, tmp_path: Path) -> Store:
    """A copy, which a test may change."""
    return Store(shutil.copytree(made, tmp_path / "store"))


def of_build(frame: pd.DataFrame, id: str = "build-1") -> pd.DataFrame:
    rows = frame[frame["id"].str.startswith(id)].sort_values("id", ignore_index=True)[COLUMNS]
    return rows.astype(object).where(rows.notna(), None)


def check(frame: pd.DataFrame) -> None:
    expected = EXPECTED.astype(object).where(EXPECTED.notna(), None)
    pd.testing.assert_frame_equal(of_build(frame), expected, check_dtype=False)


def test_readers_compute_older_rows_again(old: Store) -> None:
    check(old.jobs(columns=COLUMNS))
    check(old.jobs(columns=COLUMNS, created_from="2026-10-01", created_to="2026-10-02", pipeline="web"))
    assert set(COLUMNS) - {"queue_time_s"} <= set(old.jobs())
    for marker in ("", " -- copy"):  # read by DuckDB itself, and through Arrow
        check(old.sql(f"SELECT * FROM jobs WHERE day = '2026-10-01'{marker}"))
        assert old.sql(f"SELECT DISTINCT step FROM jobs ORDER BY 1{marker}")["step"].tolist() == ["lint", "unit"]


def test_a_relation_has_current_values_of_older_rows(old: Store) -> None:
    relation = old.relation("jobs", duckdb.connect(), columns=[*COLUMNS, "day"])
    check(relation.to_arrow_table().to_pandas())
    assert relation.aggregate("day, count(*)").fetchall() == [(BEGIN.date(), 6)]


def test_files_of_older_rows_are_reported_until_they_are_rewritten(old: Store) -> None:
    with pytest.warns(UserWarning, match=r"1 file of jobs .* earlier version of buildframe.*store\.compact\(\)"):
        paths = old.files("jobs")
    assert set(pq.read_table(paths[0], partitioning=None)["step"].to_pylist()) == {"old rule"}
    version = old.version
    old.compact()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = old.files("jobs")
    check(pq.read_table(paths[0], partitioning=None).to_pandas())
    check(old.jobs(columns=COLUMNS))
    check(Store(old.url, as_of=version).jobs(columns=COLUMNS))


def test_a_commit_rewrites_older_rows_of_the_files_that_it_changes(old: Store) -> None:
    commit(Location.of(old.url, None), Build(2, 5, 0, jobs=(0, 1, 2)), at=6)
    frame = read_files(old, "jobs")
    assert sorted(frame["id"]) == [f"build-{build}/{job}" for build in (1, 2) for job in (0, 1, 2)]
    check(frame)


def wall_time_of_first_build(store: Store) -> list[float]:
    builds = read_files(store, "builds")
    return builds.loc[builds["id"] == "build-1", "wall_time_s"].tolist()


@pytest.mark.long
def test_the_repair_of_a_build_on_two_days_computes_its_columns_again(tmp_path: Path) -> None:
    """The build was created in second 1 of the first day and finished in second 3,600."""
    location = Location.of(tmp_path / "store", None)
    with mock.patch.dict(computed_columns.VERSIONS, builds=0, jobs=0), builds_stored_by_day():
        commit(location, Build(1, 0, 1, jobs=(0, 1, 2)), 1, EarlierRetention())
        commit(location, Build(1, 5, 0, jobs=(0, 1, 2)), 6, EarlierRetention())
    rewrite_as_before(location)
    transactions.repair(location)
    store = Store(location.url)
    check(read_files(store, "jobs"))
    assert wall_time_of_first_build(store) == [3599]


@pytest.mark.long
def test_a_deleted_build_keeps_the_current_wall_time(old: Store) -> None:
    gone = batch([], at=9, gone=[Build(1, 0, 0)])
    assert transactions.commit(Location.of(old.url, None), PLAIN, gone).gone == 1
    assert wall_time_of_first_build(old) == [3599]


@pytest.mark.long
def test_a_build_with_a_delivered_job_keeps_the_current_wall_time(old: Store) -> None:
    delivered = batch([Build(1, 5, 0, jobs=(3,))], at=5)
    received = WebhookFrames(delivered.builds.iloc[:0], delivered.jobs)
    assert transactions.receive(Location.of(old.url, None), PLAIN, received).jobs == 1
    assert wall_time_of_first_build(old) == [3599]


@pytest.mark.long
def test_the_files_of_a_table_are_listed_once_for_all_older_ones(tmp_path: Path) -> None:
    """Four days, each with a file of an older version. Listing all files for each of them takes quadratic time."""
    location = Location.of(tmp_path / "store", None)
    with mock.patch.dict(computed_columns.VERSIONS, builds=0, jobs=0):
        for day in range(4):
            commit(location, Build(day, day, day, jobs=(0, 1, 2)), at=day)
    rewrite_as_before(location)
    listing = mock.Mock(side_effect=delta.fragments_by_path)
    in_frames = mock.patch.object(frames, "fragments_by_path", listing)
    in_delta = mock.patch.object(delta, "fragments_by_path", listing)
    with in_frames, in_delta:
        assert set(Store(location.url).jobs(columns=["step"])["step"]) == {"unit", "lint"}
    assert listing.call_count == 1


def test_exported_jobs_have_the_queue_and_its_id_as_in_lists() -> None:
    """Lists lack the tags of agents, and the rules name no queue: it is the default one of the cluster."""
    received = pd.DataFrame(
        {
            "type": ["script", "script"], "agent_query_rules": [None, '["queue=macos"]'], "agent_hostname": "host",
            "agent_meta_data": '["queue=docker"]', "cluster_queue_id": None, "cluster_id": "c-1",
            "queue": ["docker", "macos"], "queue_id": ["c-1/docker", "c-1/macos"],
        }
    ).astype("str")  # fmt: skip
    listed = retained_columns.as_list_rows(received)
    assert listed["queue"].tolist() == ["default", "macos"]
    assert listed["queue_id"].tolist() == ["c-1/default", "c-1/macos"]


def test_what_was_read_from_files_is_remembered_up_to_a_size() -> None:
    cache: FileCache[str] = FileCache(5, len)
    read = iter(["ab", "cde", "f", "again"])
    found = [cache.get(("builds", path, "id"), lambda: next(read)) for path in ("1", "2", "1", "2", "3", "1")]
    assert found == ["ab", "cde", "ab", "cde", "f", "again"]  # 6 characters are too many


@pytest.mark.long
def test_a_sync_rewrites_older_files(service: Service, ws: bf.Workspace, store: Store) -> None:
    service.add(1, "passed", 2)
    service.add(2, "passed", 3)
    with mock.patch.dict(computed_columns.VERSIONS, builds=0, jobs=0):
        store.sync(ws, since="10d")
    rewrite_as_before(Location.of(store.url, None))
    with pytest.warns(UserWarning, match="2 files of jobs"):
        assert len(store.files("jobs")) == 2
    service.later(hours=1)
    with mock.patch.object(transactions, "_RECOMPUTED_ROWS", 1):  # a commit for each file
        done = store.sync(ws)
    assert done.complete
    assert done.version == store.version
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        queues = [pq.read_table(path, partitioning=None)["queue"].to_pylist() for path in store.files("jobs")]
    assert sorted(queues) == [["default"], ["default"]]
