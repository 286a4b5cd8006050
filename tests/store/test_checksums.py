"""Bits that change on the disk: no reader of the store returns other values."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import buildframe as bf
from buildframe.errors import BadInput, StoreFailed
from buildframe.store import checksums, transactions, verification
from buildframe.store.delta import TableVersion
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from tests.store.batches import PLAIN, Build, batch, expected, flaky, moment, stored_content

BUILDS = [Build(key, 1, day=key % 3) for key in range(60)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "store"
    transactions.commit(Location.of(folder, None), PLAIN, batch(BUILDS, 1, lists=(flaky({"a": 1}, 1),)))
    return folder


@pytest.fixture
def store(made: Path, tmp_path: Path) -> bf.Store:
    """A copy, which a test may damage."""
    return bf.Store(shutil.copytree(made, tmp_path / "store"))


def restore(store: bf.Store) -> list[str]:
    return transactions.restore(Location.of(store.url, None))


def edit(store: bf.Store, version: int, old: str, new: str, table: str = "builds") -> None:
    """Replace a text that occurs in a log entry."""
    log = Path(store.url, table, "_delta_log", f"{version:020d}.json")
    text = log.read_text()
    assert old in text
    log.write_text(text.replace(old, new, 1))


EDITS = [
    ('as_of\\": \\"2026-', 'as_of\\": \\"2027-', "checksum does not fit"),
    ('\\"checksum\\"', '\\"chec+sum\\"', "has no checksum|checksum does not fit"),
    ('\\"columns\\"', '\\"colum.s\\"', "checksum does not fit"),
    ('"buildframe":', '"buildfra-e":', "without its metadata"),
    ('"commitInfo"', '"commitInf/"', "without its metadata"),
]


def test_no_changed_metadata_is_used(store: bf.Store) -> None:
    log = Path(store.url, "builds", "_delta_log", f"{1:020d}.json")
    whole = log.read_text()
    for old, new, reason in EDITS:
        edit(store, 1, old, new)
        for use in (store.builds, store.verify, store.compact, lambda: restore(store)):
            with pytest.raises(StoreFailed, match=reason):
                use()
        log.write_text(whole)
    assert stored_content(store) == expected(BUILDS)


@pytest.mark.parametrize("table", ["builds", "jobs"])
def test_a_changed_name_of_a_column_is_noticed(store: bf.Store, table: str) -> None:
    """It is in the entry that creates the table. A sync must not record the changed name as the right one."""
    text = 'name\\":\\"state\\",\\"type'
    log = Path(store.url, table, "_delta_log", f"{0:020d}.json")
    assert log.read_text().count(text) == 1
    edit(store, 0, text, text.replace("state", "rtate"), table)
    assert store.verify().damaged == {f"{table}/_delta_log": "columns are not as they were committed"}
    for use in (
        store.builds if table == "builds" else store.jobs,
        store.compact,
        lambda: restore(store),
    ):
        with pytest.raises(StoreFailed, match="names or types"):
            use()


def test_columns_are_added_and_compared(store: bf.Store) -> None:
    location = Location.of(store.url, None)
    transactions.commit(location, Retention(personal=True), batch([Build(100, 2)], 2))
    assert len(store.builds()) == len(store.jobs()["build_id"].unique()) == 61
    assert "creator" in store.builds()
    assert store.verify().intact


def test_a_version_whose_entry_is_lost_cannot_be_read(store: bf.Store) -> None:
    for at in (2, 3):
        transactions.commit(Location.of(store.url, None), PLAIN, batch([Build(100, at)], at))
    assert bf.Store(store.url, as_of=2).version == 2
    entry = Path(store.url, "builds", "_delta_log", f"{2:020d}.json")
    entry.write_text("")
    for as_of in (2, moment(2)):
        with pytest.raises(StoreFailed, match="version 2 is empty"):
            bf.Store(store.url, as_of=as_of).builds()
    assert len(bf.Store(store.url, as_of=1).builds()) == 60
    assert bf.Store(store.url, as_of=moment(3)).version == 3


def data_files(store: bf.Store) -> list[Path]:
    files = [Path(path) for table in ("builds", "jobs", "flaky_tests") for path in store.files(table)]
    assert len(files) >= 3
    return files


def flip(file: Path, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


def test_names_and_pages_have_checksums(store: bf.Store) -> None:
    for path in data_files(store):
        named = re.search(r"-([0-9a-f]{8})(-v\d+)?\.parquet$", path.name)
        assert named is not None
        assert int(named[1], 16) == zlib.crc32(path.read_bytes())
        with pytest.raises(OSError, match="page integrity"):
            read_with_flipped_page(path)


def read_with_flipped_page(path: Path) -> None:
    """Read a copy in which the last byte of the first column has changed; the first 4 bytes are of the format."""
    copy = shutil.copy(path, path.with_name("copy"))
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    flip(Path(copy), 8 * (4 + column.total_compressed_size - 1))
    try:
        pq.ParquetFile(copy, page_checksum_verification=True).read()
    finally:
        Path(copy).unlink()


def test_no_reader_returns_other_values(store: bf.Store) -> None:
    chance = random.Random(44)
    file = Path(store.files("jobs")[0])
    table = TableVersion.at(Location.of(store.url, None), "jobs")
    assert table is not None
    [listed] = [one for one in table.files() if str(file).endswith(one.path)]
    readers: list[Callable[[], object]] = [
        store.jobs,
        lambda: store.sql("SELECT count(*) FROM jobs"),
        lambda: store.files("jobs"),
        lambda: table.read(listed),
    ]
    data = file.read_bytes()
    for _ in range(6):
        flip(file, chance.randrange(8 * len(data)))
        for read in readers:
            with pytest.raises(StoreFailed, match=f"{file.name} is not"):
                read()
        file.write_bytes(data)
    assert stored_content(store) == expected(BUILDS)


def test_a_change_of_unrelated_days_does_not_spread_damage(store: bf.Store) -> None:
    """A commit that copies rows of a damaged file would give them a new checksum."""
    file = Path(store.files("jobs")[0])
    flip(file, 8_000)
    location = Location.of(store.url, None)
    with pytest.raises(StoreFailed):
        transactions.commit(location, PLAIN, batch([Build(0, 2)], 2))
    flip(file, 8_000)
    transactions.commit(location, PLAIN, batch([Build(0, 2)], 2))
    assert stored_content(store) == expected([Build(0, 2), *BUILDS[1:]])


def test_a_file_is_verified_once_per_size_and_time(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[str] = []
    true = checksums._check_file
    monkeypatch.setattr(checksums, "_check_file", lambda *of: verified.append(of[2]) or true(*of))
    store.jobs()
    store.sql("SELECT 1 FROM jobs")
    assert len(verified) == 3  # one file for each of three days
    os.utime(store.files("jobs")[0], (0, 0))
    store.jobs()
    assert len(verified) == 4


def test_verify_lists_damaged_files_and_drop_lets_the_next_sync_read_them(store: bf.Store) -> None:
    jobs, builds = (Path(store.files(table)[0]) for table in ("jobs", "builds"))
    days = {path.parent.name.removeprefix("day=") for path in (jobs, builds)}
    size = sum(path.stat().st_size for path in data_files(store))
    assert (store.verify().intact, store.verify().bytes) == (True, size)
    flip(jobs, 100)
    builds.unlink()
    result = store.verify(drop=True)
    assert result.damaged == {
        f"jobs/{jobs.parent.name}/{jobs.name}": "is not as it was written",
        f"builds/{builds.parent.name}/{builds.name}": "is missing",
    }
    assert (set(result.days), result.files, str(result)[-15:]) == (days, 7, "2 files DAMAGED")
    assert store.verify().intact
    damaged = [build for build in BUILDS if f"2026-10-0{(build.day or 0) + 1}" in days]
    transactions.commit(Location.of(store.url, None), PLAIN, batch(damaged, 2))
    assert stored_content(store) == expected(BUILDS)
    with pytest.raises(BadInput, match="cannot be changed"):
        bf.Store(store.url, as_of=store.version).verify(drop=True)


def test_a_file_that_cannot_be_read_is_not_dropped(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeout or too many open files may pass, and the file be intact."""
    version, damaged, unread = store.version, Path(store.files("jobs")[0]), Path(store.files("jobs")[1])
    flip(damaged, 100)
    files = Location.files

    class OutOfFiles:
        def __init__(self, table: fs.FileSystem) -> None:
            self.table = table

        def open_input_file(self, path: str) -> object:
            if path.endswith(unread.name):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return self.table.open_input_file(path)

    of_state = verification.verify

    def verify(*of: Any, **options: Any) -> verification.VerifyResult:
        with mock.patch.object(Location, "files", lambda *of: OutOfFiles(files(*of))):
            return of_state(*of, **options)

    monkeypatch.setattr(verification, "verify", verify)
    assert sorted(store.verify().damaged.values()) == [
        "cannot be read: [Errno 24] Too many open files",
        "is not as it was written",
    ]
    with pytest.raises(StoreFailed, match=rf"dropped .*{unread.name} .*open files"):
        store.verify(drop=True)
    assert store.version == version


@pytest.mark.parametrize("has_checksum", [True, False])
def test_a_commit_trusts_no_damaged_footer(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch, has_checksum: bool
) -> None:
    """The ranges in footers say which files have rows to replace: with a wrong one, a build would be stored twice."""
    if not has_checksum:  # as in files of earlier versions, where only an id that is not UTF-8 is noticed
        monkeypatch.setattr(checksums, "recorded_checksum", lambda path: None)
    file = Path(store.files("builds")[0])
    first, last = min(data_ids(file)), max(data_ids(file))
    data, start = file.read_bytes(), pq.read_metadata(file).serialized_size + 8
    footer = data[-start:].replace(last.encode(), first.encode() if has_checksum else b"\xff" * len(last))
    assert footer != data[-start:]
    file.write_bytes(data[:-start] + footer)
    changed = next(build for build in BUILDS if build.id == last)
    with pytest.raises(StoreFailed, match=f"{file.name} is not"):
        transactions.commit(Location.of(store.url, None), PLAIN, batch([Build(changed.key, 2, day=changed.day)], 2))
    assert store.version == 1


def data_ids(file: Path) -> list[str]:
    return [str(id) for id in pq.ParquetFile(file).read(["id"])["id"].to_pylist()]


def test_verify_reports_a_lost_entry_and_files_without_checksum(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions.commit(Location.of(store.url, None), PLAIN, batch([Build(0, 2)], 2))
    Path(store.url, "jobs", "_delta_log", f"{1:020d}.json").write_text("")
    result = store.verify()
    assert result.damaged == {"jobs/_delta_log": "an entry is empty or missing"}
    assert result.days == ("2026-10-02", "2026-10-03")  # the second commit replaced the first day
    monkeypatch.setattr(checksums, "recorded_checksum", lambda path: None)
    assert store.verify().without_checksum == store.verify().files == 5
