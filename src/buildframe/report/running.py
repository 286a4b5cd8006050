"""A report from beginning to end: sync, measure, write; and what is said of it, by log lines and exit status."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from buildframe.errors import BuildframeError, DeadlineExceeded
from buildframe.report import chat, page, reading
from buildframe.report.content import Report
from buildframe.report.folder import PAGE, Reports
from buildframe.report.logs import Form, say, to_stderr
from buildframe.report.thresholds import Thresholds
from buildframe.store import save

if TYPE_CHECKING:
    from buildframe.store.syncing import Synced

GOOD, FAILED, INCOMPLETE, OVER, LATE, INTERRUPTED = 0, 1, 3, 4, 124, 130


@dataclass(frozen=True)
class Asked:
    """What a report is to be of, and where it goes.

    `store` and `folder` are where the store is and where reports go. The period is the last `days` days in the zone
    `tz`. None as `organization`: the only one that the store has; as `pipeline`: all. With `alert`, one of
    `thresholds` that is exceeded shows in the exit status.
    """

    store: str
    folder: Path
    days: int = 7
    tz: str = "UTC"
    organization: str | None = None
    pipeline: str | None = None
    thresholds: Thresholds | None = None
    alert: bool = False


def run(asked: Asked, sync: Callable[[], Synced] | None, tell: Callable[[str], None], form: Form = "plain") -> int:
    """Make a report, after a sync where one is given, and `tell` where its page is; the exit status.

    0: good; 1: failed; 3: written, but incomplete; 4: written, but a limit is exceeded, with `alert`; 124: not written,
    as the deadline passed (see `pace.until`); 130: interrupted.
    The reason is the last line on stderr. Whatever happens, the report before stays as it was until a new one is whole.
    From then on SIGTERM is ignored: nothing is left that it could end.
    """
    reports = Reports(asked.folder)
    with to_stderr(form):
        try:
            report, folder = _made(asked, reports, sync)
        except KeyboardInterrupt as stop:
            return _ended(INTERRUPTED, "interrupted", stop, reports)
        except DeadlineExceeded as late:
            return _ended(LATE, f"the deadline passed: {late}", late, reports)
        except (BuildframeError, OSError) as why:
            return _ended(FAILED, f"failed: {why}", why, reports)
        except Exception as bug:
            said = f"failed by an error of buildframe itself: {type(bug).__name__}: {bug}"
            return _ended(FAILED, said, bug, reports, trace=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tell(str(folder / PAGE))
        return _status(asked, report)


def _ended(status: int, event: str, why: BaseException, reports: Reports, *, trace: bool = False) -> int:
    parts = [event, *getattr(why, "__notes__", ()), reports.left]
    said = "; ".join(" ".join(part.splitlines()).rstrip(".") for part in parts)
    left = str(reports.latest) if reports.latest else None
    say(said, logging.ERROR, trace=trace, error=type(why).__name__, status=status, left=left)
    return status


def _status(asked: Asked, report: Report) -> int:
    if not report.complete:
        return INCOMPLETE
    return OVER if asked.alert and _exceeded(report) else GOOD


def _exceeded(report: Report) -> list[str]:
    return [verdict.text for verdict in report.verdicts if verdict.status == "over"]


def _made(asked: Asked, reports: Reports, sync: Callable[[], Synced] | None) -> tuple[Report, Path]:
    with reports.locked():
        why = [] if sync is None else list(_synced(sync))
        report = _measured(asked, why)
        with reports.new(report.as_of) as folder:
            _write(folder, report, asked.thresholds is not None)
    latest, over = reports.latest, _exceeded(report)
    assert latest is not None
    incomplete = "" if report.complete else f", INCOMPLETE: {' '.join(report.why)}"
    told = f"written: {latest}{incomplete}{''.join(f'; over a limit: {text}' for text in over)}"
    say(told, folder=str(latest), as_of=report.as_of.isoformat(), complete=report.complete, why=report.why, over=over)
    return report, latest


def _synced(sync: Callable[[], Synced]) -> Iterator[str]:
    """Bring the store up to date; why not completely."""
    say("syncing")
    done = sync()
    say(f"synced: {done}", builds=done.builds, jobs=done.jobs, gone=done.gone, requests=done.requests, why=done.why)
    if done.why is not None:
        yield f"The service could not be read completely: {done.why}."


def _measured(asked: Asked, why: Sequence[str]) -> Report:
    report = reading.read(
        asked.store,
        asked.days,
        asked.tz,
        organization=asked.organization,
        pipeline=asked.pipeline,
        thresholds=asked.thresholds,
        why=why,
    )
    builds, jobs, period = len(report.builds), len(report.jobs), report.period
    told = f"measured: {builds:,} builds and {jobs:,} jobs, for {asked.days} days up to {period.end.isoformat()}"
    say(told, builds=builds, jobs=jobs, start=period.start.isoformat(), end=period.end.isoformat())
    for note in report.notes:
        say(note, logging.WARNING)
    return report


# --- writing


def _write(folder: Path, report: Report, with_thresholds: bool) -> None:
    (folder / PAGE).write_text(page.render(report), encoding="utf-8")
    (folder / "report.md").write_text(page.summary(report), encoding="utf-8")
    if with_thresholds:
        (folder / "chat.json").write_text(json.dumps(chat.body(report)), encoding="utf-8")
    (folder / "numbers").mkdir()
    for name, table in report.facts.tables().items():
        if len(table.columns):  # a file cannot be without
            save(folder / "numbers" / f"{name}.parquet", table)
