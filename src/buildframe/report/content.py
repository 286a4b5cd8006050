"""Define the content of a report, before it is formatted as a page, a summary or a chat message."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import pandas as pd

from buildframe.formatting import format_name
from buildframe.report.measurements import Measurements
from buildframe.report.periods import Period
from buildframe.report.reported_changes import all_reported

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
    text : str
        Sentence of plain text that describes the change.
    bad : bool
        Whether the change is a deterioration.
    since : Timestamp, optional
        Day of a change point. None for a difference between the period and the one before.
    headline : str, default ""
        Headline of the question if this is its first finding. By default the question has its own.
    """

    question: Literal["speed", "reliability", "waiting"]
    subject: str
    text: str
    bad: bool
    since: pd.Timestamp | None = None
    headline: str = ""


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
    return pd.DataFrame(columns=["id", "slug", "default_branch"], dtype="str")


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
    def comparisons(self) -> dict[str, pd.DataFrame]:
        """Tables of comparisons with the reported changes, by name."""
        return all_reported(self.measurements.tables(), self.period)

    @property
    def name(self) -> str:
        """Organization, and the pipeline if the report covers only one."""
        return format_name(self.organization) + (
            "" if self.pipeline is None else f", pipeline {format_name(self.pipeline)}"
        )

    @property
    def compares(self) -> bool:
        """Whether the data covers the whole period before."""
        return self.since <= self.period.before.start

    @property
    def history_days(self) -> int:
        """Number of days that are searched for change points and flips."""
        return (self.period.end.tz_convert("UTC") - max(self.since, self.period.history.start).tz_convert("UTC")).days

    @property
    def complete(self) -> bool:
        """Whether the data contains all builds and jobs of the service."""
        return not self.why
