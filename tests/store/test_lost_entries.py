"""Logs that lost an entry, as after a partial copy: readers refuse them, and a sync restores them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import buildframe as bf
from buildframe.errors import StoreFailed
from buildframe.spec import Moment
from buildframe.store import delta, transactions
from buildframe.store.location import Location, one_line
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


def cut(entry: Path) -> None:
    """The disk was full, or lost its power, while another program copied the store."""
    data = entry.read_bytes()
    entry.write_bytes(data[: len(data) // 2])


def fill_with_zeros(entry: Path) -> None:
    entry.write_bytes(bytes(entry.stat().st_size))


@pytest.mark.parametrize("lose", [empty, Path.unlink, cut, fill_with_zeros])
@pytest.mark.parametrize("table", TABLES)
def test_a_lost_entry_is_reported_and_its_files_are_restored(
    store: Store, table: str, lose: Callable[[Path], None]
) -> None:
    tests = store.flaky_tests(history=True)
    lose(second_entry(store, table))
    read = {"builds": store.builds, "jobs": store.jobs, "flaky_tests": store.flaky_tests}
    for call in (read[table], store.compact, store.clean):
        with pytest.raises(StoreFailed, match=r"as after a partial copy|is not a log entry|cannot be cleaned"):
            call()
    assert transactions.restore(Location.of(store.url, None)) == []
    assert stored_content(store) == expected(WHOLE)
    assert store.flaky_tests(history=True).equals(tests)
    assert transactions.restore(Location.of(store.url, None)) == []
    assert store.version == 4  # one version for the restoration, none if nothing is lost


@pytest.mark.parametrize("lose", [empty, Path.unlink, cut])
@pytest.mark.parametrize("table", TABLES)
def test_a_lost_first_entry_is_written_again(store: Store, table: str, lose: Callable[[Path], None]) -> None:
    """It creates the table, and no file is in it."""
    lose(second_entry(store, table).with_name(f"{0:020d}.json"))
    assert transactions.restore(Location.of(store.url, None)) == []
    assert stored_content(store) == expected(WHOLE)
    assert stored_content(Store(store.url, as_of=1)) == expected(BEFORE)


@pytest.mark.parametrize("table", ["builds", "jobs"])
def test_a_damaged_entry_is_named(store: Store, table: str) -> None:
    path = second_entry(store, table)
    cut(path)
    name = f"{table}/_delta_log/{path.name}"
    with pytest.raises(StoreFailed) as failed:
        store.jobs()
    message = str(failed.value)
    assert f"{name} is not a log entry" in message
    assert "Kernel" not in message
    assert store.verify().damaged == {name: "is not a log entry"}


def test_a_backtrace_is_not_in_a_message() -> None:
    error = "Json error\n   0: <unknown>\n  1: start_thread\n    at ./nptl/pthread_create.c:442:8\n  at /rustc/a.rs:1"
    assert one_line(ValueError(error)) == "Json error"


@pytest.mark.parametrize("version", [20_000, 99_999_999])
def test_an_entry_of_another_program_is_refused(store: Store, version: int) -> None:
    """Filling the gap before it would write an entry for each version."""
    log = second_entry(store, "builds").parent
    (log / f"{version:020d}.json").touch()
    before = sorted(log.iterdir())
    with pytest.raises(StoreFailed, match=rf"builds/_delta_log/{version:020d}\.json .*Delete this file"):
        transactions.restore(Location.of(store.url, None))
    assert sorted(log.iterdir()) == before


def many_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with 30 files of builds on one day, of which version 2 replaced some."""
    monkeypatch.setattr(delta, "_MAX_ROWS", 2)
    location = Location.of(folder, None)
    covered = Coverage(Moment.parse("2026-09-01T00:00:00Z"), moment(1), moment(1))
    builds = [Build(key, 1) for key in range(60)]
    transactions.commit(location, PLAIN, batch(builds, 1, scope="acme", coverage=covered))
    transactions.commit(location, PLAIN, batch([Build(7, 2), Build(60, 2)], 2))
    transactions.commit(location, PLAIN, batch([LAST], 3))
    return Store(location.url)


@pytest.mark.slow
def test_a_day_of_many_files_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = many_files(tmp_path, monkeypatch)
    before = stored_content(store)
    assert len(store.files("builds")) > 30
    empty(second_entry(store, "builds"))
    assert transactions.restore(Location.of(store.url, None)) == []
    assert stored_content(store) == before


@pytest.mark.slow
def test_rows_of_unlisted_files_are_kept_if_another_file_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = many_files(tmp_path, monkeypatch)
    entry = second_entry(store, "builds")
    lost = next(Path(path) for path in store.files("builds") if f'{Path(path).name}"' not in entry.read_text())
    lost_ids = {*pq.read_table(lost, columns=["id"], partitioning=None)["id"].to_pylist()}
    expected_ids = {*store.builds()["id"]} - lost_ids
    empty(entry)
    lost.unlink()
    assert transactions.restore(Location.of(store.url, None)) == ["2026-10-01"]
    builds = store.builds(columns=["id", "fetched_at"]).set_index("id")["fetched_at"]
    assert {*builds.index} == expected_ids
    assert builds["build-7"] == moment(2)


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
