"""Explain the mean wall time of the builds of one day in a store. Does not know command-line arguments or pages."""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import dataclass
from typing import Any

import pandas as pd

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.formatting import (
    format_change,
    format_count,
    format_date,
    format_name,
    format_whole_seconds,
    label_steps,
)
from buildframe.guards.arguments import checked_location
from buildframe.metrics.compared_builds import NAMELESS
from buildframe.metrics.day_ledgers import DAYS_BEFORE
from buildframe.metrics.queues import with_queue_names
from buildframe.report.explanations import (
    MIN_CHANGE_S,
    add_up,
    describe_causes,
    describe_mean,
    describe_open,
)
from buildframe.report.periods import Period
from buildframe.report.store_reader import open_snapshot, read_rows


@dataclass(frozen=True)
class ExplainedDay:
    """Hold the explanation of a day: the rows of `metrics.explain`, and the numbers of builds that it compares.

    `n_open` and `n_open_before` count the builds that run or are blocked, so that the explanation lacks their time.
    """

    day: Period
    before: Period
    pipeline: str | None
    rows: pd.DataFrame
    n_builds: int
    n_before: int
    n_open: int
    n_open_before: int

    @property
    def is_notable(self) -> bool:
        """Whether any row is notable."""
        return bool(self.rows["notable"].any())

    @property
    def _walls(self) -> tuple[float, float]:
        """Mean wall times before and on the day."""
        return self.rows.attrs["before_s"], self.rows.attrs["after_s"]

    def to_text(self) -> str:
        """Return the change with its causes, the means, and a table whose changes add up."""
        shown = add_up(self.rows, self._walls)
        before, after = map(format_whole_seconds, shown[["before_s", "after_s"]].iloc[-1])
        subject = "All pipelines" if self.pipeline is None else format_name(self.pipeline)
        what = f"{subject} on {format_date(self.day.start)} ({self.day.tz}): {describe_mean(shown)} on average"
        what += describe_open(self.n_open, " of the day")
        means = (
            f"Mean wall time: {after} of {format_count(self.n_builds, 'build')}; before, {before} of "
            f"{format_count(self.n_before, 'build')} from {format_date(self.before.start)} on"
            f"{describe_open(self.n_open_before)}."
        )
        scope = [] if self.pipeline else ["Per build of all pipelines:", ""]
        return "\n".join([f"{what}: {describe_causes(shown)}.", means, "", *scope, *_format_table(shown)])

    def to_json(self) -> str:
        """Return the explanation as JSON: times in seconds, unknown values null."""
        rows = self.rows.astype(object).where(self.rows.notna(), None).to_dict("records")
        before, after = self._walls
        sides = {
            side: {"from": span.start.isoformat(), "to": span.end.isoformat(), "builds": n, "not_ended": n_open,
                   "mean_s": mean}
            for side, span, n, n_open, mean in (
                ("before", self.before, self.n_before, self.n_open_before, before),
                ("after", self.day, self.n_builds, self.n_open, after),
            )
        }  # fmt: skip
        content = {"day": str(self.day.start.date()), "tz": self.day.tz, "pipeline": self.pipeline, **sides}
        return json.dumps(
            content | {"change_s": after - before, "notable": self.is_notable, "rows": rows}, allow_nan=False
        )


@checked_location
def explain_day(
    store: str | os.PathLike[str],
    day: dt.date,
    tz: str = "UTC",
    *,
    organization: str | None = None,
    pipeline: str | None = None,
) -> ExplainedDay:
    """
    Compare the builds created on a day with those of the 28 days before, as far as the store has them.

    Parameters
    ----------
    store : str or path-like
        Path or URL of the store.
    day : date
        Day in the time zone `tz`.
    tz : str, default "UTC"
        Time zone of the days.
    organization : str, optional
        Slug of the organization. By default the only one in the store.
    pipeline : str, optional
        Slug or id of the pipeline to explain. By default all, with the changes of their shares among all builds.

    Returns
    -------
    ExplainedDay
        Explanation of waits by queue, and of all other segments by step. Changes below a second are not notable.

    Raises
    ------
    BadInput
        If there is no such store, organization or pipeline, the store does not have the whole day, or no build of the
        day or of the days before has ended.
    """
    snapshot, name, coverage = open_snapshot(store, organization, pipeline)
    if coverage is None:
        raise BadInput(f"No sync of the store has been complete so far. Run: buildframe sync {os.fspath(store)}")
    first, last = (pd.Timestamp(moment).tz_convert(tz) for moment in coverage)
    if not first.date() <= day <= last.date() or (own := _whole_day(day, tz)).start < first or own.end > last:
        raise BadInput(
            f"day={day} is not covered: the store has all builds from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} "
            f"({tz}). Choose a whole day in this range, or sync the store."
        )
    usual = Period.last(own.start, DAYS_BEFORE, tz)
    usual = Period(max(usual.start, first), usual.end)
    builds, jobs = read_rows(snapshot, name, pipeline, usual.start, own.end)
    labeled = jobs.assign(step=label_steps(metrics.step(jobs), jobs["pipeline"]))
    rows = metrics.explain(builds, with_queue_names(labeled), day=day, pipeline=pipeline, tz=tz)
    rows["notable"] &= rows["change_s"].abs() >= MIN_CHANGE_S  # as in a report
    return ExplainedDay(
        own,
        usual,
        pipeline,
        rows,
        n_builds=rows.attrs["n_after"],
        n_before=rows.attrs["n_before"],
        n_open=rows.attrs["n_open_after"],
        n_open_before=rows.attrs["n_open_before"],
    )


def _whole_day(day: dt.date, tz: str) -> Period:
    next_noon = pd.Timestamp(day) + pd.Timedelta(36, "h")  # a time that every time zone has once
    return Period.last(next_noon.tz_localize(tz), 1, tz)


def _format_table(shown: pd.DataFrame) -> list[str]:
    """Return aligned lines; those of notable rows begin with an asterisk."""
    heads = ("", "change", "interval", "before", "after", "kind", "pipeline", "step or queue")
    cells = [heads, *map(_format_row, shown.to_dict("records"))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def _format_row(row: dict[Any, Any]) -> tuple[str, ...]:
    is_sum, is_mix = row["kind"] in ("other", "total"), row.get("effect") == "mix"
    # Means of shares of builds, and sums that contain them, are not times of builds.
    has_no_means = is_mix or (row["kind"] == "other" and "effect" in row)
    interval = "" if pd.isna(row["low_s"]) else f"{format_change(row['low_s'])} to {format_change(row['high_s'])}"
    return (
        "*" if row["notable"] else "",
        format_change(row["change_s"]),
        "" if is_sum else interval or "unknown",
        *("" if has_no_means else format_whole_seconds(row[side]) for side in ("before_s", "after_s")),
        "share of builds" if is_mix else str(row["kind"]).replace("_", " "),
        "" if is_sum else format_name(row["pipeline"]),
        "" if is_sum or is_mix or row["kind"] in NAMELESS else format_name(row["name"]),
    )
