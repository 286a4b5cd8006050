"""Compute the ledgers of a day and of the days before it, from builds and jobs."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

import pandas as pd

from buildframe.errors import BadInput
from buildframe.formatting import format_name
from buildframe.metrics.columns import timestamps
from buildframe.metrics.durations import BLOCKED
from buildframe.metrics.input_frames import (
    Frame,
    collect_columns,
    column_names,
    read_matching,
)
from buildframe.metrics.pipeline_jobs import pipeline_keys, with_steps
from buildframe.metrics.time_buckets import start_days
from buildframe.metrics.time_ledger import (
    NEEDS_OF_BUILDS,
    NEEDS_OF_JOBS,
    WANTS_OF_JOBS,
    time_ledger,
)
from buildframe.terminal import show

DAYS_BEFORE = 28
"""Days that a day is compared with."""

_CALL = 'metrics.explain(builds, jobs, day="2026-10-29")'


class DayLedgers(NamedTuple):
    """Ledgers of the days before, and of the day; and how many builds of them had not ended."""

    before: pd.DataFrame
    after: pd.DataFrame
    n_open_before: int
    n_open_after: int


def read_day_ledgers(
    builds: Frame,
    jobs: Frame,
    day: str | dt.date,
    pipeline: str | None,
    tz: str,
) -> DayLedgers:
    """Return the ledgers of the builds that were created on a day, and in the 28 days before it.

    Other builds are left out, so that the result does not depend on how long the history is.
    """
    _check_are_builds_and_jobs(builds, jobs)
    date = _parse_day(day)
    first_date = date - dt.timedelta(days=DAYS_BEFORE)
    next_date = date + dt.timedelta(days=1)
    start, start_of_day, end = start_days([first_date, date, next_date], tz)
    keys = pipeline_keys(builds, jobs)
    chosen = collect_columns(builds, [*keys, *NEEDS_OF_BUILDS], [*BLOCKED, "pipeline_id"])
    if pipeline is not None:
        chosen = _select_pipeline(chosen, pipeline)
    created = timestamps(chosen, "created_at")
    chosen = chosen[(created >= start) & (created < end)]
    ids = chosen["id"].dropna().tolist()
    needs_of_jobs = [*keys, *NEEDS_OF_JOBS]
    jobs = read_matching(with_steps(jobs), "build_id", ids, needs_of_jobs, WANTS_OF_JOBS)
    ledger = time_ledger(chosen, jobs)
    is_of_day = ledger["build_created_at"] >= start_of_day
    opened = pd.to_datetime(ledger.attrs["open"]["build_created_at"], utc=True, format="ISO8601")
    n_open_after = int((opened >= start_of_day).sum())
    ledgers = DayLedgers(
        before=ledger[~is_of_day],
        after=ledger[is_of_day],
        n_open_before=len(opened) - n_open_after,
        n_open_after=n_open_after,
    )
    _check_have_builds(ledgers, date, pipeline)
    return ledgers


def _parse_day(day: Any) -> dt.date:
    if isinstance(day, dt.datetime):
        day = day.date()
    if isinstance(day, dt.date):
        return day
    try:
        return dt.date.fromisoformat(day)
    except (TypeError, ValueError):
        raise BadInput(
            f"day={show(day)} is not a day. Use an ISO date such as '2026-10-29'.",
        ) from None


def _check_are_builds_and_jobs(builds: Frame, jobs: Frame) -> None:
    """Raise BadInput for ledgers, and for frames in the other order."""
    for frame in (builds, jobs):
        if {"kind", "duration_s"} <= {*column_names(frame)}:
            raise BadInput(
                "day= explains builds and jobs, and this frame is a ledger: it has the columns "
                f"'kind' and 'duration_s'. Use {_CALL}, or pass two ledgers without day=."
            )
    if "build_id" in column_names(builds) or "build_id" not in column_names(jobs):
        raise BadInput(
            f"day= needs builds first, then jobs, which have the column 'build_id'. Use {_CALL}.",
        )


def _select_pipeline(builds: pd.DataFrame, pipeline: str) -> pd.DataFrame:
    is_chosen = builds["pipeline"].eq(pipeline)
    if "pipeline_id" in builds:
        is_chosen |= builds["pipeline_id"].eq(pipeline)
    chosen = builds[is_chosen.to_numpy(bool, na_value=False)]
    if chosen.empty and len(builds):
        known = ", ".join(map(repr, sorted(builds["pipeline"].dropna().unique())[:20]))
        raise BadInput(f"pipeline={show(pipeline)} has no build. Use one of {known}.")
    return chosen


def _check_have_builds(ledgers: DayLedgers, day: dt.date, pipeline: str | None) -> None:
    of_pipeline = "" if pipeline is None else f" of {format_name(pipeline)}"
    periods = {
        f"on day={day}": ledgers.after,
        f"in the {DAYS_BEFORE} days before day={day}": ledgers.before,
    }
    for when, ledger in periods.items():
        if ledger.empty:
            advice = "Choose a day with builds on and before it."
            raise BadInput(f"No build{of_pipeline} that was created {when} has ended. {advice}")
