"""Logs that lost an entry, as after a partial copy: readers refuse them, and a sync restores them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow.parquet as pq
import pytest

import buildframe as bf
from buildframe.errors import StoreFailed
from buildframe.spec import Moment
from buildframe.store import delta, lost_entries, transactions
from buildframe.store.delta import TableVersion
from buildframe.store.location import Location, one_line
from buildframe.store.reader import id_of
from buildframe.store.store import Store
from buildframe.store.sync_state import Coverage, SyncState
from buildframe.store.table_contents import TableContents
from tests.store.batches import (
    PLAIN,
    Build,
    Killed,
    StoredContent,
    batch,
    dies_at,
    expected,
    flaky,
    moment,
    stored_content,
)

TABLES = ("builds", "jobs", "flaky_tests")
BEFORE = [Build(0, 1), Build(1, 1), Build(2, 1, day=1)]
CHANGED, NEW = Build(1, 2), Build(3, 2, day=2)
LAST = Build(4, 3, day=3)
WHOLE = [Build(0, 1), CHANGED, Build(2, 1, day=1), NEW, LAST]

DAY = Moment.parse("2026-10-01T00:00:00Z")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three versions: the second one changes the day 2026-10-01 and adds 2026-10-03."""
    folder = tmp_path_factory.mktemp("made") / "store"
    covered = Coverage(Moment.parse("2026-09-01T00:00:00Z"), moment(1), moment(1))
    for at, builds in enumerate((BEFORE, [CHANGED, NEW], [LAST]), 1):
        lists = (flaky({"a": at}, at),)
        scope = {"scope": "acme", "coverage": covered} if at == 1 else {}
        transactions.commit(Location.of(folder, None), PLAIN, batch(builds, at, lists=lists, **scope))
    return folder


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Store:
    """A copy of that store, which a test may damage."""
    return Store(shutil.copytree(made, tmp_path / "store"))


def state_of(store: Store) -> SyncState:
    """Return what the newest commit of the builds recorded."""
    builds = TableVersion.at(Location.of(store.url, None), "builds")
    assert builds is not None
    return SyncState.newest(builds)


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


LOSSES = [("builds", empty), ("jobs", Path.unlink), ("flaky_tests", cut)]
OTHER_LOSSES = [
    ("builds", fill_with_zeros),
    ("builds", Path.unlink),
    ("jobs", empty),
    ("jobs", cut),
    ("flaky_tests", empty),
]


@pytest.mark.parametrize(
    ("table", "lose"), [*LOSSES, *(pytest.param(*loss, marks=pytest.mark.long) for loss in OTHER_LOSSES)]
)
def test_a_lost_entry_is_reported_and_its_files_are_restored(
    store: Store, table: str, lose: Callable[[Path], None]
) -> None:
    tests = store.flaky_tests(history=True)
    lose(second_entry(store, table))
    read = {"builds": store.builds, "jobs": store.jobs, "flaky_tests": store.flaky_tests}
    for call in (read[table], store.compact, store.clean):
        with pytest.raises(StoreFailed, match=r"partial copy|power cut|cannot be cleaned"):
            call()
    assert transactions.restore(Location.of(store.url, None)) == []
    assert stored_content(store) == expected(WHOLE)
    assert store.flaky_tests(history=True).equals(tests)
    assert transactions.restore(Location.of(store.url, None)) == []
    assert store.version == 4  # one version for the restoration, none if nothing is lost


@pytest.mark.parametrize(
    ("table", "lose"), [LOSSES[1], *(pytest.param(*one, marks=pytest.mark.long) for one in (LOSSES[0], LOSSES[2]))]
)
def test_a_lost_first_entry_is_written_again(store: Store, table: str, lose: Callable[[Path], None]) -> None:
    """It creates the table, and no file is in it."""
    lose(second_entry(store, table).with_name(f"{0:020d}.json"))
    assert transactions.restore(Location.of(store.url, None)) == []
    assert stored_content(store) == expected(WHOLE)
    assert stored_content(Store(store.url, as_of=1)) == expected(BEFORE)


def test_a_damaged_entry_is_named(store: Store) -> None:
    path = second_entry(store, "jobs")
    cut(path)
    name = f"jobs/_delta_log/{path.name}"
    with pytest.raises(StoreFailed) as failed:
        store.jobs()
    message = str(failed.value)
    assert f"{name} is damaged, as after a power cut" in message
    assert "Kernel" not in message
    assert store.verify().damaged == {name: "is a damaged part of a log"}


def test_a_backtrace_is_not_in_a_message() -> None:
    error = "Json error\n   0: <unknown>\n  1: start_thread\n    at ./nptl/pthread_create.c:442:8\n  at /rustc/a.rs:1"
    assert one_line(ValueError(error)) == "Json error"


def test_an_entry_of_another_program_is_refused(store: Store) -> None:
    """Filling the gap before it would write an entry for each version."""
    version = 20_000
    log = second_entry(store, "builds").parent
    (log / f"{version:020d}.json").write_text("{}\n")
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


@pytest.mark.long
def test_a_day_of_many_files_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = many_files(tmp_path, monkeypatch)
    before = stored_content(store)
    assert len(store.files("builds")) > 30
    empty(second_entry(store, "builds"))
    assert transactions.restore(Location.of(store.url, None)) == []
    assert stored_content(store) == before


@pytest.mark.long
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


@pytest.mark.parametrize("table", [pytest.param("builds", marks=pytest.mark.long), "jobs"])
def test_days_of_lost_files_are_requested_again(store: Store, table: str) -> None:
    entry = second_entry(store, table)
    delete_added_files(entry)
    empty(entry)
    assert transactions.restore(Location.of(store.url, None)) == ["2026-10-01", "2026-10-03"]
    assert store.builds()["id"].is_unique
    assert store.jobs()["id"].is_unique
    [covered] = state_of(store).coverage.values()
    assert (covered.until, covered.resync_from) == (DAY, DAY)
    transactions.commit(Location.of(store.url, None), PLAIN, batch([replace(CHANGED, at=5), replace(NEW, at=5)], 5))
    assert stored_content(store) == expected([*BEFORE[::2], replace(CHANGED, at=5), replace(NEW, at=5), LAST])


@pytest.mark.long
def test_a_whole_log_of_a_table_is_restored(store: Store) -> None:
    for entry in Path(store.url, "jobs", "_delta_log").iterdir():
        entry.unlink()
    with pytest.raises(StoreFailed, match="jobs/_delta_log is"):
        store.jobs()
    assert transactions.restore(Location.of(store.url, None)) == []
    assert stored_content(store) == expected(WHOLE)


@pytest.mark.long
def test_stores_without_this_record_are_opened(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an earlier version of the package wrote them; the next commit records the tables that it changes."""
    location, written = Location.of(store.url, None), SyncState.to_json

    def as_before(state: SyncState) -> dict[str, object]:
        return {name: value for name, value in written(state).items() if name not in ("contents", "checksum")}

    with monkeypatch.context() as patch:
        patch.setattr(SyncState, "to_json", as_before)
        transactions.commit(location, PLAIN, batch([Build(5, 4)], 4))
    assert state_of(store).contents == {}
    assert stored_content(store) == expected([*WHOLE, Build(5, 4)])
    transactions.commit(location, PLAIN, batch([Build(6, 5)], 5))
    assert {name: table.rows for name, table in state_of(store).contents.items()} == {"builds": 7, "jobs": 14}


# --- the last entry, and checkpoints


@pytest.fixture(scope="module")
def made_with_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 commits. Versions 19 of both tables have checkpoints; 20 is the last."""
    folder = tmp_path_factory.mktemp("made") / "store"
    for at in range(1, 21):
        transactions.commit(Location.of(folder, None), PLAIN, batch([Build(at, at, day=at % 3)], at))
    return folder


def log_file(store: Store, table: str, version: int, suffix: str = "json") -> Path:
    return Path(store.url, table, "_delta_log", f"{version:020d}.{suffix}")


def numbered(last: int) -> StoredContent:
    return expected(Build(at, at, day=at % 3) for at in range(1, last + 1))


@pytest.mark.long
@pytest.mark.parametrize(
    ("last", "lose"), [(19, empty), (19, Path.unlink), (20, cut), (20, Path.unlink), (20, fill_with_zeros)]
)
def test_a_lost_last_commit_is_reported_if_anything_of_it_is_left(
    made_with_checkpoint: Path, tmp_path: Path, last: int, lose: Callable[[Path], None]
) -> None:
    """Only its entry says which rows it had. Of 19, the checkpoint still has its files."""
    store = Store(shutil.copytree(made_with_checkpoint, tmp_path / "store"))
    for version in range(last + 1, 21):
        log_file(store, "builds", version).unlink()
    lose(log_file(store, "builds", last))
    location = Location.of(store.url, None)
    is_seen = last == 19 or lose is not Path.unlink
    if is_seen:
        with pytest.raises(StoreFailed, match=r"sync it|Sync it"):
            store.clean()
    assert transactions.restore(location) == ([transactions.LAST_COMMIT] if is_seen else [])
    assert stored_content(store) == numbered(last - 1)
    transactions.commit(location, PLAIN, batch([Build(99, 99)], 99))
    assert stored_content(store) == numbered(last - 1) | expected([Build(99, 99)])
    assert transactions.restore(location) == []


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-6] ^= 64  # the length of the footer
    path.write_bytes(data)


@pytest.mark.long
@pytest.mark.parametrize(
    ("table", "lose", "is_cleaned"),
    [
        ("builds", cut, True),
        ("jobs", flip, True),
        ("jobs", Path.unlink, True),
        ("builds", Path.unlink, False),
        ("builds", flip, False),
        ("jobs", cut, False),
    ],
)
def test_a_lost_checkpoint_is_named_and_set_aside(
    made_with_checkpoint: Path, tmp_path: Path, table: str, lose: Callable[[Path], None], is_cleaned: bool
) -> None:
    """A cleaning deletes the entries before it, so that only the record of the last commit names the files."""
    store = Store(shutil.copytree(made_with_checkpoint, tmp_path / "store"))
    lose(log_file(store, table, 19, "checkpoint.parquet"))
    for version in range(19) if is_cleaned else ():
        log_file(store, table, version).unlink()
    name = "_last_checkpoint" if lose is Path.unlink else f"{19:020d}.checkpoint.parquet"
    assert list(store.verify().damaged) == [f"{table}/_delta_log/{name}"]
    assert transactions.restore(Location.of(store.url, None)) == []
    assert stored_content(store) == numbered(20)


@pytest.mark.long
def test_an_older_entry_that_is_cut_does_not_stop_a_cleaning(made_with_checkpoint: Path, tmp_path: Path) -> None:
    """Its version is lost. Versions 6 to 18 have its rows only if its entry is read."""
    store = Store(shutil.copytree(made_with_checkpoint, tmp_path / "store"))
    for table in ("builds", "jobs"):
        cut(log_file(store, table, 5))
    assert store.clean("30d") == 0
    assert stored_content(store) == numbered(20)
    assert stored_content(Store(store.url, as_of=4)) == numbered(4)
    with pytest.raises(StoreFailed, match="partial copy"):
        Store(store.url, as_of=6).builds()


@pytest.mark.long
def test_an_entry_that_another_process_wrote_meanwhile_stays(store: Store) -> None:
    """The gap was listed before."""
    entries = second_entry(store, "builds"), log_file(store, "builds", 0)
    before = [entry.read_bytes() for entry in entries]
    for version in (2, 0):
        lost_entries._fill(Location.of(store.url, None), "builds", PLAIN.schema("builds"), version)
    assert [entry.read_bytes() for entry in entries] == before


def test_an_entry_that_no_commit_of_builds_names_may_be_cut(store: Store) -> None:
    """The power failed between the commits of jobs and builds."""
    location = Location.of(store.url, None)
    with contextlib.suppress(Killed), dies_at(1, of="commit"):
        transactions.commit(location, PLAIN, batch([Build(5, 4)], 4))
    cut(max(Path(store.url, "jobs", "_delta_log").glob("*.json")))
    assert transactions.restore(location) == []
    transactions.commit(location, PLAIN, batch([Build(5, 5)], 5))
    assert stored_content(store) == expected([*WHOLE, Build(5, 5)])


@pytest.mark.long
def test_a_day_that_another_program_changed_is_requested_again(store: Store) -> None:
    deltalake.DeltaTable(Path(store.url, "builds")).delete("id = 'build-4'")
    with pytest.raises(StoreFailed, match="with 4 rows"):
        store.builds()
    assert transactions.restore(Location.of(store.url, None)) == ["2026-10-04"]
    assert sorted(store.builds()["number"]) == [0, 1, 2, 3]


def test_a_list_that_lost_its_last_state_is_reported(store: Store) -> None:
    """The newest remaining file is written again, because a running sync may delete it."""
    entries = second_entry(store, "flaky_tests"), log_file(store, "flaky_tests", 3)
    delete_added_files(entries[1])
    for entry in entries:
        empty(entry)
    before = {*Path(store.url, "flaky_tests").glob("*.parquet")}
    assert transactions.restore(Location.of(store.url, None)) == ["flaky_tests"]
    assert list(store.flaky_tests()["instances"]) == [2]
    assert {Path(path) for path in store.files("flaky_tests")}.isdisjoint(before)


@pytest.mark.long
def test_other_files_with_the_checksum_of_a_day_are_not_taken(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 2 ** 14 lost files of a day with 18: the sum of its checksum and others is that of fewer files."""
    empty(second_entry(store, "builds"))
    recorded = state_of(store).contents["builds"]
    select = TableContents.select

    def select_none(contents: TableContents, day: str | None, *paths: Sequence[str]) -> list[str] | None:
        return [] if day == "2026-10-01" else select(contents, day, *paths)

    monkeypatch.setattr(TableContents, "select", select_none)
    assert transactions.restore(Location.of(store.url, None)) == ["2026-10-01", "2026-10-03"]
    assert recorded.rows == 5
    assert stored_content(store) == expected(WHOLE)


@pytest.mark.long
def test_a_restored_store_keeps_its_id_and_ignores_other_files(store: Store) -> None:
    before = id_of(store)
    second_entry(store, "builds").with_name(f"{0:020d}.json").unlink()
    empty(second_entry(store, "jobs"))
    Path(os.fsdecode(os.fsencode(store.url) + b"/jobs/day=2026-10-01/\xff.parquet")).touch()
    assert transactions.restore(Location.of(store.url, None)) == []
    assert id_of(store) == before
    assert stored_content(store) == expected(WHOLE)


@pytest.mark.long
def test_versions_of_a_concurrent_sync_are_not_compared(store: Store) -> None:
    """A commit of the jobs that no commit of the builds names belongs to no version of the store."""
    location = Location.of(store.url, None)
    jobs = TableVersion.at(location, "jobs")
    assert jobs is not None
    change = transactions.TableChange(jobs)
    change.removed.extend(jobs.files())
    jobs.commit(change)
    assert stored_content(store) == expected(WHOLE)
    assert transactions.restore(location) == []
    transactions.commit(location, PLAIN, batch([Build(5, 4)], 4))
    assert stored_content(store) == expected([*WHOLE, Build(5, 4)])


@pytest.mark.long
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
        with pytest.warns(UserWarning, match="lost files"):
            assert store.sync(ci, since="3d", progress=False).complete
        after = store.jobs(columns=["id", "state"])
        assert after.sort_values("id", ignore_index=True).equals(before.sort_values("id", ignore_index=True))
        assert set(store.builds()["id"]) == set(ci.builds()["id"])
