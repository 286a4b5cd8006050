"""All that a report tells, before it becomes a page, a summary or tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from buildframe.report.facts import Facts
from buildframe.report.periods import Period


@dataclass(frozen=True)
class Finding:
    """One piece of news, in a sentence of plain text: which question it answers, about what, and whether it is bad."""

    question: Literal["speed", "reliability", "waiting"]
    subject: str
    text: str
    bad: bool


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

    `notes` are sentences on what is not told, though data is complete. `builds` and `jobs` are the rows of the period's
    history that were measured.
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
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all was measured that the service has."""
        return not self.why
