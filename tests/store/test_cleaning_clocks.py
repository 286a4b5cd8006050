"""Cleaning by a machine whose clock is ahead, while another machine syncs."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from buildframe.errors import StoreFailed
from buildframe.store import delta, transactions
from buildframe.store.delta import TableVersion
from buildframe.store.location import Location
from buildframe.store.store import Store
from tests.store.batches import PLAIN, Build, at_instant, batch, expected, stored_content
from tests.store.test_damage import sync

DAYS_AHEAD = dt.timedelta(days=3)


class ClockAhead(dt.datetime):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        return super().now(tz) + DAYS_AHEAD


@contextmanager
def clock_ahead() -> Iterator[None]:
    with mock.patch.object(transactions.dt, "datetime", ClockAhead):
        yield


def file_of_a_running_sync(folder: Path) -> Path:
    """A file that a sync has written and not committed yet."""
    file = next((folder / "builds").glob("day=*/*.parquet"))
    return Path(shutil.copy(file, file.with_name("running.parquet")))


def test_a_clock_that_is_ahead_deletes_no_file_of_a_running_sync(tmp_path: Path) -> None:
    """The second cleaning finds the commit of the first one in the log, which has the same wrong clock."""
    state = sync(tmp_path, Build(1, 1)).state
    sync(tmp_path, Build(1, 2), at=2)
    running = file_of_a_running_sync(tmp_path)
    for _ in range(2):
        with clock_ahead():
            assert Store(tmp_path).clean("0d") == 0
    assert running.exists()
    assert stored_content(Store(tmp_path, as_of=state.version)) == expected([Build(1, 1)])


def test_a_sync_of_the_machine_whose_clock_is_ahead_confirms_it_only_if_the_service_does(tmp_path: Path) -> None:
    """Its commit and the file of the log have the wrong time. The service has the right one."""
    location = Location.of(tmp_path, None)
    now = transactions.Moment.of(dt.datetime.now(dt.UTC))

    def of_service(at: int) -> transactions.SyncBatch:
        built = batch([Build(1, at)], at, is_simulated=False)
        return transactions.replace(built, as_of=now)

    transactions.commit(location, PLAIN, of_service(1))
    running = file_of_a_running_sync(tmp_path)
    transactions.commit(location, PLAIN, of_service(2))
    ahead = now + DAYS_AHEAD
    with clock_ahead(), mock.patch.object(TableVersion, "last_changed_at", ahead):
        Store(tmp_path).clean("0d")
    assert running.exists()


@pytest.mark.parametrize("table", [pytest.param("builds", marks=pytest.mark.long), "jobs"])
def test_a_sync_whose_file_was_deleted_fails_and_the_store_stays_readable(tmp_path: Path, table: str) -> None:
    """As by a cleaning that does not know this rule."""
    sync(tmp_path, Build(1, 1))
    before = set(tmp_path.glob(f"{table}/day=*/*.parquet"))

    def delete_new_files() -> None:
        for file in set(tmp_path.glob(f"{table}/day=*/*.parquet")) - before:
            file.unlink()

    with at_instant(0, delete_new_files, "before commit"), pytest.raises(StoreFailed, match="before it was committed"):
        sync(tmp_path, Build(1, 2), at=2)
    assert stored_content(Store(tmp_path)) == expected([Build(1, 1)])
    sync(tmp_path, Build(1, 3), at=3)
    assert stored_content(Store(tmp_path)) == expected([Build(1, 3)])


def test_a_file_that_is_deleted_while_it_is_written_is_store_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(tmp_path, Build(1, 1))
    monkeypatch.setattr(delta, "flush", lambda file, *_: file.unlink() if file.suffix == ".parquet" else None)
    with pytest.raises(StoreFailed, match="was deleted before it was committed"):
        sync(tmp_path, Build(1, 2), at=2)
    assert stored_content(Store(tmp_path)) == expected([Build(1, 1)])


def test_a_duration_before_the_year_1_keeps_all_versions(tmp_path: Path) -> None:
    """As of a service whose clock is in 1970."""
    location = Location.of(tmp_path, None)
    long_ago = transactions.Moment(1970, 1, 2, tzinfo=dt.UTC)
    transactions.commit(location, PLAIN, transactions.replace(batch([Build(1, 1)], 1), as_of=long_ago))
    assert Store(tmp_path).clean("730000d") == 0  # 2,000 years
