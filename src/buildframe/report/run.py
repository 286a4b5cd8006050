"""Run a report: sync, measure, write, log, and return an exit status. Does not know command-line arguments."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from buildframe.errors import BuildframeError, DeadlineExceeded
from buildframe.report import chat, page
from buildframe.report.content import Report
from buildframe.report.folder import PAGE, ReportFolder
from buildframe.report.logs import LogFormat, log_event, log_to_stderr
from buildframe.store.files import save

if TYPE_CHECKING:
    from buildframe.store.sync import SyncResult

OK, FAILED, INCOMPLETE, LIMIT_EXCEEDED, DEADLINE_PASSED, INTERRUPTED = 0, 1, 3, 4, 124, 130


def run(
    folder: Path,
    read: Callable[[Sequence[str]], Report],
    sync: Callable[[], SyncResult] | None,
    print_path: Callable[[str], object],
    say: Callable[[str], str] = str,
    *,
    log_format: LogFormat = "plain",
    alert: bool = False,
    with_message: bool = False,
) -> int:
    """
    Write a report and return its exit status.

    Until the new report is complete, the last one stays unchanged. Afterwards SIGTERM is ignored.

    Parameters
    ----------
    folder : Path
        Folder in which reports are written.
    read : callable
        Function that returns the report, given the reasons why the store is incomplete.
    sync : callable, optional
        Function that syncs the store before it is measured. None: no sync.
    print_path : callable
        Function that receives the path of the page.
    say : callable, default str
        Function that returns a message about a failure in the words of the caller's interface.
    log_format : {"plain", "json"}, default "plain"
        Format of the log lines on stderr. The last line contains the reason of a failure.
    alert : bool, default False
        Whether an exceeded limit changes the exit status.
    with_message : bool, default False
        Whether to write a message for chat tools.

    Returns
    -------
    int
        0: written. 1: failed. 3: written, but incomplete. 4: written, and a limit is exceeded (with `alert`).
        124: not written because the deadline passed. 130: interrupted.
    """
    reports = ReportFolder(folder)
    with log_to_stderr(log_format):
        try:
            report, path = _create(reports, read, sync, with_message)
        except KeyboardInterrupt as stop:
            return _log_failure(INTERRUPTED, "interrupted", stop, reports)
        except DeadlineExceeded as late:
            return _log_failure(DEADLINE_PASSED, f"the deadline passed: {say(str(late))}", late, reports)
        except (BuildframeError, OSError) as why:
            return _log_failure(FAILED, f"failed: {say(str(why))}", why, reports)
        except Exception as bug:
            event = f"failed by an internal error of buildframe: {type(bug).__name__}: {bug}"
            return _log_failure(FAILED, event, bug, reports, trace=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print_path(str(path / PAGE))
        if not report.complete:
            return INCOMPLETE
        return LIMIT_EXCEEDED if alert and _exceeded_limits(report) else OK


def _log_failure(status: int, event: str, why: BaseException, reports: ReportFolder, *, trace: bool = False) -> int:
    parts = [event, *getattr(why, "__notes__", ()), reports.state]
    text = "; ".join(" ".join(part.splitlines()).rstrip(".") for part in parts)
    latest = str(reports.latest) if reports.latest else None
    log_event(text, logging.ERROR, trace=trace, error=type(why).__name__, status=status, latest=latest)
    return status


def _exceeded_limits(report: Report) -> list[str]:
    return [verdict.text for verdict in report.verdicts if verdict.status == "over"]


def _create(
    reports: ReportFolder,
    read: Callable[[Sequence[str]], Report],
    sync: Callable[[], SyncResult] | None,
    with_message: bool,
) -> tuple[Report, Path]:
    with reports.lock():
        report = read([] if sync is None else _sync(sync))
        _log_measured(report)
        with reports.create(report.as_of) as folder:
            _write(folder, report, with_message)
    latest, over = reports.latest, _exceeded_limits(report)
    assert latest is not None
    incomplete = "" if report.complete else f", INCOMPLETE: {' '.join(report.why)}"
    event = f"written: {latest}{incomplete}{''.join(f'; limit exceeded: {text}' for text in over)}"
    log_event(
        event, folder=str(latest), as_of=report.as_of.isoformat(), complete=report.complete, why=report.why, over=over
    )
    return report, latest


def _sync(sync: Callable[[], SyncResult]) -> list[str]:
    """Sync the store and return the reason why the sync is incomplete, if any."""
    log_event("syncing")
    result = sync()
    counts = {name: getattr(result, name) for name in ("builds", "jobs", "gone", "requests", "why")}
    log_event(f"synced: {result}", **counts)
    return [] if result.why is None else [f"The service could not be read completely: {result.why}."]


def _log_measured(report: Report) -> None:
    builds, jobs, period = len(report.builds), len(report.jobs), report.period
    event = f"measured: {builds:,} builds and {jobs:,} jobs of {period.days} days before {period.end.isoformat()}"
    log_event(event, builds=builds, jobs=jobs, start=period.start.isoformat(), end=period.end.isoformat())
    for note in report.notes:
        log_event(note, logging.WARNING)


def _write(folder: Path, report: Report, with_message: bool) -> None:
    (folder / PAGE).write_text(page.render(report), encoding="utf-8")
    (folder / "report.md").write_text(page.summary(report), encoding="utf-8")
    if with_message:
        (folder / "chat.json").write_text(json.dumps(chat.body(report)), encoding="utf-8")
    (folder / "numbers").mkdir()
    for name, table in report.tables().items():
        if len(table.columns):  # Parquet files need a column
            save(folder / "numbers" / f"{name}.parquet", table)
