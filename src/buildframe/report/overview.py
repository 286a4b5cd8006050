"""Draw the conclusions of a report, one short text per question. Does not know pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from buildframe.formatting import format_count, format_duration, format_name, format_percent
from buildframe.report.content import Finding, Report

_QUESTIONS = {  # with a row that is compared, and all of them
    "speed": ("Are we slower?", "passed build", "passed builds"),
    "reliability": ("Are we less reliable?", "build", "builds that passed or failed"),
    "waiting": ("Do we wait for agents?", "job", "jobs that started"),
}


@dataclass(frozen=True)
class Conclusion:
    """Answer one question: a headline, its mood, the findings, further measurements, what was compared, the limit."""

    question: str
    headline: str
    mood: str  # "bad", "good", "calm" or "unknown"
    findings: Sequence[Finding] = ()
    text: str = ""
    compared: str = ""
    limit: str = ""

    @property
    def answer(self) -> str:
        """All texts in one line."""
        headline = f"{self.headline}." if self.headline else ""
        return " ".join(filter(None, (headline, self.text, self.compared, self.limit)))


def draw_conclusions(report: Report) -> list[Conclusion]:
    """Return a conclusion for each of the four questions, in the order of the page."""
    measured = report.measurements
    n_steps = len(measured.step_time[["pipeline", "step"]].drop_duplicates())
    times = f"the median wall time of {{}}, and {format_count(n_steps, 'step')}"
    rated = format_count(len(_with_interval(measured.step_failures)), "step")
    rates = f"the success rate of {{}}, and the failure rate of {rated}"
    return [
        _conclude(report, "speed", measured.wall_time, times),
        _conclude(report, "reliability", measured.success, rates, _describe_failures(report)),
        _conclude(report, "waiting", measured.queue_time, "the queue time of {}", _longest_waits(measured.queue_time)),
        _load(measured.load),
    ]


def _describe_failures(report: Report) -> Iterator[str]:
    """Name the flakiest step."""
    scores = report.measurements.flake_scores
    for row in scores[(scores["flaky"] > 1) & (scores["p_above"] > 0.5)].head(1).to_dict("records"):
        cost = format_count(row["red_builds"], "red build")
        cost = cost if row["red_builds"] else f"{format_duration(row['machine_s'])} of machine time"
        yield (
            f"Flakiest: {format_name(row['step'])} of {format_name(row['pipeline'])}, at random in "
            f"{format_percent(row['rate'])} of attempts ({format_percent(row['low'])} to "
            f"{format_percent(row['high'])}), {cost} in {format_count(report.history_days, 'day')}."
        )


def _longest_waits(table: pd.DataFrame) -> Iterator[str]:
    """Name the queue with the longest waits, and those of which only a lower bound is known."""
    for row in table.dropna(subset="p95_at_least_s").to_dict("records"):
        yield (
            f"In the queue {format_name(row['queue'])}, {row['n_censored']:,} of "
            f"{format_count(row['n'] + row['n_censored'], 'job')} did not start: one in twenty waits at least "
            f"{format_duration(row['p95_at_least_s'])}."
        )
    for row in table.dropna(subset="p95_s").sort_values("p95_s").tail(1).to_dict("records"):
        yield (
            f"The longest waits are in the queue {format_name(row['queue'])}: of its "
            f"{format_count(row['n'] + row['n_censored'], 'job')}, half waited {format_duration(row['p50_s'])} or "
            f"longer, one in twenty {format_duration(row['p95_s'])} or longer."
        )


def _load(table: pd.DataFrame) -> Conclusion:
    rows, question = table.to_dict("records"), "What else changed?"
    if not any(row["now"] > 0 or row["before"] > 0 for row in rows):
        return Conclusion(question, "Nothing to compare", "unknown", compared="There are no builds in either period.")
    counts = [f"{row['now']:,.0f} {row['what']} ({format_relative(row['now'], row['before'])})" for row in rows]
    return Conclusion(question, "", "calm", text=f"{', '.join(counts)}.")


def format_relative(now: float, before: float) -> str:
    """ "+4 %", "−2 %" or "unchanged"; "none before" if `before` is 0, "before unknown" if it is NaN."""
    if not before > 0:
        return "before unknown" if math.isnan(before) else "none before"
    share = round(100 * (now / before - 1))
    return f"{share:+,}\N{NO-BREAK SPACE}%".replace("-", "−") if share else "unchanged"


def _conclude(report: Report, kind: str, table: pd.DataFrame, compared: str, texts: Iterable[str] = ()) -> Conclusion:
    """Return the conclusion from the findings, or from what was compared if there are none.

    `compared` has {} for the groups. `texts` describe further measurements.
    """
    question, one, rows = _QUESTIONS[kind]
    findings = sorted((each for each in report.findings if each.question == kind), key=lambda each: not each.bad)
    notes, text = _describe_comparison(table, compared, one), " ".join(texts)
    limit = " ".join(_describe_limit(report, kind))
    if findings:
        mood = "bad" if findings[0].bad else "good"
        return Conclusion(question, findings[0].headline, mood, findings, text, notes, limit)
    if _with_interval(table).empty:
        return Conclusion(question, "Nothing to compare", "unknown", text=text, compared=_why_nothing(report, rows))
    return Conclusion(question, "No significant change", "calm", text=text, compared=notes, limit=limit)


def _describe_comparison(table: pd.DataFrame, compared: str, one: str) -> str:
    """Return what was compared, and how many groups could not be."""
    changes, group = _with_interval(table), "queue" if "queue" in table else "pipeline"
    notes = []
    if len(changes):
        sizes = f"{format_count(int(changes['n'].sum()), one)}, before {int(changes['n_before'].sum()):,}"
        notes.append(f"Compared: {compared.format(f'{format_count(len(changes), group)} ({sizes})')}.")
    if len(table) > len(changes):
        notes.append(f"{format_count(len(table) - len(changes), group)} had too little data to compare.")
    return " ".join(notes)


def _describe_limit(report: Report, kind: str) -> Iterator[str]:
    """Say which change of the pipeline with most builds the report most likely shows within the period."""
    limits, days = report.measurements.days_to_see, format_count(report.period.days, "day")
    known = limits[limits["of"] == {"speed": "wall time", "reliability": "failures"}.get(kind)]
    for row in known.dropna(subset=["smallest_change", "pipeline"]).nlargest(1, "n").to_dict("records"):
        name, least = format_name(row["pipeline"]), row["smallest_change"]
        if kind == "speed":
            change = f"If builds of {name} take {100 * least:.0f} % longer"
        else:
            points = 100 * min(least * (1 - row["rate"]), row["rate"])
            change = f"If the success rate of {name} falls by {points:.0f} points"
        yield f"{change}, reports show it within {days} in four of five cases. Smaller changes take longer."


def _why_nothing(report: Report, rows: str) -> str:
    if report.builds.empty:
        return "There are no builds."
    if not report.compares:
        return "The data does not cover the period before."
    return f"There are too few {rows} in this period or the one before, or they cover fewer than two days."


def _with_interval(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose change, of the median if there are several, has an interval."""
    return table.dropna(subset=["low", "high"] if "low" in table else ["p50_change_low_s", "p50_change_high_s"])
