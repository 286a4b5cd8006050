"""Imports of exports that others can write to: unreadable files, links, late times, and bounds of memory."""

from __future__ import annotations

import datetime as dt
import errno
import gzip
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import buildframe as bf
from buildframe.store import export_files, export_folders
from buildframe.store.delta import DataFile, TableVersion

UUID = "00000000-0000-0000-0000-{:012}"
DAY = "2026-10-26"


def write(file: Path, document: Any) -> Path:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(body))
    return file


def export(top: Path, number: int, n_jobs: int = 1, **values: Any) -> Path:
    """Write a build with its jobs as the service exports them, and return its folder."""
    pipeline = UUID.format(1)
    folder = top / f"org={UUID.format(9)}" / f"date={DAY}" / f"pipeline={pipeline}" / f"build={UUID.format(number)}"
    build = {
        "id": UUID.format(number),
        "number": number,
        "state": "passed",
        "created_at": f"{DAY}T08:00:00Z",
        "started_at": f"{DAY}T08:01:00Z",
        "finished_at": f"{DAY}T08:09:00Z",
        "pipeline": {"id": pipeline, "slug": "web"},
    }
    write(folder / "build.json.gz", {**build, **values})
    for place in range(n_jobs):
        id = UUID.format(1_000_000 * number + place)
        job = {"id": id, "type": "script", "state": "passed", "finished_at": f"{DAY}T08:08:00Z"}
        write(folder / "jobs" / f"job-{id}.json.gz", job)
    return folder


def job_file(folder: Path) -> Path:
    return next((folder / "jobs").iterdir())


def numbers(store: bf.Store) -> list[int]:
    return sorted(store.builds()["number"])


@pytest.fixture
def exports(tmp_path: Path) -> Path:
    """An export of three builds."""
    for number in (1, 2, 3):
        export(tmp_path / "exports", number)
    return tmp_path / "exports"


@pytest.fixture
def first(exports: Path) -> Path:
    """The folder of the first build."""
    return next(exports.rglob("build=*1"))


# --- folders that belong to no build


def test_a_copy_under_another_id_is_skipped(exports: Path, first: Path, store: bf.Store) -> None:
    """Within one import, and if its jobs are stored for the other build."""

    def copy_as(number: int) -> str:
        folder = shutil.copytree(first, first.with_name(f"build={UUID.format(number)}"))
        document = json.loads(gzip.decompress((folder / "build.json.gz").read_bytes()))
        write(folder / "build.json.gz", {**document, "id": UUID.format(number)})
        return str(folder.relative_to(exports))

    copy_as(4)
    result = store.import_exports(exports, progress=False)
    assert (result.builds, result.jobs) == (3, 3)
    [(skipped, why)] = result.skipped.items()
    owner = 4 if skipped.endswith("1") else 1
    assert why == f"its jobs are also those of build {UUID.format(owner)}"
    path = copy_as(5)
    again = store.import_exports(exports, progress=False)
    assert again.skipped == {skipped: why, path: why}
    assert (again.builds, again.unchanged) == (0, 3)


def test_jobs_are_compared_with_those_of_their_days(
    exports: Path, store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import of years would otherwise read the jobs of all days in each of its commits."""
    export(exports, 4, created_at="2026-10-25T08:00:00Z")
    store.import_exports(exports, progress=False)
    compared: list[str | None] = []
    key_range = TableVersion._key_range

    def record(self: TableVersion, file: DataFile, key: str) -> tuple[str, str] | None:
        if (self.name, key) == ("jobs", "id"):
            compared.append(file.day)
        return key_range(self, file, key)

    monkeypatch.setattr(TableVersion, "_key_range", record)
    export(exports, 5, created_at="2026-10-25T08:00:00Z")
    assert store.import_exports(exports, progress=False).builds == 1
    assert compared == ["2026-10-25"]


def test_names_of_folders_are_printed_without_control_characters(exports: Path, first: Path, store: bf.Store) -> None:
    first.rename(first.with_name("build=\x1b]0;x\x07\n"))
    result = store.import_exports(exports, progress=False)
    [(path, _)] = result.skipped.items()
    assert path.endswith("build=␛]0;x␇␊")
    assert str(result).isprintable()


# --- files that cannot be read


@pytest.mark.parametrize("name", ["build.json.gz", "jobs"])
def test_an_unreadable_file_is_skipped_and_reported(
    exports: Path, first: Path, store: bf.Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As on a disk with a bad sector."""
    bad = first / name if name != "jobs" else job_file(first)
    opened = os.open

    def open_or_fail(path: Any, *more: Any, **options: Any) -> int:
        if str(path) == str(bad):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(path, *more, **options)

    monkeypatch.setattr(export_files.os, "open", open_or_fail)
    result = store.import_exports(exports, progress=False)
    assert result.skipped == {
        str(first.relative_to(exports)): f"{bad.relative_to(first)} cannot be read: {os.strerror(errno.EIO)}"
    }
    assert numbers(store) == [2, 3]
    monkeypatch.undo()
    again = store.import_exports(exports, progress=False)
    assert (again.complete, again.builds, again.unchanged) == (True, 1, 2)


def test_a_disk_that_is_gone_ends_the_import(exports: Path, store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove_disk(*_: Any) -> bytes:
        with suppress(FileNotFoundError):
            exports.rename(exports.with_name("gone"))
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(export_files.ExportFiles, "_read_local", remove_disk)
    with pytest.raises(bf.StoreFailed, match="import again"):
        store.import_exports(exports, progress=False)


def test_a_folder_that_cannot_be_listed_is_skipped_and_reported(
    exports: Path, first: Path, store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = os.scandir

    def list_or_fail(path: Any = ".") -> Any:
        if str(path) == str(first / "jobs"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return listed(path)

    monkeypatch.setattr(export_files.os, "scandir", list_or_fail)
    result = store.import_exports(exports, progress=False)
    assert result.skipped == {str(first.relative_to(exports)): "jobs: it cannot be listed: Permission denied"}
    assert numbers(store) == [2, 3]


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(exports: Path, first: Path, store: bf.Store) -> None:
    (first / "build.json.gz").unlink()
    os.mkfifo(first / "build.json.gz")
    result = store.import_exports(exports, progress=False)
    assert list(result.skipped.values()) == ["build.json.gz: it is not a regular file"]
    assert numbers(store) == [2, 3]


def test_a_name_that_is_not_utf8_is_reported_readably(exports: Path, first: Path, store: bf.Store) -> None:
    name = os.fsdecode(b"build=\xff")
    first.rename(first.with_name(name))
    (path,) = store.import_exports(exports, progress=False).skipped
    assert path.endswith("build=\ufffd")
    assert numbers(store) == [2, 3]


# --- links


@pytest.mark.long
def test_links_are_not_followed(exports: Path, tmp_path: Path) -> None:
    levels = ("org=*", "pipeline=*", "build=*1", "build.json.gz", "jobs", "job-*")
    export(exports / "org=other", 7)  # so that there is another build in any case
    paths = [sorted(exports.rglob(level))[0] for level in levels]
    for number, path in enumerate(paths):
        moved = path.rename(tmp_path / "moved")
        path.symlink_to(moved)
        store = bf.Store(tmp_path / f"{number}")
        result = store.import_exports(exports, progress=False)
        assert any("links are not followed" in why for why in result.skipped.values())
        assert not result.complete
        assert (1 in numbers(store), 7 in numbers(store)) == (False, True), path.name
        path.unlink()
        moved.rename(path)


def test_a_link_to_the_root_lists_no_disk(
    exports: Path, first: Path, store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first.parent / "build=root").symlink_to("/")
    (first / "more").symlink_to("/")
    listed: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(export_files.os, "scandir", lambda path: listed.append(str(path)) or scandir(path))
    result = store.import_exports(exports, progress=False)
    assert [Path(path).name for path in result.skipped] == ["build=root"]  # files with other names are not read at all
    assert numbers(store) == [1, 2, 3]
    assert all(Path(path).is_relative_to(exports.parent) for path in listed)


def test_the_export_itself_may_be_a_link(exports: Path, tmp_path: Path, store: bf.Store) -> None:
    (tmp_path / "link").symlink_to(exports)
    assert store.import_exports(tmp_path / "link", progress=False).complete
    assert numbers(store) == [1, 2, 3]


# --- times after the import


def test_times_after_the_day_of_the_import_are_odd_values(exports: Path, store: bf.Store) -> None:
    later = (dt.datetime.now(dt.UTC) + dt.timedelta(days=3)).isoformat()
    export(exports, 4, finished_at="8998-01-01T00:00:00Z")
    folder = export(exports, 5, finished_at=later)
    write(job_file(folder), {"id": UUID.format(5_000_000), "type": "script", "finished_at": "8998-01-01T00:00:00Z"})
    result = store.import_exports(exports, progress=False)
    assert (result.odd, result.complete, result.builds) == (3, True, 5)
    builds = store.builds(created_from="30d").set_index("number")
    assert list(builds.index.sort_values()) == [1, 2, 3, 4, 5]
    assert builds["finished_at"].isna().to_dict() == {1: False, 2: False, 3: False, 4: True, 5: True}
    assert store.as_of.text() == f"{DAY}T08:09:00Z"
    export(exports, 4)  # exported again, now with the right time
    assert store.import_exports(exports, progress=False).builds == 1


def test_a_build_that_was_created_after_the_import_is_skipped(exports: Path, store: bf.Store) -> None:
    export(exports, 4, created_at="8998-01-01T00:00:00Z")
    result = store.import_exports(exports, progress=False)
    assert list(result.skipped.values()) == ["build.json.gz was created after the day of this import"]
    assert numbers(store) == [1, 2, 3]


def test_a_clock_that_is_behind_makes_no_exported_day_odd(
    exports: Path, store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Behind(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return cls(2025, 1, 1, tzinfo=tz)

    monkeypatch.setattr(export_folders.dt, "datetime", Behind)
    result = store.import_exports(exports, progress=False)
    assert (result.odd, result.complete, result.builds) == (0, True, 3)


# --- bounds


def test_builds_that_are_too_large_are_skipped_and_reported(
    exports: Path, store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_folders, "MAX_JOBS", 3)
    monkeypatch.setattr(export_folders, "MAX_FILE_BYTES", 20_000)
    monkeypatch.setattr(export_folders, "MAX_BYTES", 30_000)
    export(exports, 4, n_jobs=4)
    export(exports, 5, message="x" * 20_000)
    large = export(exports, 6, n_jobs=2, message="x" * 15_000)
    write(job_file(large), {"id": job_file(large).name[4:-8], "command": "x" * 15_000})
    result = store.import_exports(exports, progress=False)
    assert {Path(path).name[-1]: why for path, why in result.skipped.items()} == {
        "4": "it has 4 jobs, more than 3",
        "5": "build.json.gz has more than 20,000 bytes after decompression",
        "6": mock.ANY,
    }
    assert "after decompression" in next(why for path, why in result.skipped.items() if path.endswith("6"))
    assert numbers(store) == [1, 2, 3]


def test_builds_too_large_for_threads_are_read_one_at_a_time(
    exports: Path, store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their messages alone exceed what a thread may hold."""
    from buildframe.store import imports

    monkeypatch.setattr(imports, "_SHARED", export_folders.Bounds(2_000, 5_000, 2))
    monkeypatch.setattr(imports, "_BYTES_PER_BATCH", 8_000)
    for number in range(4, 10):
        export(exports, number, message="x" * 3_000)
    export(exports, 10, n_jobs=3)
    result = store.import_exports(exports, progress=False)
    assert (result.complete, result.builds) == (True, 10)
    assert numbers(store) == list(range(1, 11))
    assert store.version > 2  # several commits, each of few bytes


ROOM = 1_000  # MiB: the interpreter with its libraries, and what the bounds permit

# `ru_maxrss` would include the memory of the process that started this one, before it became another program.
IMPORT = """
import sys
from pathlib import Path
import buildframe as bf

result = bf.Store(sys.argv[1] + "/store").import_exports(sys.argv[1] + "/exports", progress=False)
(peak,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
print(int(peak.split()[1]) // 1024, result.builds, len(result.skipped))
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such file")
@pytest.mark.parametrize(
    ("inner", "imported"),
    [
        (b'"jobs": [' + b"{}," * 5_000_000 + b"{}]", True),
        (b'"message": "' + b"x" * 120_000_000 + b'"', False),
    ],
    ids=["rows", "bytes"],
)
def test_the_memory_of_an_import_is_bounded(tmp_path: Path, inner: bytes, imported: bool) -> None:
    """32 builds of some kilobytes on the disk, each of which has up to 120 MB when it is decompressed."""
    first = export(tmp_path / "exports", 1) / "build.json.gz"
    body = gzip.decompress(first.read_bytes())
    for number in range(2, 34):
        folder = export(tmp_path / "exports", number)
        whole = body.replace(UUID.format(1).encode(), UUID.format(number).encode(), 1)
        write_once = tmp_path / "large.gz"
        if number == 2:
            write_once.write_bytes(gzip.compress(b"," + inner + b"}", 1))
        (folder / "build.json.gz").write_bytes(gzip.compress(whole[:-1]) + write_once.read_bytes())
    run = subprocess.run([sys.executable, "-c", IMPORT, str(tmp_path)], capture_output=True, text=True, check=True)
    peak, builds, skipped = map(int, run.stdout.split())
    assert builds + skipped == 33, run.stdout
    assert peak < ROOM
    assert (builds > 1) == imported
