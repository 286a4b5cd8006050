"""Stores in folders that others can write to: paths and links that lead outside, metadata of another shape."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import deltalake
import pytest

from buildframe.errors import BadInput, StoreFailed
from buildframe.store.location import Location
from buildframe.store.store import Store
from buildframe.store.sync_state import _checksum
from tests.programs import require_program
from tests.store.batches import Build, expected, stored_content
from tests.store.test_damage import _log, make_older, sync


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, and with another one that a reader may not see."""
    top = tmp_path_factory.mktemp("made")
    sync(top / "ours", Build(1, 1))
    sync(top / "ours", Build(1, 2), at=2)
    sync(top / "theirs", Build(9, 1))
    make_older(top)
    return top


@pytest.fixture
def top(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "top")


def data_file(store: Path, table: str = "builds") -> Path:
    return next((store / table).glob("day=*/*.parquet"))


def edit_log(store: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the entries of the newest commit of the builds."""
    entries = [json.loads(line) for line in _log(store).read_text().splitlines()]
    for entry in entries:
        change(entry)
    _log(store).write_text("\n".join(map(json.dumps, entries)) + "\n")


def change_metadata(store: Path, change: Callable[[dict[str, Any]], object]) -> None:
    def change_entry(entry: dict[str, Any]) -> None:
        if "commitInfo" in entry:
            metadata = json.loads(entry["commitInfo"]["buildframe"])
            change(metadata)
            metadata["checksum"] = _checksum(metadata)  # as a writer of another shape computes it
            entry["commitInfo"]["buildframe"] = json.dumps(metadata)

    edit_log(store, change_entry)


def refused_everywhere(folder: Path | str, reason: str) -> None:
    """Reading, writing and cleaning a store raise StoreFailed."""
    store = Store(folder)
    for use in (
        store.builds,
        lambda: store.sql("SELECT id FROM builds"),
        lambda: store.files("builds"),
        store.compact,
        lambda: store.clean("0d"),
        lambda: sync(folder, Build(1, 3), at=3),
    ):
        with pytest.raises(StoreFailed, match=reason):
            use()


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# --- paths in a log


OUTSIDE: dict[str, Callable[[Path], str]] = {
    "upwards": lambda file: f"../../theirs/builds/{file.parent.name}/{file.name}",
    "encoded": lambda file: f"%2e%2e/%2E%2e/theirs/builds/{file.parent.name}/{file.name}",
    "encoded slash": lambda file: f"day=2026-10-01/..%2F..%2F..%2Ftheirs%2Fbuilds%2F{file.parent.name}%2F{file.name}",
    "encoded twice": lambda file: f"%252e%252e/%252e%252e/theirs/builds/{file.parent.name}/{file.name}",
    "backslashes": lambda file: f"..\\..\\theirs\\builds\\{file.parent.name}\\{file.name}",
    "absolute": str,
    "URI": lambda file: file.as_uri(),
    "drive": lambda file: f"C:{file.name}",
}


def test_a_path_in_the_log_lies_inside_its_table(top: Path) -> None:
    foreign, theirs, log = data_file(top / "theirs"), content_of(top / "theirs"), _log(top / "ours")
    entries = log.read_text()
    for name, path_of in OUTSIDE.items():

        def point_outside(entry: dict[str, Any], path_of: Callable[[Path], str] = path_of) -> None:
            if "add" in entry:
                entry["add"].update(path=path_of(foreign), size=foreign.stat().st_size)

        log.write_text(entries)
        edit_log(top / "ours", point_outside)
        refused_everywhere(top / "ours", "no path inside")
        assert content_of(top / "theirs") == theirs, name


def test_a_path_in_a_checkpoint_lies_inside_its_table(top: Path) -> None:
    foreign = data_file(top / "theirs")

    def point_outside(entry: dict[str, Any]) -> None:
        if "add" in entry:
            entry["add"]["path"] = f"../../theirs/builds/{foreign.parent.name}/{foreign.name}"

    edit_log(top / "ours", point_outside)
    deltalake.DeltaTable(top / "ours" / "builds").create_checkpoint()
    edit_log(top / "ours", lambda entry: entry.pop("add", None))
    refused_everywhere(top / "ours", "no path inside")


def test_deletion_vectors_are_refused(top: Path) -> None:
    """They name a file of their own, which can be anywhere, and hide rows."""
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    vector = {"storageType": "p", "pathOrInlineDv": "file:///etc/passwd", "sizeInBytes": 40, "cardinality": 1}
    edit_log(top / "ours", lambda entry: entry["add"].update(deletionVector=vector) if "add" in entry else None)
    log = _log(top / "ours")
    log.write_text(log.read_text() + json.dumps({"protocol": protocol}) + "\n")
    refused_everywhere(top / "ours", "features of Delta|could not be (read|written|cleaned)")


# --- links


def replace_by_link(path: Path, target: Path) -> None:
    shutil.move(path, target)
    path.symlink_to(target)


def test_links_below_the_store_are_not_followed(top: Path) -> None:
    ours, elsewhere = top / "ours", top / "elsewhere"
    folders = [ours / inner for inner in ("builds", "builds/_delta_log", "builds/day=2026-10-01")]
    for path in (*folders, Path(Store(ours).files("builds")[0]), _log(ours)):
        replace_by_link(path, elsewhere)
        before = content_of(top)
        refused_everywhere(ours, "follows no links")
        assert content_of(top) == before
        path.unlink()
        shutil.move(elsewhere, path)


def test_a_folder_as_a_url_is_protected_as_well(top: Path) -> None:
    folder = top / "our builds"
    (top / "ours").rename(folder)
    for prefix in ("file://", "FILE://localhost"):
        url = prefix + quote(str(folder))
        assert Store(url).url == str(folder)
        assert stored_content(Store(url)) == expected([Build(1, 2)])
    replace_by_link(folder / "builds" / "day=2026-10-01", top / "elsewhere")
    before = content_of(top)
    refused_everywhere(url, "follows no links")
    assert content_of(top) == before


def test_urls_of_no_folder_are_refused() -> None:
    for url in ("file://", "file://elsewhere/ours", "file:///ours%00"):
        with pytest.raises(BadInput, match="of this machine"):
            Store(url)


def test_the_store_itself_may_be_a_link(top: Path) -> None:
    replace_by_link(top / "ours", top / "elsewhere")
    assert stored_content(Store(top / "ours")) == expected([Build(1, 2)])
    sync(top / "ours", Build(1, 3), at=3)
    assert stored_content(Store(top / "elsewhere")) == expected([Build(1, 3)])


def test_a_file_is_not_written_through_a_link(top: Path) -> None:
    """Of a day that has no rows yet, so that no reader meets the link."""
    (top / "elsewhere").mkdir()
    (top / "ours" / "jobs" / "day=2026-10-03").symlink_to(top / "elsewhere")
    with pytest.raises(StoreFailed, match="'jobs/day=2026-10-03' is a link"):
        sync(top / "ours", Build(5, 5, day=2), at=5)
    assert list((top / "elsewhere").iterdir()) == []


def test_a_pipe_in_the_place_of_a_file_is_not_opened(top: Path) -> None:
    file = Path(Store(top / "ours").files("builds")[0])
    file.unlink()
    os.mkfifo(file)
    refused_everywhere(top / "ours", "is not a file")


# --- cleaning


@pytest.mark.parametrize("is_swapped", [False, True], ids=["link", "link after the listing"])
def test_a_cleaning_deletes_nothing_behind_a_link(top: Path, monkeypatch: pytest.MonkeyPatch, is_swapped: bool) -> None:
    from buildframe.store import delta

    shutil.copytree(top / "theirs" / "builds", top / "elsewhere")
    link = top / "ours" / "builds" / "day=2026-09-30"
    if is_swapped:
        shutil.copytree(top / "elsewhere", link)
    else:
        link.symlink_to(top / "elsewhere")
    make_older(top)
    listed = delta.list_files

    def list_and_swap(location: Location, table: str) -> dict[str, Any]:
        paths = listed(location, table)
        if table == "builds" and is_swapped:
            shutil.rmtree(link)
            link.symlink_to(top / "elsewhere")
        return paths

    monkeypatch.setattr(delta, "list_files", list_and_swap)
    before = content_of(top / "elsewhere")
    assert Store(top / "ours").clean("0d") > 0
    assert content_of(top / "elsewhere") == before
    assert stored_content(Store(top / "ours")) == expected([Build(1, 2)])


def test_a_cleaning_takes_names_of_tables_from_our_list(top: Path) -> None:
    change_metadata(top / "ours", lambda metadata: metadata["versions"].update({"../theirs/builds": 1}))
    theirs = content_of(top / "theirs")
    refused_everywhere(top / "ours", "'../theirs/builds' is not a table")
    assert content_of(top / "theirs") == theirs


# --- metadata of another shape

FIELDS = (
    *("as_of", "versions", "coverage", "lists", "first", "has_webhook_updates", "local_time", "confirmed"),
    *("ordered_from", "unique_ids"),
)
ADDED_LATER = {"unique_ids"}


def wrong_metadata() -> Iterator[tuple[str, Any]]:
    """Yield a change of the metadata: each field of a wrong type, out of range, or missing."""
    for field in FIELDS:
        for wrong in ({"x": [1]}, "some text", 1.5, -1, ["x"]):
            yield f"{field} {wrong}", {field: wrong}
        if field not in ADDED_LATER:
            yield f"{field} missing", field
    yield "version of a table", {"versions": {"jobs": 10**30}}
    yield "negative version", {"versions": {"jobs": -1}}
    yield "time without year", {"as_of": "0001-01-01T00:00:00Z"}
    yield "time beyond", {"lists": {"pipelines/acme": "9999-12-31T00:00:00Z"}}
    yield "time of a coverage", {"coverage": {"acme": {"since": 5, "until": 5, "confirmed": 5}}}
    yield "part of a coverage", {"coverage": {"acme": {"since": "2026-10-01T00:00:00Z"}}}
    yield "first beyond", {"first": 10**6}
    for days in ("AAAA", "////fwAAAAA="):  # 3 bytes, and day 2,147,483,647
        yield f"days {days}", {"contents": {"jobs": {"rows": 1, "files": 1, "days": days}}}
    yield "negative rows", {"contents": {"jobs": {"rows": -1, "files": 1, "days": ""}}}


def test_metadata_that_is_no_object_is_store_failed(top: Path) -> None:
    for raw in ("", "{", '"text"', "null", "[]", "[" * 100_000):
        edit_log(top / "ours", lambda entry, raw=raw: entry.get("commitInfo", {}).update(buildframe=raw))
        refused_everywhere(top / "ours", "is not a log entry")


def test_metadata_of_another_shape_is_store_failed(top: Path) -> None:
    log = _log(top / "ours")
    text = log.read_text()
    change_metadata(top / "ours", lambda metadata: metadata.pop("unique_ids"))  # of an earlier version of the package
    assert Store(top / "ours").version >= 0
    reasons = {}
    for name, change in wrong_metadata():
        log.write_text(text)

        def damage(metadata: dict[str, Any], change: Any = change) -> None:
            if isinstance(change, str):
                del metadata[change]
            else:
                metadata.update(copy.deepcopy(change))

        change_metadata(top / "ours", damage)
        reasons[name] = reason_of_failure(top / "ours")
    assert [name for name, reason in reasons.items() if "the metadata of version" not in reason] == []


def reason_of_failure(folder: Path) -> str:
    """Return the message with which reading a store fails; an empty text if it does not fail."""
    try:
        Store(folder).version  # noqa: B018
    except StoreFailed as why:
        return str(why)
    return ""


def test_a_commit_time_of_another_shape_is_store_failed(top: Path) -> None:
    for timestamp in ("noon", None, [1], 1e300, -(10**30)):
        edit_log(top / "ours", lambda entry, at=timestamp: entry.get("commitInfo", {}).update(timestamp=at))
        with pytest.raises(StoreFailed):
            Store(top / "ours").clean("0d")


# --- file systems


WITHOUT_LINKS = """
#include <errno.h>
int link(const char *old, const char *new) { errno = EPERM; return -1; }
int linkat(int a, const char *old, int b, const char *new, int flags) { errno = EPERM; return -1; }
"""

SYNC = """
import sys
from tests.store.test_damage import Build, Path, StoreFailed, sync

try:
    sync(Path(sys.argv[1]), Build(1, 9), at=9)
except StoreFailed as why:
    print(why)
"""


@pytest.mark.long
@pytest.mark.parametrize("is_new", [True, False])
def test_a_file_system_without_hard_links_is_named(top: Path, is_new: bool) -> None:
    """As on FAT: the C library refuses links, which the Delta package makes, too."""
    compiler = require_program("cc", package="gcc")
    source = top / "without_links.c"
    source.write_text(WITHOUT_LINKS)
    library = source.with_suffix(".so")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    folder = top / "new" if is_new else top / "ours"
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    command = [sys.executable, "-c", SYNC, str(folder)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert f"There can be no store at {folder}: its file system has no hard links" in run.stdout
    assert not list(folder.glob(".buildframe*"))
    if not is_new:
        assert stored_content(Store(folder)) == expected([Build(1, 2)])
