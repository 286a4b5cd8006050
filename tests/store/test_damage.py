"""Damaged stores, stores of other versions, unusual folder names; and the files that `clean` leaves."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import deltalake
import pytest

from buildframe.errors import BadInput, BuildframeError, StoreFailed
from buildframe.store import delta, transactions
from buildframe.store.delta import TableVersion
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.store.store import Store
from buildframe.store.sync_state import SyncState
from tests.store.batches import PLAIN, Build, batch, expected, flaky, moment, stored_content

PERSONAL = Retention(personal=True)


def sync(folder: Path | str, *builds: Build, retention: Retention = PLAIN, at: int = 1) -> transactions.CommitResult:
    return transactions.commit(Location.of(folder, None), retention, batch(builds, at, lists=(flaky({"a": at}, at),)))


def _log(folder: Path, table: str = "builds") -> Path:
    return sorted((folder / table / "_delta_log").glob("*.json"))[-1]


def _add(entry: dict[str, object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        log = _log(folder)
        log.write_text(log.read_text() + json.dumps(entry) + "\n")

    return damage


def _remove_a_data_file(folder: Path) -> None:
    next((folder / "builds").glob("day=*/*.parquet")).unlink()


def _spoil_a_data_file(folder: Path) -> None:
    next((folder / "builds").glob("day=*/*.parquet")).write_bytes(b"PAR1, it says")


def _later_format(folder: Path) -> None:
    log = _log(folder)
    log.write_text(log.read_text().replace('\\"format\\": 2', '\\"format\\": 3'))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "log": (lambda folder: _log(folder).write_text("{garbage"), "could not be read"),
    "first entry": (lambda folder: _log(folder).with_name(f"{0:020d}.json").unlink(), "entry is missing"),
    "log of jobs": (lambda folder: _log(folder, "jobs").write_text("{garbage"), "could not be read"),
    "file gone": (_remove_a_data_file, "No such file"),
    "file spoilt": (_spoil_a_data_file, "not as it was written"),
    "later Delta": (_add({"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}}), "reader version 99"),
    "later format": (_later_format, "reads format"),
}


def test_damage_is_reported_in_one_line(tmp_path: Path) -> None:
    for name, (damage, words) in DAMAGES.items():
        folder = tmp_path / name
        sync(folder, Build(1, 1))
        damage(folder)
        reasons = []
        for call in (lambda: stored_content(Store(folder)), lambda: sync(folder, Build(1, 2), at=2)):  # noqa: B023
            with pytest.raises(StoreFailed) as failed:
                call()
            reasons.append(str(failed.value))
            assert failed.value.__cause__ is None
            assert failed.value.__suppress_context__ or failed.value.__context__ is None
        assert [reason for reason in reasons if "\n" in reason or "\x1b" in reason] == []
        assert words in reasons[0], name


def test_a_log_entry_that_is_empty_after_a_power_cut_is_written_again(tmp_path: Path) -> None:
    """The name of a file may outlast a power cut without its content; such a version has changed nothing."""
    sync(tmp_path, Build(1, 1))
    sync(tmp_path, Build(1, 2), at=2)
    _log(tmp_path).write_text("")
    assert stored_content(Store(tmp_path)) == expected([Build(1, 1)])
    sync(tmp_path, Build(1, 2), at=2)
    assert stored_content(Store(tmp_path)) == expected([Build(1, 2)])


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="is a file"):
        Store(tmp_path / "file")
    (tmp_path / "builds").write_text("")
    with pytest.raises(StoreFailed, match="could not be written"):
        sync(tmp_path, Build(1, 1))


@pytest.mark.long
def test_folders_may_be_named_oddly(tmp_path: Path) -> None:
    names = ["with space", "ünï 雪", "100%", "a#b", "a?b", "q'u\"ote", "[x]", "day=2026-01-01"]
    for name in names:
        sync(tmp_path / name, Build(1, 1))
        store = Store(tmp_path / name)
        assert stored_content(store) == expected([Build(1, 1)])
        assert all(Path(file).is_file() for file in store.files("jobs"))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(names)


def test_a_folder_whose_name_would_be_read_as_another(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"deltalake reads it as '.*/a b'"):
        Store(tmp_path / "a%20b")


def test_builds_without_a_time_of_creation_are_kept_once(tmp_path: Path) -> None:
    builds = [Build(1, 1, day=None), Build(2, 1, day=0)]
    sync(tmp_path, *builds)
    assert stored_content(Store(tmp_path)) == expected(builds)
    sync(tmp_path, Build(1, 5, day=None, jobs=(7,)), Build(3, 5, day=None), at=5)
    now = [Build(1, 5, day=None, jobs=(7,)), Build(2, 1), Build(3, 5, day=None)]
    assert stored_content(Store(tmp_path)) == expected(now)
    Store(tmp_path).compact()
    assert stored_content(Store(tmp_path)) == expected(now)
    lost = batch([], 6, gone=[now[0]])
    transactions.commit(Location.of(tmp_path, None), PLAIN, lost)
    assert stored_content(Store(tmp_path)) == expected(now, gone={"build-1"})


def test_columns_come_with_a_later_version_and_stay(tmp_path: Path) -> None:
    """As when names of people are kept from some day on, and then no more."""
    sync(tmp_path, Build(1, 1), Build(2, 1, day=1))
    assert "creator" not in Store(tmp_path).builds()
    sync(tmp_path, Build(1, 2), Build(3, 2), retention=PERSONAL, at=2)
    creators = Store(tmp_path).builds().set_index("id")["creator"].fillna("nobody")
    assert creators.to_dict() == {"build-1": "Ada Example", "build-2": "nobody", "build-3": "Ada Example"}
    sync(tmp_path, Build(3, 3), at=3)
    assert Store(tmp_path).builds().set_index("id")["creator"].notna().to_dict() == {
        "build-1": True,
        "build-2": False,
        "build-3": False,
    }
    assert "creator" not in Store(tmp_path, as_of=moment(1)).builds()
    wanted = [Build(1, 2), Build(2, 1, day=1), Build(3, 3)]
    Store(tmp_path).compact()
    assert stored_content(Store(tmp_path)) == expected(wanted)


# --- cleaning


def make_older(folder: Path, days: float = 2) -> None:
    """As if all had been done some days ago: files, and what the log says of commits."""
    for file in folder.glob("**/*.parquet"):
        os.utime(file, (time.time() - days * 86_400,) * 2)
    for log in folder.glob("**/_delta_log/*.json"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] -= int(days * 86_400_000)
        log.write_text("\n".join(map(json.dumps, lines)) + "\n")


def test_clean_keeps_versions_within_the_duration_and_refuses_older_ones(tmp_path: Path) -> None:
    versions = [sync(tmp_path, Build(1, at), at=at).state.version for at in (1, 2, 3)]
    make_older(tmp_path)
    store = Store(tmp_path)
    assert transactions.clean(Location.of(tmp_path, None), dt.timedelta(seconds=1)) == 3  # of builds, jobs and the list
    assert stored_content(store) == expected([Build(1, 3)])
    assert stored_content(Store(tmp_path, as_of=versions[1])) == expected([Build(1, 2)])
    for wanted in (versions[0], moment(1)):
        with pytest.raises(BadInput, match=f"sync: version {versions[1]}"):
            stored_content(Store(tmp_path, as_of=wanted))
    assert transactions.clean(Location.of(tmp_path, None), dt.timedelta(days=9)) == 0
    with pytest.raises(BadInput, match="first readable sync"):
        stored_content(Store(tmp_path, as_of=versions[0]))


@pytest.mark.long
def test_a_cleaning_leaves_as_much_of_the_log_as_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "GRACE", dt.timedelta(0))
    monkeypatch.setitem(delta._TABLE_CONFIGURATION, "delta.checkpointInterval", "5")
    for at in range(14):
        sync(tmp_path, Build(at % 3, at), at=at)
    log = tmp_path / "builds" / "_delta_log"
    known = {version: stored_content(Store(tmp_path, as_of=version)) for version in (8, 9, 11, 14)}
    checkpoints = sorted(int(path.name[:20]) for path in log.glob("0*.checkpoint.parquet"))
    needed = max(version for version in checkpoints if version <= 8)
    assert needed < max(checkpoints)
    make_older(tmp_path)
    assert transactions.clean(Location.of(tmp_path, None), dt.timedelta(seconds=6)) > 0
    left = sorted(int(path.name[:20]) for path in log.glob("0*"))
    assert 0 < needed == left[0]
    assert set(range(needed, 16)) == set(left)
    assert {version for version in checkpoints if version >= needed} <= {
        version for version in left if left.count(version) == 2
    }
    assert {version: stored_content(Store(tmp_path, as_of=version)) for version in known} == known
    with pytest.raises(BadInput, match="sync: version 8"):
        Store(tmp_path, as_of=7).builds()
    sync(tmp_path, Build(7, 60), at=60)
    assert "build-7" in stored_content(Store(tmp_path))
    assert deltalake.DeltaTable(tmp_path / "builds").to_pyarrow_table().num_rows == 4


def test_a_cleaning_leaves_what_was_given_up_within_a_day(tmp_path: Path) -> None:
    """A reader may be at it: the version was the newest when it began."""
    version = sync(tmp_path, Build(1, 1)).state.version
    make_older(tmp_path)
    sync(tmp_path, Build(1, 2), at=2)
    assert transactions.clean(Location.of(tmp_path, None), dt.timedelta(0)) == 0
    assert stored_content(Store(tmp_path, as_of=version)) == expected([Build(1, 1)])


def test_a_cleaning_makes_no_version_of_a_table_but_the_builds(tmp_path: Path) -> None:
    sync(tmp_path, Build(1, 1))
    before = {name: deltalake.DeltaTable(tmp_path / name).version() for name in ("builds", "jobs", "flaky_tests")}
    Store(tmp_path).clean()
    after = {name: deltalake.DeltaTable(tmp_path / name).version() for name in before}
    assert after == {**before, "builds": before["builds"] + 1}


# --- a long log


@pytest.mark.long
def test_a_long_log_is_read_from_a_checkpoint_and_few_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = sync(tmp_path, Build(1, 1)).state
    for at in range(2, 105):
        builds = TableVersion.at(Location.of(tmp_path, None), "builds")
        assert builds is not None
        builds.commit(transactions.TableChange(builds), replace(state, as_of=moment(at)).to_json())
    assert list(tmp_path.glob("builds/_delta_log/*.checkpoint.parquet"))
    builds = TableVersion.at(Location.of(tmp_path, None), "builds")
    assert builds is not None
    read: list[int] = []
    true = TableVersion.log_entry
    monkeypatch.setattr(TableVersion, "log_entry", lambda table, version: read.append(version) or true(table, version))
    found = SyncState.at(builds, moment(60))
    assert found is not None
    assert found.as_of == moment(60)
    assert len(read) < 20
    assert stored_content(Store(tmp_path, as_of=moment(60))) == expected([Build(1, 1)])


def test_all_errors_are_errors_of_buildframe(tmp_path: Path) -> None:
    sync(tmp_path, Build(1, 1))
    for log in tmp_path.glob("*/_delta_log/*.json"):
        log.write_bytes(b"\xff\x00")
    for call in (
        Store(tmp_path).builds,
        Store(tmp_path).compact,
        Store(tmp_path).clean,
        lambda: Store(tmp_path).version,
    ):
        with pytest.raises(BuildframeError):
            call()
