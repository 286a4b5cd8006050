"""Commits of several days, which are written at once, and queries that open only the files that they need."""

from __future__ import annotations

import datetime as dt
import os
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from buildframe.errors import StoreFailed
from buildframe.store import delta, transactions
from buildframe.store.location import Location
from buildframe.store.store import Store
from tests.store.batches import BEGIN, PLAIN, Build, batch, expected, stored_content

DAYS = (*range(6), None)
BUILDS = [Build(key, at=0, day=day) for key, day in enumerate(DAYS)]


def commit(folder: Path, builds: list[Build], at: int) -> None:
    transactions.commit(Location.of(folder, None), PLAIN, batch(builds, at))


def parquet(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts}


def test_days_are_written_at_once(tmp_path: Path) -> None:
    """Two files of the table of jobs wait for each other, which they can only if both are begun."""
    both, written = threading.Barrier(2, timeout=30), delta._write_parquet

    def waiting(location: Location, table: str, path: str, data: pa.Buffer) -> None:
        if table == "jobs" and ("2026-10-01" in path or "2026-10-02" in path):
            both.wait()
        written(location, table, path, data)

    with mock.patch.object(delta, "_write_parquet", waiting):
        commit(tmp_path, BUILDS, 1)
    store = Store(tmp_path)
    assert stored_content(store) == expected(BUILDS)
    days = [Path(path).parent.name.removeprefix("day=") for path in store.files("jobs")]
    assert sorted(days) == [*(f"2026-10-0{day}" for day in range(1, 7)), "__HIVE_DEFAULT_PARTITION__"]


def test_if_one_day_fails_no_file_of_any_day_is_left(tmp_path: Path) -> None:
    commit(tmp_path, BUILDS, 1)
    before, content, written = parquet(tmp_path), stored_content(Store(tmp_path)), delta._write_parquet

    def failing(location: Location, table: str, path: str, data: pa.Buffer) -> None:
        if "2026-10-04" in path:
            raise OSError(28, "No space left on device")
        written(location, table, path, data)

    later = [Build(key, at=2, day=day) for key, day in enumerate(DAYS)]
    with mock.patch.object(delta, "_write_parquet", failing), pytest.raises(StoreFailed, match="Free some space"):
        commit(tmp_path, later, 3)
    assert (parquet(tmp_path), stored_content(Store(tmp_path))) == (before, content)
    commit(tmp_path, later, 3)
    assert stored_content(Store(tmp_path)) == expected(later)


def test_sql_has_the_day_of_each_file_and_null_without_one(tmp_path: Path) -> None:
    commit(tmp_path, BUILDS, 1)
    found = Store(tmp_path).sql("SELECT number, day FROM builds ORDER BY number")
    days: list[Any] = [(BEGIN + dt.timedelta(days=day)).date() for day in DAYS if day is not None]
    assert found["day"].tolist()[:-1] == days
    assert found["day"].isna().tolist() == [day is None for day in DAYS]


def test_sql_opens_no_verified_file_that_the_query_does_not_read(tmp_path: Path) -> None:
    """A file that has its size and time is not verified again, so DuckDB alone could notice the damage."""
    commit(tmp_path, BUILDS, 1)
    store = Store(tmp_path)
    for path in map(Path, store.files("jobs")[1:]):
        status = path.stat()
        path.write_bytes(b"\0" * status.st_size)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    columns = store.sql("SELECT * FROM jobs LIMIT 0").columns
    assert [*columns] == PLAIN.schema("jobs").names
    with pytest.raises(StoreFailed):
        store.sql("SELECT count(name) FROM jobs")


def test_values_that_do_not_repeat_have_no_dictionary(tmp_path: Path) -> None:
    commit(tmp_path, [Build(key, at=0, day=0) for key in range(400)], 1)
    [file] = Store(tmp_path).files("jobs")
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = (group.column(n) for n in range(group.num_columns))
    encodings = {column.path_in_schema: column.encodings for column in columns}
    assert "RLE_DICTIONARY" not in encodings["id"]
    assert all("RLE_DICTIONARY" in encodings[name] for name in ("state", "pipeline", "build_state"))
