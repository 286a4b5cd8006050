"""Logs that lost an entry, as after a partial copy: readers refuse them, and a sync restores them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import buildframe as bf
from buildframe.errors import StoreFailed
from buildframe.spec import Moment
from buildframe.store import transactions
from buildframe.store.location import Location
from buildframe.store.store import Store
from buildframe.store.sync_state import Coverage, SyncState
from tests.store.batches import PLAIN, Build, batch, expected, flaky, moment, stored_content

TABLES = ("builds", "jobs", "flaky_tests")
BEFORE = [Build(0, 1), Build(1, 1), Build(2, 1, day=1)]
CHANGED, NEW = Build(1, 2), Build(3, 2, day=2)
LAST = Build(4, 3, day=3)
WHOLE = [Build(0, 1), CHANGED, Build(2, 1, day=1), NEW, LAST]

DAY = Moment.parse("2026-10-01T00:00:00Z")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three versions: the second one changes the day 2026-10-01 and adds 2026-10-03."""
    location = Location.of(tmp_path / "store", None)
    covered = Coverage(Moment.parse("2026-09-01T00:00:00Z"), moment(1), moment(1))
    for at, builds in enumerate((BEFORE, [CHANGED, NEW], [LAST]), 1):
        lists = (flaky({"a": at}, at),)
        scope = {"scope": "acme", "coverage": covered} if at == 1 else {}
        transactions.commit(location, PLAIN, batch(builds, at, lists=lists, **scope))
    return Store(location.url)


def second_entry(store: Store, table: str) -> Path:
    """Return the entry of the second of three versions: 0 creates the table."""
    return Path(store.url, table, "_delta_log", f"{2:020d}.json")


def delete_added_files(entry: Path) -> None:
    for action in map(json.loads, entry.read_text().splitlines()):
        if "add" in action:
            (entry.parent.parent / action["add"]["path"]).unlink()


def empty(entry: Path) -> None:
    entry.write_text("")


@pytest.mark.parametrize("lose", [empty, Path.unlink])
@pytest.mark.parametrize("table", TABLES)
def test_a_lost_entry_is_reported_and_its_files_are_restored(
    store: Store, table: str, lose: Callable[[Path], None]
) -> None:
    tests = store.flaky_tests(history=True)
    lose(second_entry(store, table))
    read = {"builds": store.builds, "jobs": store.jobs, "flaky_tests": store.flaky_tests}
    for call in (read[table], store.compact, store.clean):
        with pytest.raises(StoreFailed, match=r"as after a partial copy|cannot be cleaned"):
            call()
    assert transactions.restore(Location.of(store.url, None)) == []
    assert stored_content(store) == expected(WHOLE)
    assert store.flaky_tests(history=True).equals(tests)
    assert transactions.restore(Location.of(store.url, None)) == []
    assert store.version == 4  # one version for the restoration, none if nothing is lost


def test_the_message_names_the_days_and_the_missing_rows(store: Store) -> None:
    """Build 1 was replaced in the second version, and build 3 was added; each has two jobs."""
    empty(second_entry(store, "jobs"))
    assert len(store.builds()) == 5  # this table is intact
    with pytest.raises(StoreFailed) as failed:
        store.jobs()
    assert "10 rows of jobs in 4 files" in str(failed.value)
    assert "8 rows in 3" in str(failed.value)
    assert "Days to read again: 2026-10-01, 2026-10-03. " in str(failed.value)


@pytest.mark.parametrize("table", ["builds", "jobs"])
def test_days_of_lost_files_are_requested_again(store: Store, table: str) -> None:
    entry = second_entry(store, table)
    delete_added_files(entry)
    empty(entry)
    assert transactions.restore(Location.of(store.url, None)) == ["2026-10-01", "2026-10-03"]
    assert store.builds()["id"].is_unique
    assert store.jobs()["id"].is_unique
    [covered] = store._state().coverage.values()
    assert (covered.until, covered.resync_from) == (DAY, DAY)
    transactions.commit(Location.of(store.url, None), PLAIN, batch([replace(CHANGED, at=5), replace(NEW, at=5)], 5))
    assert stored_content(store) == expected([*BEFORE[::2], replace(CHANGED, at=5), replace(NEW, at=5), LAST])


def test_a_whole_log_of_a_table_is_restored(store: Store) -> None:
    for entry in Path(store.url, "jobs", "_delta_log").iterdir():
        entry.unlink()
    with pytest.raises(StoreFailed, match="jobs/_delta_log is missing"):
        store.jobs()
    assert transactions.restore(Location.of(store.url, None)) == []
    assert stored_content(store) == expected(WHOLE)


def test_stores_without_this_record_are_opened(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an earlier version of the package wrote them; the next commit records the tables that it changes."""
    location, written = Location.of(store.url, None), SyncState.to_json

    def as_before(state: SyncState) -> dict[str, object]:
        return {name: value for name, value in written(state).items() if name not in ("contents", "checksum")}

    with monkeypatch.context() as patch:
        patch.setattr(SyncState, "to_json", as_before)
        transactions.commit(location, PLAIN, batch([Build(5, 4)], 4))
    assert store._state().contents == {}
    assert stored_content(store) == expected([*WHOLE, Build(5, 4)])
    transactions.commit(location, PLAIN, batch([Build(6, 5)], 5))
    assert {name: table.rows for name, table in store._state().contents.items()} == {"builds": 7, "jobs": 14}


def test_versions_of_a_concurrent_sync_are_not_compared(store: Store) -> None:
    """A commit of the jobs that no commit of the builds names belongs to no version of the store."""
    location = Location.of(store.url, None)
    transaction = transactions._Transaction(location, PLAIN)
    jobs = transaction._open_table("jobs")
    change = transaction._new_change(jobs)
    change.removed.extend(jobs.files())
    jobs.commit(change)
    assert stored_content(store) == expected(WHOLE)
    assert transactions.restore(location) == []
    transactions.commit(location, PLAIN, batch([Build(5, 4)], 4))
    assert stored_content(store) == expected([*WHOLE, Build(5, 4)])


@pytest.mark.slow
def test_a_sync_reads_lost_days_again(tmp_path: Path) -> None:
    store = bf.Store(tmp_path)
    with bf.sandbox(builds=60, days=3) as ci:
        store.sync(ci, since="3d", progress=False)
        ci.sandbox.push("web")
        store.sync(ci, since="3d", progress=False)
        before = store.jobs(columns=["id", "state"])
        builds = sorted(Path(tmp_path, "builds", "_delta_log").glob("*.json"))
        delete_added_files(builds[1])
        empty(builds[1])
        with pytest.warns(UserWarning, match="lost files of 20"):
            assert store.sync(ci, since="3d", progress=False).complete
        after = store.jobs(columns=["id", "state"])
        assert after.sort_values("id", ignore_index=True).equals(before.sort_values("id", ignore_index=True))
        assert set(store.builds()["id"]) == set(ci.builds()["id"])
