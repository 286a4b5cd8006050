"""Each I/O call of a commit, a compaction, a cleaning and a save fails in turn: no space, an I/O error, the end."""

from __future__ import annotations

import datetime as dt
import errno
import functools
import json
import os
import re
import resource
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import unquote

import deltalake
import pandas as pd
import pytest

import buildframe as bf
from buildframe.errors import StoreFailed
from buildframe.store import transactions
from buildframe.store.location import Location
from buildframe.store.transactions import SyncBatch
from tests.simulation.disk import Died, Disk
from tests.store.batches import PLAIN, Build, StoredContent, batch, expected, flaky, stored_content

pytestmark = pytest.mark.long

WAYS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "death": None}
OLD = [Build(key, at=0, jobs=(0,)) for key in range(3)]
NEW = [Build(key, at=1, jobs=(0, 1)) for key in range(2, 4)]
BEFORE, AFTER = expected(OLD), expected([*OLD, *NEW])


@functools.cache
def fetched(builds: tuple[Build, ...], at: int) -> SyncBatch:
    return batch(builds, at, lists=(flaky({"a": at}, at),))


def bring(folder: Path, builds: Iterable[Build], at: int) -> None:
    """What a sync does with what it has fetched."""
    transactions.commit(Location.of(folder, None), PLAIN, fetched(tuple(builds), at))


def first(folder: Path) -> None:
    bring(folder, OLD, 0)


def again(folder: Path) -> None:
    bring(folder, NEW, 1)


def compact(folder: Path) -> None:
    bf.Store(folder).compact()


def clean(folder: Path) -> None:
    bf.Store(folder).clean("0d")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store before each operation; before the cleaning all files are old, and some are of no version."""
    base = tmp_path_factory.mktemp("stores")
    found = {"first": base / "first", "again": base / "again", "compact": base / "compact", "clean": base / "clean"}
    found["first"].mkdir()
    first(found["again"])
    for name in ("compact", "clean"):
        first(found[name])
        for at in range(1, 3):
            bring(found[name], [Build(9, at=at), Build(10 + at, at=at)], at)
    compact(found["clean"])
    shutil.copy(next(found["clean"].glob("jobs/**/*.parquet")), found["clean"] / "jobs" / "orphan.parquet")
    for file in found["clean"].rglob("*.*"):
        os.utime(file, (time.time() - 2 * 86_400,) * 2)
    return found


def content(folder: Path) -> StoredContent | None:
    try:
        return stored_content(bf.Store(folder))
    except bf.BadInput:  # there is no store yet
        return None


def tried(folder: Path, do: Callable[[Path], None], disk: Disk) -> BaseException | None:
    """How the operation failed; None if it did not."""
    try:
        with disk.installed():
            do(folder)
    except (Died, StoreFailed) as why:
        return why
    return None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("do", [first, again, compact, clean], ids=lambda do: do.__name__)
def test_each_call_of_a_store_fails_in_turn(stores, tmp_path, monkeypatch, do, way):
    monkeypatch.setattr(transactions, "GRACE", dt.timedelta(0))
    base, folder = stores[do.__name__], tmp_path / "store"
    shutil.copytree(base, folder)
    before, unnamed_before = content(folder), unnamed(folder)
    whole = Disk(folder)
    assert tried(folder, do, whole) is None
    after = content(folder)
    assert len(whole.calls) >= 5
    for number in points(whole.calls, way):
        shutil.rmtree(folder)
        shutil.copytree(base, folder)
        disk = Disk(folder, number, WAYS[way])
        why = tried(folder, do, disk)
        assert content(folder) in ([before, after] if why else [after]), disk
        if isinstance(why, StoreFailed):
            assert str(folder) in str(why), disk
            assert "try again" in str(why), disk
        do(folder)
        assert content(folder) == after, disk
        if unnamed(folder) - unnamed_before:
            assert left_over(folder) == set(), disk


@pytest.mark.parametrize(("number", "bytes_of_log"), [(0, 0), (1, 100), (2, 0), (2, 100)])
def test_a_write_that_fails_inside_a_commit_of_delta_leaves_the_store_as_it_was(
    stores, tmp_path, monkeypatch, number, bytes_of_log
):
    """The kernel refuses to write more to a file while deltalake writes its log."""
    folder, true = tmp_path / "store", deltalake.DeltaTable.create_write_transaction
    shutil.copytree(stores["again"], folder)
    before, calls = content(folder), iter(range(100))

    def refused(*args, **more):
        if next(calls) != number:
            return true(*args, **more)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_of_log, limits[1]))
        try:
            return true(*args, **more)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with monkeypatch.context() as patch:
        patch.setattr(deltalake.DeltaTable, "create_write_transaction", refused)
        with pytest.raises(StoreFailed, match=f"{re.escape(str(folder))}.*File too large"):
            again(folder)
    assert next(calls) == number + 1
    assert content(folder) == before
    again(folder)
    assert content(folder) == AFTER
    assert left_over(folder) == set()


def points(calls: list[str], way: str) -> list[int]:
    """The calls to try: of the many writes of one file the first and the last. No space is missing for what only reads
    or deletes; an I/O error takes the same way as no space, so it is tried at the others. A process that dies at what
    only reads leaves the same as one that dies at the next change, and one that dies before it makes a folder or opens
    a file the same as one that dies after the change before. Of the reads of one file too, the first and the last.
    """
    last = {name: i for i, name in enumerate(calls)}
    found = [i for i, name in enumerate(calls) if last[name] == i or name not in calls[:i]]
    if way == "EIO":
        is_flushed = [
            f"fsync {call.removeprefix('open ')}" == after for call, after in zip(calls, [*calls[1:], ""], strict=True)
        ]
        return [i for i in found if calls[i].startswith(_NEEDS_NO_SPACE) and not is_flushed[i]]
    skipped = (*_READING, "mkdir ", "open(wb) ") if way == "death" else _NEEDS_NO_SPACE
    return [i for i in found if not calls[i].startswith(skipped)]


_READING = ("read ", "list ", "open ", "open(rb) ", "fsync ")
_NEEDS_NO_SPACE = (*_READING, "delete ", "unlink ")


def left_over(folder: Path) -> set[str]:
    """Files that nothing names, after one more commit and a cleaning of all that is not of the newest version."""
    for file in folder.rglob("*.*"):
        os.utime(file, (time.time() - 2 * 86_400,) * 2)
    bring(folder, [Build(20, at=9)], 9)  # afterwards, because its time confirms the local clock
    bf.Store(folder).clean("0d")
    return unnamed(folder)


def unnamed(folder: Path) -> set[str]:
    """Files of rows that no entry of a log has added, and temporary files of any kind."""
    named = set()
    for entry in folder.glob("*/_delta_log/*.json"):
        actions = map(json.loads, entry.read_text().splitlines())
        named |= {str(entry.parent.parent / unquote(one["add"]["path"])) for one in actions if "add" in one}
    there = {str(path) for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts}
    return (there - named) | {str(path) for path in folder.rglob("*") if "tmp" in path.name}


# --- one file


FRAMES = {at: pd.DataFrame({"id": [f"b{n}" for n in range(50)], "at": at}) for at in (0, 1)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["builds.parquet", "builds.csv"])
def test_each_call_of_save_fails_in_turn(tmp_path, name, way):
    path = tmp_path / name
    bf.save(path, FRAMES[1])
    new = path.read_bytes()
    bf.save(path, FRAMES[0])
    old = path.read_bytes()
    whole = Disk(tmp_path)
    with whole.installed():
        bf.save(path, FRAMES[1])
    for number in range(len(whole.calls)):
        path.write_bytes(old)
        disk = Disk(tmp_path, number, WAYS[way])
        with pytest.raises((OSError, Died)) as failure, disk.installed():
            bf.save(path, FRAMES[1])
        assert path.read_bytes() in (old, new), disk
        left = [one for one in tmp_path.iterdir() if one != path]
        if isinstance(failure.value, OSError):
            assert left == [], disk
            assert str(tmp_path) in str(failure.value), disk
        for one in left:  # of a process that died
            os.utime(one, (time.time() - 2 * 86_400,) * 2)
        bf.save(path, FRAMES[1])
        assert path.read_bytes() == new
        assert list(tmp_path.iterdir()) == [path], disk


def test_a_temporary_file_of_a_save_under_way_stays(tmp_path):
    fresh = tmp_path / ".buildframe-0123456789abcdef.tmp"
    fresh.write_bytes(b"")
    bf.save(tmp_path / "builds.csv", FRAMES[0])
    assert fresh.exists()
