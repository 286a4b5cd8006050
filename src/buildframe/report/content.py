"""All that a report tells, before it becomes a page, a summary or tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from buildframe.report.facts import Facts
from buildframe.report.periods import Period
from buildframe.words import named


@dataclass(frozen=True)
class Finding:
    """One piece of news, in a sentence of plain text: which question it answers, about what, and whether it is bad.

    `lasting` news is a day at which something changed for good, whatever the period before was like.
    """

    question: Literal["speed", "reliability", "waiting"]
    subject: str
    text: str
    bad: bool
    lasting: bool = False


@dataclass(frozen=True)
class Verdict:
    """What became of one limit of the thresholds' file.

    `status`: `over` the limit by more than noise; `perhaps`: beyond it, but noise could make that; `within` it; or
    `unknown`: too little data. `text` is a sentence of plain text with the value, its interval, n and the limit.
    """

    subject: str
    status: Literal["over", "perhaps", "within", "unknown"]
    text: str


@dataclass(frozen=True)
class Report:
    """A report: of whom, from where, as of when, whether complete (`why` not, a sentence each), and what it tells.

    `pipeline` is the only one that is told of, None: all. `since` is the time of creation from which on builds are
    measured. `broken` are sentences on default branches that are broken now. `notes` are sentences on what is not told,
    though data is complete. `builds` and `jobs` are the rows that were measured.
    """

    organization: str
    source: str
    as_of: pd.Timestamp
    period: Period
    why: tuple[str, ...]
    facts: Facts
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    builds: pd.DataFrame
    jobs: pd.DataFrame
    since: pd.Timestamp
    pipeline: str | None = None
    broken: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of whom it tells: an organization, or a pipeline of it."""
        return named(self.organization) + ("" if self.pipeline is None else f", pipeline {named(self.pipeline)}")

    @property
    def compares(self) -> bool:
        """Whether the period before is known."""
        return self.since <= self.period.before.start

    @property
    def history_days(self) -> int:
        """How many days were looked at for the moment of a change, and for flips."""
        return (self.period.end.tz_convert("UTC") - max(self.since, self.period.history.start).tz_convert("UTC")).days

    @property
    def complete(self) -> bool:
        """Whether all was measured that the service has."""
        return not self.why
