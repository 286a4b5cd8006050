"""Draw the conclusions of a report, one short text per question. Does not know pages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from buildframe.formatting import format_count, format_duration, format_name, format_percent, format_points
from buildframe.report.content import Finding, Report
from buildframe.report.findings import to_rows

_QUESTIONS = {"speed": "Are we slower?", "reliability": "Are we less reliable?", "waiting": "Do we wait for agents?"}
_ROWS = {"speed": "passed builds", "reliability": "builds that passed or failed", "waiting": "jobs that started"}


@dataclass(frozen=True)
class Conclusion:
    """Answer one question: a headline, its mood, the findings, further measurements, and what was compared."""

    question: str
    headline: str
    mood: str  # "bad", "good", "calm" or "unknown"
    findings: Sequence[Finding] = ()
    text: str = ""
    compared: str = ""


def draw_conclusions(report: Report) -> list[Conclusion]:
    """Return a conclusion for each of the four questions, in the order of the page."""
    return [_speed(report), _reliability(report), _waiting(report), _load(report)]


def _speed(report: Report) -> Conclusion:
    measured = report.measurements
    compared = f"the median wall time of {{}}, and {format_count(len(measured.step_shift), 'step')}"
    headlines = ("Yes", "No, faster")
    findings = [one for one in report.findings if one.question == "speed"]
    if findings and all(one.since is not None for one in findings):
        first = min(findings, key=lambda one: not one.bad)
        since = "" if first.since is None else f"since {first.since.day} {first.since:%b}"
        headlines = (f"{first.subject} has been slower {since}", f"{first.subject} has been faster {since}")
    return _conclude(report, "speed", headlines, measured.wall_time, compared, "passed build")


def _reliability(report: Report) -> Conclusion:
    measured = report.measurements
    n_steps = len(_with_interval(measured.step_failures))
    compared = f"the success rate of {{}}, and the failure rate of {format_count(n_steps, 'step')}"
    headlines = ("Yes", "No, more reliable")
    conclusion = _conclude(report, "reliability", headlines, measured.success, compared, "build")
    changes = _with_interval(measured.success)
    if len(changes):
        limit = format_points((changes["high"] - changes["low"]).median() / 2)
        note = f" Changes under {limit} points cannot be detected for a typical pipeline."
        conclusion = replace(conclusion, compared=conclusion.compared + note)
    return replace(conclusion, text=" ".join([*_broken(report), *_most_flips(report)]))


def _broken(report: Report) -> Iterator[str]:
    """Describe the first default branch that is broken now, and count the others."""
    if report.broken:
        more = len(report.broken) - 1
        yield f"Now: {report.broken[0]}" + (f" {more} more {'is' if more == 1 else 'are'} broken." if more else "")


def _most_flips(report: Report) -> Iterator[str]:
    """Name the step that flips most."""
    flips = report.measurements.flips
    for row in to_rows(flips[flips["flaky"] > 1].head(1)):
        commits = format_count(row["commits_passed"], "commit")
        yield (
            f"Most flips: {format_name(row['step'])} of {format_name(row['pipeline'])}, on "
            f"{format_percent(row['flake_rate'])} of {commits} in {report.history_days} days."
        )


def _waiting(report: Report) -> Conclusion:
    table, headlines = report.measurements.queue_time, ("Longer than before", "Shorter than before")
    conclusion = _conclude(report, "waiting", headlines, table, "the queue time of {}", "job", "queue")
    return replace(conclusion, text="".join(_longest_waits(table)))


def _longest_waits(table: pd.DataFrame) -> Iterator[str]:
    """Name the queue with the longest waits, if its 95th percentile is known."""
    for row in to_rows(table.dropna(subset="p95_s").sort_values("p95_s").tail(1)):
        yield (
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


def format_relative(now: float, before: float) -> str:
    """ "+4 %", "−2 %" or "unchanged"; "none before" if `before` is 0, "before unknown" if it is NaN."""
    if not before > 0:
        return "before unknown" if math.isnan(before) else "none before"
    share = round(100 * (now / before - 1))
    return f"{share:+,}\N{NO-BREAK SPACE}%".replace("-", "−") if share else "unchanged"


def _conclude(
    report: Report,
    kind: str,
    headlines: tuple[str, str],  # of a deterioration and of an improvement
    table: pd.DataFrame,
    compared: str,  # with {} for the groups
    one: str,
    group: str = "pipeline",
) -> Conclusion:
    """Return the conclusion from the findings, or from what was compared if there are none."""
    question, findings = _QUESTIONS[kind], [finding for finding in report.findings if finding.question == kind]
    changes, notes = _with_interval(table), []
    if len(changes):
        sizes = f"{format_count(int(changes['n'].sum()), one)}, before {int(changes['n_before'].sum()):,}"
        notes = [f"Compared: {compared.format(f'{format_count(len(changes), group)} ({sizes})')}."]
    if len(table) > len(changes):
        notes.append(f"{format_count(len(table) - len(changes), group)} had too little data to compare.")
    if findings:
        findings.sort(key=lambda finding: not finding.bad)
        bad, good = headlines
        headline, mood = (bad, "bad") if findings[0].bad else (good, "good")
        return Conclusion(question, headline, mood, findings, compared=" ".join(notes))
    if changes.empty:
        return Conclusion(question, "Nothing to compare", "unknown", compared=_why_nothing(report, kind))
    return Conclusion(question, "No significant change", "calm", compared=" ".join(notes))


def _why_nothing(report: Report, kind: str) -> str:
    if report.builds.empty:
        return "There are no builds."
    if not report.compares:
        return "The data does not cover the period before."
    return f"There are too few {_ROWS[kind]} in this period or the one before, or they cover fewer than two days."


def _with_interval(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose change, of the median if there are several, has an interval."""
    return table.dropna(subset=["low", "high"] if "low" in table else ["p50_change_low_s", "p50_change_high_s"])
