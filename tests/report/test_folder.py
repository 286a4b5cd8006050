"""A folder of reports: one run at a time writes to it, reports appear as a whole, and other files stay."""

from __future__ import annotations

import datetime as dt
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from buildframe.errors import BadInput, BuildframeError, MissingExtra
from buildframe.report.folder import ReportFolder

AT = dt.datetime(2026, 10, 26, 8, tzinfo=dt.UTC)


def write(folder: Path, text: str, as_of: dt.datetime = AT) -> None:
    reports = ReportFolder(folder)
    with reports.lock(), reports.create(as_of) as part:
        (part / "numbers").mkdir()
        (part / "numbers" / "load.parquet").write_text(text)
        (part / "report.html").write_text(text)


def read(folder: Path) -> str:
    return (folder / "latest" / "report.html").read_text()


def test_each_report_has_a_folder_named_by_its_time_and_latest_links_to_the_newest(tmp_path: Path) -> None:
    folder = tmp_path / "ci" / "reports"
    assert ReportFolder(folder).latest is None
    assert ReportFolder(folder).state == f"there is no report in {folder}"
    write(folder, "first")
    write(folder, "second", AT + dt.timedelta(days=1, seconds=3))
    assert read(folder) == "second"
    assert (folder / "2026-10-26T080000Z" / "report.html").read_text() == "first"
    assert ReportFolder(folder).latest == folder / "2026-10-27T080003Z"
    assert ReportFolder(folder).state == f"the report of 2026-10-27T08:00:03Z in {folder / 'latest'} is unchanged"


def test_a_report_of_the_same_time_replaces_no_other(tmp_path: Path) -> None:
    for text in "abc":
        write(tmp_path, text)
        assert read(tmp_path) == text
    assert [(tmp_path / f"2026-10-26T080000Z{n}" / "report.html").read_text() for n in ("", "-2", "-3")] == list("abc")
    assert "2026-10-26T08:00:00Z in" in ReportFolder(tmp_path).state


def test_latest_still_links_to_the_newest_report_after_a_move(tmp_path: Path) -> None:
    write(tmp_path / "here", "text")
    (tmp_path / "here").rename(tmp_path / "there")
    assert read(tmp_path / "there") == "text"


def test_a_failed_report_leaves_only_the_previous_report(tmp_path: Path) -> None:
    write(tmp_path, "first")
    there = sorted(tmp_path.rglob("*"))

    def fail(why: type[BaseException]) -> None:
        reports = ReportFolder(tmp_path)
        with reports.lock(), reports.create(AT) as part:
            (part / "report.html").write_text("half")
            raise why

    for why in (KeyboardInterrupt, OSError):
        with pytest.raises(why):
            fail(why)
        assert read(tmp_path) == "first"
        assert sorted(tmp_path.rglob("*")) == there
    write(tmp_path, "second")  # the lock was let go


def test_only_files_of_killed_runs_are_deleted(tmp_path: Path) -> None:
    write(tmp_path, "first")
    for part in (".2026-10-25T080000Z.part", ".2026-10-26T080000Z-12.part"):
        (tmp_path / part / "numbers").mkdir(parents=True)
        (tmp_path / part / "numbers" / "half").write_text("")
    (tmp_path / ".latest.part").symlink_to("2026-10-25T080000Z")
    kept = [".mine.part", "2026-10-25T080000Z.part", ".2026.part", "notes.txt", "2026-01-01T000000Z"]
    for name in kept:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("mine")
    write(tmp_path, "second")
    assert {path.name for path in tmp_path.iterdir()} == {
        *kept, "latest", "2026-10-26T080000Z", "2026-10-26T080000Z-2", ".lock", ".lock-holder",
    }  # fmt: skip
    assert all((tmp_path / name / "file").read_text() == "mine" for name in kept)


def _a_folder(path: Path) -> None:
    path.mkdir()
    (path / "report.html").write_text("mine")


OTHERS: dict[str, Callable[[Path], None]] = {
    "folder": _a_folder,
    "file": lambda path: path.write_text("mine") and None,
    "link elsewhere": lambda path: path.symlink_to("/usr"),
    "link of another kind": lambda path: path.symlink_to("release-7"),
}


def test_a_latest_that_does_not_link_to_a_report_is_refused(tmp_path: Path) -> None:
    for name, make in OTHERS.items():
        folder = tmp_path / name
        folder.mkdir()
        make(folder / "latest")
        before = [(path, path.lstat()) for path in folder.rglob("*")]
        with pytest.raises(BadInput, match="not a link"), ReportFolder(folder).lock():
            raise AssertionError(name)
        assert [(path, path.lstat()) for path in folder.rglob("*")] == before


def test_a_latest_whose_report_was_deleted_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("2026-10-25T080000Z")
    assert ReportFolder(tmp_path).latest is None
    write(tmp_path, "text")
    assert read(tmp_path) == "text"


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_place_of_the_lock_is_refused_and_its_target_stays(tmp_path: Path, there: bool) -> None:
    mine = tmp_path / "mine"
    if there:
        mine.write_text("mine")
    for name in (".lock", ".lock-holder"):
        folder = tmp_path / f"of{name}"
        folder.mkdir()
        (folder / name).symlink_to(mine)
        with pytest.raises(BadInput, match=rf"{re.escape(name)}' is a link"), ReportFolder(folder).lock():
            raise AssertionError(name)
    assert [path.read_text() for path in tmp_path.iterdir() if path.is_file()] == ["mine"] * there


def test_a_link_created_meanwhile_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / ".lock-holder").symlink_to(tmp_path / "mine")
    monkeypatch.setattr(ReportFolder, "_refuse_others", lambda _: None)  # it looked before
    with pytest.raises(OSError, match="symbolic links"), ReportFolder(tmp_path / "reports").lock():
        raise AssertionError
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadInput, match="is a file"), ReportFolder(tmp_path / "file").lock():
        raise AssertionError
    assert ReportFolder(tmp_path / "file").latest is None


HOLD = """
import sys, time
from buildframe.report.folder import ReportFolder
with ReportFolder(sys.argv[1]).lock():
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.long
def test_a_second_run_fails_and_names_the_process_that_holds_the_lock(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            (tmp_path / ".2026-10-25T080000Z.part").mkdir()  # the other's
            for _ in range(2):
                with pytest.raises(BuildframeError) as busy, ReportFolder(tmp_path).lock():
                    raise AssertionError
                message = (
                    rf".* is locked by another report: process {other.pid}, since \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ\."
                )
                assert re.fullmatch(message, str(busy.value))
            assert (tmp_path / ".2026-10-25T080000Z.part").exists()
        finally:
            other.send_signal(signal.SIGKILL)
    assert f"process {other.pid}" in (tmp_path / ".lock-holder").read_text()
    write(tmp_path, "text")  # the lock of a process that was killed keeps nobody out
    assert f"process {os.getpid()}" in (tmp_path / ".lock-holder").read_text()


def test_a_missing_extra_is_named_with_its_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "filelock", None)
    with pytest.raises(MissingExtra, match=r'pip install "buildframe\[report\]"'), ReportFolder(tmp_path).lock():
        raise AssertionError
