"""Draw the conclusions of a report, one short text per question. Does not know pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from buildframe.formatting import format_count, format_duration, format_name, format_percent, format_points
from buildframe.report.content import Finding, Report
from buildframe.report.findings import to_rows
from buildframe.report.tables import format_relative

QUESTIONS = {
    "speed": "Are we slower?",
    "reliability": "Are we less reliable?",
    "waiting": "Do we wait for agents?",
}
_ROWS = {"speed": "passed builds", "reliability": "builds that passed or failed", "waiting": "jobs that started"}
_NO_CHANGE = "No significant change"


@dataclass(frozen=True)
class Conclusion:
    """Answer one question: a headline, its mood, the findings, further measurements, and what was compared."""

    question: str
    headline: str
    mood: Literal["bad", "good", "calm", "unknown"]
    findings: Sequence[Finding] = ()
    text: str = ""
    compared: str = ""


def draw_conclusions(report: Report) -> list[Conclusion]:
    """Return a conclusion for each of the four questions, in the order of the page."""
    return [_speed(report), _reliability(report), _waiting(report), _load(report)]


def _speed(report: Report) -> Conclusion:
    table = report.measurements.wall_time
    compared = _with_interval(table, "p50_change_low_s", "p50_change_high_s")
    text = f"the median wall time of {format_count(len(compared), 'pipeline')} ({_sizes(compared, 'passed build')})"
    text += f", and {format_count(len(report.measurements.step_shift), 'step')}"
    headlines = {"bad": "Yes", "good": "No, faster"}
    findings = [one for one in report.findings if one.question == "speed"]
    if findings and all(one.since is not None for one in findings):
        first = min(findings, key=lambda one: not one.bad)
        since = "" if first.since is None else f"since {first.since.day} {first.since:%b}"
        headlines = {
            "bad": f"{first.subject} has been slower {since}",
            "good": f"{first.subject} has been faster {since}",
        }
    return _conclude(report, "speed", headlines, text if len(compared) else "", len(table) - len(compared))


def _reliability(report: Report) -> Conclusion:
    success, steps = report.measurements.success, report.measurements.step_failures
    compared, compared_steps = (_with_interval(table, "low", "high") for table in (success, steps))
    text = f"the success rate of {format_count(len(compared), 'pipeline')} ({_sizes(compared, 'build')})"
    text += f", and the failure rate of {format_count(len(compared_steps), 'step')}"
    headlines = {"bad": "Yes", "good": "No, more reliable"}
    conclusion = _conclude(
        report, "reliability", headlines, text if len(compared) else "", len(success) - len(compared)
    )
    text = " ".join(filter(None, (_broken(report), _flipping(report))))
    return replace(conclusion, text=text, compared=f"{conclusion.compared}{_detectable(compared)}")


def _detectable(compared: pd.DataFrame) -> str:
    """Describe the smallest change that can be detected."""
    if compared.empty:
        return ""
    limit = format_points((compared["high"] - compared["low"]).median() / 2)
    return f" Changes under {limit} points cannot be detected for a typical pipeline."


def _broken(report: Report) -> str:
    """Describe the first default branch that is broken now, and count the others."""
    if not report.broken:
        return ""
    more = len(report.broken) - 1
    return f"Now: {report.broken[0]}" + (f" {more} more {'is' if more == 1 else 'are'} broken." if more else "")


def _flipping(report: Report) -> str:
    """Name the step that flips most."""
    days = report.history_days
    flips = report.measurements.flips
    return "".join(
        f"Most flips: {format_name(row['step'])} of {format_name(row['pipeline'])}, on "
        f"{format_percent(row['flake_rate'])} of {format_count(row['commits_passed'], 'commit')} in {days} days."
        for row in to_rows(flips[flips["flaky"] > 1].head(1))
    )


def _waiting(report: Report) -> Conclusion:
    table = report.measurements.queue_time
    compared = _with_interval(table, "p50_change_low_s", "p50_change_high_s")
    text = f"the queue time of {format_count(len(compared), 'queue')} ({_sizes(compared, 'job')})"
    headlines = {"bad": "Longer than before", "good": "Shorter than before"}
    uncompared = len(table) - len(compared)
    conclusion = _conclude(report, "waiting", headlines, text if len(compared) else "", uncompared, "queue")
    return replace(conclusion, text=_longest_waits(table))


def _longest_waits(table: pd.DataFrame) -> str:
    """Name the queue with the longest waits, if its 95th percentile is known."""
    rows = table.dropna(subset="p95_s")
    if rows.empty:
        return ""
    row = rows.sort_values("p95_s").iloc[-1]
    return (
        f"The longest waits are in the queue {format_name(row['queue'])}: of its "
        f"{format_count(row['n'], 'job')}, half waited {format_duration(row['p50_s'])} or longer, "
        f"one in twenty {format_duration(row['p95_s'])} or longer."
    )


def _load(report: Report) -> Conclusion:
    rows = to_rows(report.measurements.load)
    question = "What else changed?"
    if not any(row["now"] > 0 or row["before"] > 0 for row in rows):
        return Conclusion(question, "Nothing to compare", "unknown", compared="There are no builds in either period.")
    counts = [f"{row['now']:,.0f} {row['what']} ({format_relative(row['now'], row['before'])})" for row in rows]
    return Conclusion(question, "", "calm", text=f"{', '.join(counts)}.", compared="Compared with the period before.")


def _conclude(
    report: Report, kind: str, headlines: dict[str, str], compared: str, uncompared: int, one: str = "pipeline"
) -> Conclusion:
    """Return the conclusion from the findings, or from what was compared if there are none."""
    findings = sorted((one for one in report.findings if one.question == kind), key=lambda one: not one.bad)
    rest = f" {format_count(uncompared, one)} had too little data to compare." if uncompared else ""
    compared_text = f"Compared: {compared}.{rest}"
    if findings:
        mood: Literal["bad", "good"] = "bad" if findings[0].bad else "good"
        return Conclusion(
            QUESTIONS[kind], headlines[mood], mood, findings, compared=compared_text if compared else rest.strip()
        )
    if not compared:
        return Conclusion(QUESTIONS[kind], "Nothing to compare", "unknown", compared=_why_nothing(report, kind))
    return Conclusion(QUESTIONS[kind], _NO_CHANGE, "calm", compared=compared_text)


def _why_nothing(report: Report, kind: str) -> str:
    if report.builds.empty:
        return "There are no builds."
    if not report.compares:
        return "The data does not cover the period before."
    return f"There are too few {_ROWS[kind]} in this period or the one before, or they cover fewer than two days."


def _with_interval(table: pd.DataFrame, low: str, high: str) -> pd.DataFrame:
    """Return the rows whose change has an interval."""
    return table[table[low].notna() & table[high].notna()]


def _sizes(table: pd.DataFrame, one: str) -> str:
    """ "477 builds, before 465"."""
    return f"{format_count(int(table['n'].sum()), one)}, before {int(table['n_before'].sum()):,}"
