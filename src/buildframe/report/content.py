"""Define the content of a report, before it is formatted as a page, a summary or a chat message."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args
from urllib.parse import urlsplit

import pandas as pd

from buildframe.formatting import format_name
from buildframe.http.protocol import is_loopback
from buildframe.report.level_changes import LevelChange, tabulate
from buildframe.report.measurements import Measurements
from buildframe.report.periods import Period
from buildframe.templates import web_link

Status = Literal["over", "perhaps", "unknown", "within"]
STATUSES = get_args(Status)
"""Results of checking a limit, worst first."""


@dataclass(frozen=True)
class Finding:
    """
    Describe one significant change.

    Parameters
    ----------
    question : {"speed", "reliability", "waiting"}
        Question of the report that the change belongs to.
    subject : str
        Name of the pipeline or queue, or `pipeline: step`.
    headline : str
        What changed, in a clause of plain text.
    bad : bool
        Whether the change is a deterioration.
    since : Timestamp, optional
        Day of a change point. None for a difference between the period and the one before.
    why : str, default ""
        Significant causes, and the sum of all others. Empty if none are known.
    cost : str, default ""
        What the change costs or saves, in a sentence.
    detail : str, default ""
        Levels before and after, in a sentence.
    change : LevelChange, optional
        Numbers of the change.
    """

    question: Literal["speed", "reliability", "waiting"]
    subject: str
    headline: str
    bad: bool
    since: pd.Timestamp | None = None
    why: str = ""
    cost: str = ""
    detail: str = ""
    change: LevelChange | None = None

    @property
    def text(self) -> str:
        """Plain text that describes the change: its causes if these are known, and its levels."""
        lead = f"{self.headline}: {self.why}." if self.why else ""
        return " ".join(filter(None, (lead, self.detail))) or self.headline


@dataclass(frozen=True)
class Verdict:
    """
    Describe the result of checking one limit.

    Parameters
    ----------
    subject : str
        Name of the pipeline or queue.
    status : {"over", "perhaps", "within", "unknown"}
        `over`: the interval lies beyond the limit. `perhaps`: the value lies beyond the limit, part of the interval
        does not. `within`: the value does not exceed the limit. `unknown`: too little data.
    text : str
        Sentence of plain text with the value, its interval, the number of rows and the limit.
    """

    subject: str
    status: Status
    text: str


def _no_pipelines() -> pd.DataFrame:
    return pd.DataFrame(columns=["id", "slug", "default_branch", "repository", "web_url"], dtype="str")


def _with_stamps(table: pd.DataFrame, stamps: dict[str, pd.Timestamp]) -> pd.DataFrame:
    """Return the table with the same time in all rows of each new column, which come first."""
    columns = {name: pd.Series(time, table.index, "datetime64[us, UTC]") for name, time in stamps.items()}
    return table.assign(**columns)[[*columns, *table.columns]]


@dataclass(frozen=True)
class Report:
    """
    Hold the content of a report.

    Parameters
    ----------
    organization : str
        Slug of the organization.
    source : str
        Path or URL of the store.
    as_of : Timestamp
        Time of the last sync of the store.
    period : Period
        Days that the report covers.
    why : tuple of str
        Reasons why the data is incomplete, one sentence each. Empty if it is complete.
    measurements : Measurements
        Tables of numbers.
    findings : tuple of Finding
        Significant changes, deteriorations first.
    verdicts : tuple of Verdict
        Result of each limit. Empty without limits.
    builds, jobs : DataFrame
        Rows that were measured.
    since : Timestamp
        Creation time of the first build that can be measured.
    pipeline : str, optional
        Slug or id of the only pipeline in the report. None: all pipelines.
    broken : tuple of str
        Default branches that are broken now, one sentence each.
    notes : tuple of str
        Parts that the report lacks although its data is complete, one sentence each.
    pipelines : DataFrame
        Pipelines with their default branches. Empty if the store has no list of them.
    """

    organization: str
    source: str
    as_of: pd.Timestamp
    period: Period
    why: tuple[str, ...]
    measurements: Measurements
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    builds: pd.DataFrame
    jobs: pd.DataFrame
    since: pd.Timestamp
    pipeline: str | None = None
    broken: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    pipelines: pd.DataFrame = field(default_factory=_no_pipelines)

    @cached_property
    def level_changes(self) -> pd.DataFrame:
        """Numbers of the changes that the findings describe, in the same order."""
        return tabulate(one.change for one in self.findings if one.change is not None)

    def tables(self) -> dict[str, pd.DataFrame]:
        """
        Return all tables by name: the level changes, and those of the measurements.

        Returns
        -------
        dict of str to DataFrame
            Each with the columns `period_start`, `period_end` and `as_of` first, so that tables of several reports can
            be appended. A table that was not measured has no columns.
        """
        times = {"period_start": self.period.start, "period_end": self.period.end, "as_of": self.as_of}
        stamps = {name: time.tz_convert("UTC").as_unit("us") for name, time in times.items()}
        tables = {"level_changes": self.level_changes} | self.measurements.tables()
        return {name: _with_stamps(table, stamps) if len(table.columns) else table for name, table in tables.items()}

    @property
    def name(self) -> str:
        """Organization, and the pipeline if the report covers only one."""
        pipeline = "" if self.pipeline is None else f", pipeline {format_name(self.pipeline)}"
        return f"{format_name(self.organization)}{pipeline}"

    @property
    def compares(self) -> bool:
        """Whether the data covers the whole period before."""
        return self.since <= self.period.before.start

    @property
    def history_days(self) -> int:
        """Number of days that are searched for change points and flips."""
        return (self.period.end.tz_convert("UTC") - max(self.since, self.period.history.start).tz_convert("UTC")).days

    @property
    def is_sandbox(self) -> bool:
        """Whether the builds are those of a sandbox: their pages are on the machine that fetched them."""
        first = next(iter(self.builds["web_url"].dropna()), "") if "web_url" in self.builds else ""
        return web_link(first) is not None and is_loopback(urlsplit(first).hostname or "")

    @property
    def complete(self) -> bool:
        """Whether the data contains all builds and jobs of the service."""
        return not self.why
